"""What operations on a batch of deliveries share: their transaction, their results and changes of states."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, select, update

from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.locks import lock_counts, lock_deliveries, lock_order
from billhook.inbox.tables.schema import delivery
from billhook.inbox.tables.sql import in_states, in_values
from billhook.inbox.tables.states import DeliveryState, check


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What was done to some deliveries; results of batches can be added."""

    deliveries: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@contextmanager
def transaction(
    inbox: Inbox, delivery_ids: Sequence[int], *, dry_run: bool, any_order: bool = False
) -> Iterator[Connection]:
    """Open a transaction with the locks of counts, of these deliveries, and of their order or `any_order`.

    It locks before anything is read, as a worker may be settling them. For a `dry_run` it is a snapshot.
    """
    with inbox.database.read() if dry_run else inbox.database.write() as connection:
        if not dry_run:
            lock_counts(connection)
            lock_order(connection, None if any_order else delivery_ids)
            lock_deliveries(connection, delivery_ids)
        yield connection


def states_of(
    connection: Connection,
    delivery_ids: Sequence[int],
    *among: DeliveryState,
    which: ColumnElement[bool] | None = None,
) -> dict[int, DeliveryState]:
    """Return the states of those of the deliveries that are in one of these, and `which` holds for."""
    query = select(delivery.c.id, delivery.c.state).where(
        in_values(delivery.c.id, delivery_ids), in_states(delivery.c.state, *among)
    )
    if which is not None:
        query = query.where(which)
    return {row.id: DeliveryState(row.state) for row in connection.execute(query)}


def change_states(
    connection: Connection,
    states: Mapping[int, DeliveryState],
    delivery_ids: Collection[int],
    after: DeliveryState,
    **values: Any,
) -> None:
    """Set the state of these deliveries; `states` has their present ones. Raises IllegalTransition."""
    before = {states[delivery_id] for delivery_id in delivery_ids}
    for state in before:
        check(state, after)
    if before:
        same = (in_values(delivery.c.id, delivery_ids), in_states(delivery.c.state, *sorted(before)))
        connection.execute(update(delivery).where(*same).values(state=after.value, **values))
