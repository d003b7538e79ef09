"""Retention: prune old deliveries in small batches, so that no put waits long for one.

A finished delivery older than the retention loses its body, headers, error and runs. An issue whose last
failure goes with them loses the text of the exception; so does one of quarantine, its reason, with the last
quarantined delivery of its type. The row of a delivery stays, pruned, while the sender may send it again,
because its key identifies a duplicate; then the row is deleted too. A delivery that signed no time may be
sent again at any age, so its key stays for ever unless `key_days` is set. The row of an erased delivery is
deleted at the same time as that of a pruned one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, exists, select, update

from billhook.inbox.counting.counts import keeping
from billhook.inbox.tables.locks import lock_counts
from billhook.inbox.tables.schema import (
    FAILED,
    NO_IDENTIFIERS,
    NO_REASON,
    UNFINISHED_RUN,
    delivery,
    failure,
    issue,
    run,
)
from billhook.inbox.tables.sql import in_states, in_values
from billhook.inbox.tables.states import DeliveryState, check

BATCH_LIMIT = 500
"""Rows in one transaction at most, and rows read at one time."""
KEYS_DAYS = 7.0
"""How long a sender may repeat a delivery: keys are kept for at least as long."""
_QUARANTINE = "quarantine"
"""The kind of the issues of deliveries that cannot be read, as it is stored."""
FINISHED = (DeliveryState.DONE, DeliveryState.DEAD, DeliveryState.QUARANTINED)
EMPTY = (DeliveryState.PRUNED, DeliveryState.ERASED)
PRUNABLE = (*FINISHED, *EMPTY)
_COLUMNS = (
    *(delivery.c.id, delivery.c.state, delivery.c.received_at, delivery.c.signed_at),
    delivery.c.event_type,
)


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Deliveries received before `empty_before` are emptied; before `delete_before` their rows are deleted.

    `delete_untimed_before` is for deliveries that signed no time; None keeps their keys for ever.
    """

    empty_before: datetime
    delete_before: datetime
    delete_untimed_before: datetime | None

    @classmethod
    def of(cls, now: datetime, retention_days: float, key_days: float | None = None) -> Cutoffs:
        """Return the cutoffs of a retention of 0 days or more; `key_days` is for untimed deliveries."""
        least_days = max(retention_days, KEYS_DAYS)
        untimed = None if key_days is None else now - timedelta(days=max(least_days, key_days))
        return cls(now - timedelta(days=retention_days), now - timedelta(days=least_days), untimed)


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What was pruned, by its state before: `emptied` rows stay with their key, `deleted` ones do not.

    `after` is the id to go on from. `over`: no delivery behind it is old enough yet.
    """

    after: int
    over: bool
    emptied: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many deliveries were emptied or deleted."""
        return self.emptied.total() + self.deleted.total()


def _action(row: Any, limits: Cutoffs) -> str:
    """Return what is to be done with a delivery: `forget`, `empty`, or `keep`."""
    before = limits.delete_untimed_before if row.signed_at is None else limits.delete_before
    if before is not None and row.received_at < before:
        return "forget"
    return "empty" if row.received_at < limits.empty_before and row.state not in EMPTY else "keep"


def counted(rows: Sequence[Any], limits: Cutoffs, after: int, *, over: bool) -> PruneResult:
    """Return the result of pruning these deliveries, without doing it."""
    numbers = {action: Counter[str]() for action in ("empty", "forget", "keep")}
    for row in rows:
        numbers[_action(row, limits)][row.state] += 1
    return PruneResult(after, over, numbers["empty"], numbers["forget"])


def find(
    connection: Connection,
    limits: Cutoffs,
    after: int,
    limit: int,
    states: Collection[DeliveryState] = PRUNABLE,
) -> tuple[list[Any], int, bool]:
    """Find up to `limit` deliveries to prune with ids above `after`, the oldest first.

    Returns their rows, the id to go on from, and whether no delivery behind it is old enough yet.

    Ids follow the time of receipt, roughly: when none of BATCH_LIMIT rows is old, none behind them is. Takes
    no lock that a put would wait for.
    """
    query = select(*_COLUMNS).where(delivery.c.id > after)
    seen: list[Any] = []
    chosen: list[Any] = []
    # In parts: most often the first rows are old enough, and reading the others would take longer than these.
    for part in connection.execute(query.order_by(delivery.c.id).limit(BATCH_LIMIT)).partitions(limit):
        for row in part:
            if len(chosen) == limit:
                return chosen, chosen[-1].id, False
            seen.append(row)
            if row.state in states and _action(row, limits) != "keep":
                chosen.append(row)
    # Where the next search begins: behind the last old row, whether it was chosen or must stay.
    old = [row.id for row in seen if row.received_at < limits.empty_before]
    return chosen, old[-1] if old else after, not old or len(seen) < BATCH_LIMIT


def prune(
    connection: Connection, found: Sequence[Any], limits: Cutoffs, known_types: Collection[str] | None = None
) -> Sequence[Any]:
    """Prune those that are still finished, and return them; rows that are locked by others are skipped."""
    lock_counts(connection)
    # A finished delivery has no unfinished run. If one has, after a defect, it is kept.
    unfinished = exists().where(
        run.c.delivery_id == delivery.c.id,
        UNFINISHED_RUN,
    )
    query = select(*_COLUMNS).where(
        in_values(delivery.c.id, [row.id for row in found]),
        in_states(delivery.c.state, *PRUNABLE),
        ~unfinished,
    )
    # Skipped, not waited for: another transaction replays or discards it, and the next pass comes anyway.
    locked = query.order_by(delivery.c.id).with_for_update(of=delivery, skip_locked=True)
    rows = connection.execute(locked).all()
    forget = [row.id for row in rows if _action(row, limits) == "forget"]
    empty = [row for row in rows if _action(row, limits) == "empty"]
    ids = [row.id for row in empty]
    old = in_values(run.c.delivery_id, [*forget, *ids])
    failed = select(failure.c.fingerprint).distinct().join(run, run.c.id == failure.c.run_id).where(old)
    failed_by = {*connection.execute(failed).scalars()} - {None}
    with keeping(connection, [*forget, *ids], known_types):
        if forget:
            connection.execute(delete(delivery).where(in_values(delivery.c.id, forget)))
        if empty:
            for state in {row.state for row in empty}:
                check(DeliveryState(state), DeliveryState.PRUNED)
            # Failures go with their runs, by the foreign key.
            connection.execute(delete(run).where(in_values(run.c.delivery_id, ids)))
            nothing = {"body": b"", "headers": "{}", **NO_REASON, **NO_IDENTIFIERS}
            connection.execute(
                update(delivery)
                .where(in_values(delivery.c.id, ids))
                .values(state=DeliveryState.PRUNED.value, **nothing)
            )
    if failed_by:
        left = exists().where(failure.c.fingerprint == issue.c.fingerprint)
        cut_texts(connection, in_values(issue.c.fingerprint, failed_by) & ~left)
    types = {row.event_type for row in rows if row.state == DeliveryState.QUARANTINED}
    if types:
        is_quarantined = delivery.c.state == DeliveryState.QUARANTINED.value
        kept = select(delivery.c.event_type).distinct().where(FAILED, is_quarantined)
        of_types = kept.where(in_values(delivery.c.event_type, types))
        gone = types - {*connection.execute(of_types).scalars()}
        cut_texts(connection, (issue.c.kind == _QUARANTINE) & in_values(issue.c.subject, gone))
    return rows


def cut_texts(connection: Connection, own: ColumnElement[bool]) -> None:
    """Remove from these issues what may name a customer: the text of an exception, an operator's reason.

    Nothing is decided by what is left of a title, the name of the exception: it is only shown.
    """
    own_texts = select(issue.c.fingerprint, issue.c.title, issue.c.kind).where(own)
    for row in connection.execute(own_texts.order_by(issue.c.fingerprint)).all():
        # A reason may name a field of the body, and so what a sender has put into its place.
        title = "quarantined" if row.kind == _QUARANTINE else row.title.partition(":")[0]
        texts = {"title": title, "why": None}
        connection.execute(update(issue).where(issue.c.fingerprint == row.fingerprint).values(texts))
