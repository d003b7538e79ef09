"""Letting go of old deliveries, a little at a time, so that no accept ever waits long for it.

What is finished and older than the retention loses its body, headers, error and runs. While it is young
enough to be sent again the row stays, pruned, for its key tells a duplicate; then that goes too. A delivery
that signed no time is never too old to be sent again, so its key stays for ever unless told otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, delete, exists, select, update

from billhook.inbox.clauses import among, in_state
from billhook.inbox.schema import delivery, run
from billhook.inbox.states import DeliveryState, RunState, check

__all__ = ["BATCH_LIMIT", "FINISHED", "KEYS_DAYS", "PRUNABLE", "Found", "Limits", "Pruned", "find", "prune"]

BATCH_LIMIT = 500
"""Rows in one transaction at most, and rows read at one time."""
KEYS_DAYS = 7.0
"""How long a sender may come again with what it sent: a key is known for as long at least."""
FINISHED = (DeliveryState.DONE, DeliveryState.DEAD, DeliveryState.QUARANTINED)
PRUNABLE = (*FINISHED, DeliveryState.PRUNED)
_COLUMNS = (delivery.c.id, delivery.c.state, delivery.c.received_at, delivery.c.signed_at)


@dataclass(frozen=True, slots=True)
class Limits:
    """Received before `empty_before` all but the row itself goes; before `forget_before` that as well.

    `forget_untimed_before` is the same for what signed no time; None keeps the keys of those for ever.
    """

    empty_before: datetime
    forget_before: datetime
    forget_untimed_before: datetime | None

    @classmethod
    def of(cls, now: datetime, retention_days: float, key_days: float | None = None) -> Limits:
        """The limits of a retention of 0 days or more; `key_days` is for what signed no time."""
        least_days = max(retention_days, KEYS_DAYS)
        untimed = None if key_days is None else now - timedelta(days=max(least_days, key_days))
        return cls(now - timedelta(days=retention_days), now - timedelta(days=least_days), untimed)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What went, by the state that it was in: `emptied` rows stay with their key, `deleted` ones do not.

    `after` is the id to go on from. `over`: nothing behind it is old, for now.
    """

    after: int
    over: bool
    emptied: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many deliveries lost something."""
        return self.emptied.total() + self.deleted.total()


class _Row(NamedTuple):
    id: int
    state: DeliveryState
    received_at: datetime
    signed_at: datetime | None

    def fate(self, limits: Limits) -> str:
        """`forget`, `empty`, or `keep`."""
        before = limits.forget_untimed_before if self.signed_at is None else limits.forget_before
        if before is not None and self.received_at < before:
            return "forget"
        old = self.received_at < limits.empty_before
        return "empty" if old and self.state is not DeliveryState.PRUNED else "keep"


@dataclass(frozen=True, slots=True)
class Found:
    """A look at some rows: which of them are to go, as the look saw them."""

    rows: list[_Row]
    after: int
    over: bool

    def counted(self, limits: Limits) -> Pruned:
        """As if they had gone."""
        return _counted(self.rows, limits, self.after, over=self.over)


def find(
    connection: Connection,
    limits: Limits,
    after: int,
    limit: int,
    states: Collection[DeliveryState] = PRUNABLE,
) -> Found:
    """Up to `limit` deliveries with ids above `after` that are to go, the oldest first.

    Ids follow the time of receipt, more or less: when none of BATCH_LIMIT rows is old, none behind them
    is. Takes no lock that an accept would wait for.
    """
    query = select(*_COLUMNS).where(delivery.c.id > after)
    seen = list(map(_row, connection.execute(query.order_by(delivery.c.id).limit(BATCH_LIMIT))))
    chosen: list[_Row] = []
    for row in seen:
        if len(chosen) == limit:
            return Found(chosen, chosen[-1].id, over=False)
        if row.state in states and row.fate(limits) != "keep":
            chosen.append(row)
    old = [row.id for row in seen if row.received_at < limits.empty_before]
    return Found(chosen, old[-1] if old else after, over=not old or len(seen) < BATCH_LIMIT)


def prune(connection: Connection, found: Found, limits: Limits) -> Pruned:
    """Let go of those that are finished still; what somebody else has locked is passed over."""
    # A finished delivery has no unfinished run; should one have any for all that, it stays.
    unfinished = exists().where(
        run.c.delivery_id == delivery.c.id,
        in_state(run.c.state, RunState.WAITING, RunState.DUE, RunState.RUNNING),
    )
    query = select(*_COLUMNS).where(
        among(delivery.c.id, [row.id for row in found.rows]),
        in_state(delivery.c.state, *PRUNABLE),
        ~unfinished,
    )
    locked = query.order_by(delivery.c.id).with_for_update(of=delivery, skip_locked=True)
    rows = list(map(_row, connection.execute(locked)))
    forget = [row.id for row in rows if row.fate(limits) == "forget"]
    empty = [row for row in rows if row.fate(limits) == "empty"]
    if forget:
        connection.execute(delete(delivery).where(among(delivery.c.id, forget)))
    if empty:
        for state in {row.state for row in empty}:
            check(state, DeliveryState.PRUNED)
        ids = [row.id for row in empty]
        connection.execute(delete(run).where(among(run.c.delivery_id, ids)))
        nothing = {"body": b"", "headers": "{}", "error": None}
        connection.execute(
            update(delivery)
            .where(among(delivery.c.id, ids))
            .values(state=DeliveryState.PRUNED.value, **nothing)
        )
    return _counted(rows, limits, found.after, over=found.over)


def _row(row: Iterable[object]) -> _Row:
    delivery_id, state, received_at, signed_at = row
    return _Row(delivery_id, DeliveryState(state), received_at, signed_at)  # type: ignore[arg-type]


def _counted(rows: Iterable[_Row], limits: Limits, after: int, *, over: bool) -> Pruned:
    went = Pruned(after, over)
    for row in rows:
        counter = {"empty": went.emptied, "forget": went.deleted}.get(row.fate(limits))
        if counter is not None:
            counter[row.state.value] += 1
    return went
