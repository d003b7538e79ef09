"""The inline engine: handlers run in the request, after the commit. For development and tests.

A handler that fails is retried by whoever looks next: `handle_due`, or a worker.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta

from billhook.engines.cycle import Cycle
from billhook.events import Event, UnknownEvent
from billhook.inbox import Claim, Inbox

__all__ = ["InlineEngine"]

logger = logging.getLogger("billhook.engines")

PLAN_LIMIT = 100


class InlineEngine:
    """Runs each delivery where it came in; time-outs of handlers do not apply, for there is one thread."""

    def __init__(self, inbox: Inbox, cycle: Cycle, *, lease_seconds: float) -> None:
        self._inbox = inbox
        self._cycle = cycle
        self._lease_seconds = lease_seconds

    def start(self) -> None:
        """Nothing to start."""

    def wake(self, delivery_id: int) -> None:
        """Handle one delivery now. No failure here reaches the sender: the delivery is stored."""
        try:
            self.handle_due(only=delivery_id)
        except Exception:
            logger.exception("delivery %d was not handled inline", delivery_id)

    def handle_due(self, only: int | None = None) -> int:
        """Handle everything that is due, in this thread; returns the number of attempts made.

        With `only`, that delivery, and those that waited for their turn behind it.
        """
        attempts = 0
        wanted = [only]
        while wanted:
            claim, event = self._claim(wanted[0])
            if claim is None:
                del wanted[0]
                continue
            attempts += 1
            released = self._call(claim, event)
            if only is not None:
                wanted += released
        return attempts

    def stop(self) -> None:
        """Nothing to stop."""

    def _claim(self, only: int | None) -> tuple[Claim | None, Event | UnknownEvent | None]:
        """A run that is due, with its event if that was read just now.

        Everything that came is planned first, whoever took it: who came first is first in its order.
        """
        while True:
            now = self._cycle.clock.now()
            planned = self._cycle.plan(self._inbox.received(PLAN_LIMIT))
            with self._inbox.turn(_owner()) as turn:
                won = turn.plan([one.plan for one in planned], now)
                claims = turn.claim(1, now, now + timedelta(seconds=self._lease_seconds), only=only)
            self._cycle.announce_quarantined(planned, won)
            self._cycle.announce_twins(planned, turn.twins)
            events = {one.stored.delivery_id: one.event for one in planned}
            for claim in claims:
                return claim, events.get(claim.delivery.delivery_id)
            if len(planned) < PLAN_LIMIT:
                return None, None

    def _call(self, claim: Claim, event: Event | UnknownEvent | None) -> list[int]:
        """One attempt; returns the deliveries whose turn came by it."""
        report = self._cycle.attempt(claim, event)
        with self._inbox.turn(_owner()) as turn:
            settled = turn.settle([report.outcome])
        self._cycle.announce([report], settled)
        return turn.released


def _owner() -> str:
    return f"inline:{os.getpid()}"
