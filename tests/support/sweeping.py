"""An inbox that is swept by one process or by several, at times that a test decides."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask

from billhook.clock import FrozenClock
from billhook.engines.maintenance import REGISTRATION_SECONDS, WorkerRegistration
from billhook.engines.messages import sweeper as sweeper_module
from billhook.engines.messages.sweeper import Sweeper
from billhook.extension import get_state
from billhook.inbox import Claim, RunPlan
from support.inbox_view import incoming

LEASE = timedelta(seconds=30)


class Watch:
    """A sweeper of an inbox, whose broker's queue holds `queued` messages; moves both clocks."""

    def __init__(self, app: Flask, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self._state = get_state(app)
        self.inbox, self.clock, self.queued, self.asked = self._state.inbox, clock, 0, 0
        self._moment = 1000.0
        monkeypatch.setattr(sweeper_module, "time", SimpleNamespace(monotonic=lambda: self._moment))
        self.sweeper = Sweeper(self.inbox, self._state.dispatcher)
        self.pause: float | None = None
        self._registrations: list[WorkerRegistration] = []
        self._write_at = 0.0

    def share(self, workers: int) -> list[Sweeper]:
        """Return the sweepers of so many workers with one list of handlers; all are seen as time passes."""
        lists, first = self._state.dispatcher.lists, len(self._registrations)
        made = [
            WorkerRegistration(self.inbox, f"worker {first + number}", "celery", lists)
            for number in range(workers)
        ]
        self._registrations += made
        self._write_at = 0.0
        self.pass_by(0)
        return [Sweeper(self.inbox, self._state.dispatcher, each) for each in made]

    def lose(self, sweeper: Sweeper) -> None:
        """Write no more that this one's worker is alive."""
        assert sweeper.registration is not None
        self._registrations.remove(sweeper.registration)

    def pass_by(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        self._moment += seconds
        if self._moment >= self._write_at:
            self._write_at = self._moment + REGISTRATION_SECONDS
            for each in self._registrations:
                each.write(self.clock.now())

    def put(self, key: str) -> int:
        return self.inbox.put(replace(incoming(key), received_at=self.clock.now())).delivery_id

    def plan(self, delivery_id: int, *handlers: str) -> None:
        with self.inbox.transaction("planner") as transaction:
            transaction.plan([RunPlan(delivery_id, handlers)], self.clock.now())

    def claim(self, **options: Any) -> list[Claim]:
        now: datetime = self.clock.now()
        with self.inbox.transaction("worker", self._state.dispatcher.limits) as transaction:
            return transaction.claim(1, now, now + LEASE, **options)

    def sweep(self, sweeper: Sweeper | None = None) -> list[int]:
        """What is published; the broker takes all of it."""
        ids: list[int] = []
        self.pause = (sweeper or self.sweeper).sweep(self._length, ids.append)
        return ids

    def _length(self) -> int:
        self.asked += 1
        return self.queued
