"""The inline engine: handlers run in the request, after the commit. For development and tests.

A handler that fails is retried by whoever looks next: `handle_due`, or a worker.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta

from billhook.engines.cycle import Cycle
from billhook.inbox import Inbox

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
        """Handle everything that is due, in this thread; returns the number of attempts made."""
        attempts = 0
        while True:
            made = self._turn(only)
            attempts += made
            if not made:
                return attempts

    def stop(self) -> None:
        """Nothing to stop."""

    def _turn(self, only: int | None) -> int:
        now = self._cycle.clock.now()
        planned = self._cycle.plan(self._inbox.received(PLAN_LIMIT, only))
        owner = f"inline:{os.getpid()}"
        with self._inbox.turn(owner) as turn:
            won = turn.plan([one.plan for one in planned], now)
            claims = turn.claim(1, now, now + timedelta(seconds=self._lease_seconds), only=only)
        self._cycle.announce_quarantined(planned, won)
        events = {one.stored.delivery_id: one.event for one in planned}
        for claim in claims:
            report = self._cycle.attempt(claim, events.get(claim.delivery.delivery_id))
            with self._inbox.turn(owner) as turn:
                settled = turn.settle([report.outcome])
            self._cycle.announce([report], settled)
        return len(claims)
