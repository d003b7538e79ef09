"""Turn: what an engine does to the inbox in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection

from billhook.inbox import runs
from billhook.inbox.giveback import release_unknown
from billhook.inbox.locks import lock_for
from billhook.inbox.planning import plan
from billhook.inbox.records import Claim, Outcome, Plan, Twin
from billhook.inbox.settling import Lease, settle

__all__ = ["Turn"]


class Turn:
    """One write transaction of an engine: settle, plan and claim together cost one sync of the disk.

    `twins` are the runs that were planned and discarded at once; `released` the deliveries of which a run
    became due because the one before it finished.
    """

    def __init__(self, connection: Connection, owner: str) -> None:
        self._connection = connection
        self._owner = owner
        self._locked = False
        self.steps: list[str] = []
        self.twins: list[Twin] = []
        self.released: list[int] = []

    def lock(self, outcomes: Sequence[Outcome], plans: Sequence[Plan]) -> None:
        """Take all the locks of a turn that will settle these and plan those; else each takes its own.

        Two turns that took theirs step by step might wait for one another.
        """
        lock_for(self._connection, outcomes, plans)
        self._locked = True

    def settle(self, outcomes: Sequence[Outcome]) -> set[Lease]:
        """Write how runs ended; returns the (run id, token) of those whose lease still held."""
        if not outcomes:
            return set()
        self.steps.append("settle")
        if not self._locked:
            lock_for(self._connection, outcomes, ())
        settled, released = settle(self._connection, outcomes)
        self.released += released
        return settled

    def plan(self, plans: Sequence[Plan], now: datetime) -> list[int]:
        """Make runs of received deliveries; returns the delivery ids that were still unplanned."""
        if not plans:
            return []
        self.steps.append("plan")
        if not self._locked:
            lock_for(self._connection, (), plans)
        won, twins = plan(self._connection, plans, now)
        self.twins += twins
        return won

    def claim(
        self,
        limit: int,
        now: datetime,
        leased_until: datetime,
        only: int | None = None,
        idle: int | None = None,
        *,
        suspects: bool = True,
        spread: timedelta = timedelta(0),
    ) -> list[Claim]:
        """Take up to `limit` due runs, of one delivery if `only` names it.

        The first `idle` of them (default: all) are begun at once, the others wait in a queue. Without
        `suspects` none whose last attempt was lost with its worker: of these, those that are found out now
        are due within `spread`.
        """
        claims = runs.claim(
            self._connection,
            owner=self._owner,
            limit=limit,
            idle=limit if idle is None else idle,
            now=now,
            leased_until=leased_until,
            only=only,
            suspects=suspects,
            spread=spread,
        )
        if claims:
            self.steps.append("claim")
        return claims

    def claim_suspect(self, now: datetime, leased_until: datetime, only: int | None = None) -> Claim | None:
        """Take one due run whose last attempt was lost with its worker, to be begun beside nothing else."""
        claim = runs.claim_suspect(
            self._connection, owner=self._owner, now=now, leased_until=leased_until, only=only
        )
        if claim is not None:
            self.steps.append("claim")
        return claim

    def join(self, held: Sequence[Lease]) -> None:
        """Note of suspects, as (run id, token), that others are begun beside them: not alone any more."""
        runs.join(self._connection, held)

    def renew(self, held: Sequence[Lease], leased_until: datetime) -> set[Lease]:
        """Extend leases given as (run id, token); returns those still held."""
        return runs.renew(self._connection, held, leased_until)

    def release(self, held: Sequence[Lease], now: datetime) -> None:
        """Give back runs, as (run id, token), that nobody called."""
        runs.release(self._connection, held, now)

    def release_unknown(self, held: Sequence[Lease], now: datetime) -> int:
        """Give back what this owner has in the inbox beside `held`, as (run id, token); returns how many.

        Only for an owner whose name is its own: after a turn that failed, and may be committed all the same.
        """
        return release_unknown(self._connection, self._owner, held, now)

    def next_due_at(self) -> datetime | None:
        """When the next run may be claimed."""
        return runs.next_due_at(self._connection)

    def next_times(self) -> runs.NextTimes:
        """When the next run may be claimed, and the next suspect."""
        return runs.next_times(self._connection)
