"""One write transaction of an engine: settle, plan and claim together cost one fsync."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from billhook.inbox.claims import RunClaims
from billhook.inbox.locks import lock_for
from billhook.inbox.pending import NextTimes, next_times
from billhook.inbox.planning import plan
from billhook.inbox.records import DuplicateRun, Lease, RunPlan, RunResult
from billhook.inbox.settling import settle

__all__ = ["InboxTransaction"]


class InboxTransaction(RunClaims):
    """What an engine does to the inbox in one transaction; see RunClaims for claim, renew and release.

    `duplicates` are the runs that were planned and discarded at once; `released` the deliveries of which a
    run became due because the run before it in its order finished.
    """

    def __init__(self, connection: Connection, owner: str) -> None:
        super().__init__(connection, owner)
        self._locked = False
        self.duplicates: list[DuplicateRun] = []
        self.released: list[int] = []

    def lock(self, results: Sequence[RunResult], plans: Sequence[RunPlan]) -> None:
        """Take all row locks of a transaction that will settle these results and plan these deliveries.

        For a transaction that does both: two that took their locks step by step could deadlock.
        """
        lock_for(self._connection, results, plans)
        self._locked = True

    def settle(self, results: Sequence[RunResult]) -> set[Lease]:
        """Write run results; returns the leases that were still held."""
        if not results:
            return set()
        self.steps.append("settle")
        if not self._locked:
            lock_for(self._connection, results, ())
        settled, released = settle(self._connection, results)
        self.released += released
        return settled

    def plan(self, plans: Sequence[RunPlan], now: datetime) -> list[int]:
        """Make the runs of received deliveries; returns the delivery ids that were still unplanned."""
        if not plans:
            return []
        self.steps.append("plan")
        if not self._locked:
            lock_for(self._connection, (), plans)
        won, duplicates = plan(self._connection, plans, now)
        self.duplicates += duplicates
        return won

    def next_times(self) -> NextTimes:
        """Return when the next run may be claimed, and the next suspect."""
        return next_times(self._connection)
