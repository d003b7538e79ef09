"""Turn: what an engine does to the inbox in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from billhook.inbox import runs
from billhook.inbox.records import Claim, Outcome, Plan
from billhook.inbox.settling import settle

__all__ = ["Turn"]


class Turn:
    """One write transaction of an engine: settle, plan and claim together cost one sync of the disk."""

    def __init__(self, connection: Connection, owner: str) -> None:
        self._connection = connection
        self._owner = owner
        self.steps: list[str] = []

    def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        """Write how runs ended; returns the run ids whose lease still held."""
        if outcomes:
            self.steps.append("settle")
        return settle(self._connection, outcomes)

    def plan(self, plans: Sequence[Plan], now: datetime) -> list[int]:
        """Make runs of received deliveries; returns the delivery ids that were still unplanned."""
        if plans:
            self.steps.append("plan")
        return runs.plan(self._connection, plans, now)

    def claim(
        self,
        limit: int,
        now: datetime,
        leased_until: datetime,
        only: int | None = None,
        idle: int | None = None,
    ) -> list[Claim]:
        """Take up to `limit` due runs, of one delivery if `only` names it.

        The first `idle` of them (default: all) are begun at once, the others wait in a queue.
        """
        claims = runs.claim(
            self._connection,
            owner=self._owner,
            limit=limit,
            idle=limit if idle is None else idle,
            now=now,
            leased_until=leased_until,
            only=only,
        )
        if claims:
            self.steps.append("claim")
        return claims

    def renew(self, held: Sequence[tuple[int, int]], leased_until: datetime) -> set[tuple[int, int]]:
        """Extend leases given as (run id, token); returns those still held."""
        return runs.renew(self._connection, held, leased_until)

    def release(self, held: Sequence[tuple[int, int]], now: datetime) -> None:
        """Give back runs, as (run id, token), that nobody called."""
        runs.release(self._connection, held, now)

    def next_due_at(self) -> datetime | None:
        """When the next run may be claimed."""
        return runs.next_due_at(self._connection)
