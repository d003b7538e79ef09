"""The inline engine: handlers run in the request, after the commit. For development and tests.

A failed run is retried by the next `handle_due`, or by a worker.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import timedelta

from billhook.engines.dispatcher import Dispatcher
from billhook.engines.leases import process_owner
from billhook.events import Event, UnknownEvent
from billhook.inbox import Claim, Inbox
from billhook.logs import fields

__all__ = ["InlineEngine"]

logger = logging.getLogger("billhook.engines")

PLAN_LIMIT = 100


class InlineEngine:
    """Handles each delivery in the thread that stored it; time-outs of handlers do not apply."""

    def __init__(self, inbox: Inbox, dispatcher: Dispatcher, *, lease_seconds: float) -> None:
        self._inbox = inbox
        self._dispatcher = dispatcher
        self._lease_time = timedelta(seconds=lease_seconds)

    def start(self) -> None:
        """Do nothing: there is no thread to start."""

    def wake(self, delivery_id: int) -> None:
        """Handle one delivery now. Errors are logged: the delivery is stored, and its sender gets its 200."""
        try:
            self.handle_due(only=delivery_id)
        except Exception:
            text = "inline handling of delivery %d failed"
            logger.exception(text, delivery_id, extra=fields(delivery_id=delivery_id))

    def handle_due(self, only: int | None = None) -> int:
        """Handle every due run in this thread and return the number of attempts.

        With `only`, the runs of that delivery, and of those whose runs it released by their order key.
        """
        attempts = 0
        wanted: deque[int | None] = deque([only])
        self._inbox.release_held(process_owner(), self._dispatcher.limits, self._dispatcher.clock.now())
        while wanted:
            claim, event, released = self._claim(wanted[0])
            if claim is None:
                wanted.popleft()
            else:
                attempts += 1
                released += self._execute(claim, event)
            if only is not None:
                wanted += released
        return attempts

    def stop(self) -> None:
        """Do nothing: there is no thread to stop."""

    def _claim(self, only: int | None) -> tuple[Claim | None, Event | UnknownEvent | None, list[int]]:
        """Claim a due run; return it with its event, if that was just parsed.

        Return too the deliveries of which a run was released by planning others.
        """
        released: list[int] = []
        while True:
            now = self._dispatcher.clock.now()
            # All deliveries are planned, whichever is wanted: order keys go by the order of arrival.
            planned = self._dispatcher.plan(self._inbox.received(PLAN_LIMIT))
            with self._inbox.transaction(process_owner(), self._dispatcher.limits) as transaction:
                planned_here = transaction.plan([planned_delivery.plan for planned_delivery in planned], now)
                claims = transaction.claim(1, now, now + self._lease_time, only=only)
            self._dispatcher.report(
                planned=planned, planned_here=planned_here, duplicates=transaction.duplicates
            )
            released += transaction.released
            events = {
                planned_delivery.stored.delivery_id: planned_delivery.event for planned_delivery in planned
            }
            for claim in claims:
                return claim, events.get(claim.delivery.delivery_id), released
            if len(planned) < PLAN_LIMIT and not transaction.held:
                return None, None, released

    def _execute(self, claim: Claim, event: Event | UnknownEvent | None) -> list[int]:
        """Make one attempt and settle it; return the deliveries of which it released a run."""
        attempt = self._dispatcher.attempt(claim, event)
        with self._inbox.transaction(process_owner(), self._dispatcher.limits) as transaction:
            settled = transaction.settle([attempt.run_result])
            transaction.apply_limits(self._dispatcher.clock.now())
        self._dispatcher.report(attempts=[attempt], settled=settled, paused=transaction.paused)
        return transaction.released
