"""Queries for operators: list, show, count and export deliveries; the schema's revision.

Reading takes no lock and goes in pages by id, so it does not slow the receiver down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, RowMapping, Select, func, select

from billhook.inbox import migrate
from billhook.inbox.filters import DeliveryFilter
from billhook.inbox.inbox import Inbox
from billhook.inbox.limits import PAUSED_RUN
from billhook.inbox.pending import next_times
from billhook.inbox.records import HandlerLimits
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.sql import in_states, in_values
from billhook.inbox.states import DeliveryState, DeliveryStatus, delivery_status
from billhook.inbox.transaction import NO_LIMITS

__all__ = [
    "BATCH",
    "DeliveryDetails",
    "DeliveryFilter",
    "DeliverySummary",
    "FailureDetails",
    "ListedDelivery",
    "RunDetails",
    "SearchBound",
    "count",
    "counts",
    "details",
    "export",
    "handler_names",
    "id_batches",
    "is_busy",
    "page",
    "revision",
    "search_bound",
    "summaries",
    "with_runs",
]


BATCH = 200


_SUMMARY = (
    delivery.c.id,
    delivery.c.source,
    delivery.c.key,
    delivery.c.event_type,
    delivery.c.state,
    delivery.c.received_at,
    delivery.c.signed_at,
    func.length(delivery.c.body).label("body_bytes"),
    select(func.min(run.c.twin_of))
    .where(run.c.delivery_id == delivery.c.id)
    .scalar_subquery()
    .label("twin_of"),
    delivery.c.conflict_of,
    delivery.c.sent_as,
)
_RUN = (
    run.c.id,
    run.c.handler,
    run.c.state,
    run.c.attempts,
    run.c.due_at,
    run.c.finished_at,
    run.c.last_error,
    run.c.order_key,
    run.c.twin_of,
    PAUSED_RUN.label("paused"),
    run.c.started_at,
    run.c.duration_seconds,
)
_FAILURE = (
    *(failure.c.run_id, failure.c.attempt, failure.c.failed_at),
    *(failure.c.error, failure.c.traceback, failure.c.duration_seconds),
)


def page(
    inbox: Inbox, selection: DeliveryFilter, limit: int, below: int | None = None
) -> list[DeliverySummary]:
    """Return a page of the selected, newest first; `below` is the last id of the page before it."""
    query = select(*_SUMMARY).where(*selection.conditions()).order_by(delivery.c.id.desc()).limit(limit)
    if below is not None:
        query = query.where(delivery.c.id < below)
    with inbox.database.read() as connection:
        return [DeliverySummary(*row) for row in connection.execute(query)]


def summaries(inbox: Inbox, delivery_ids: Sequence[int]) -> list[DeliverySummary]:
    """Return these deliveries as a list shows them, oldest first; unknown ids are skipped."""
    query = select(*_SUMMARY).where(in_values(delivery.c.id, delivery_ids)).order_by(delivery.c.id)
    with inbox.database.read() as connection:
        return [DeliverySummary(*row) for row in connection.execute(query)]


def with_runs(inbox: Inbox, listed: Sequence[DeliverySummary]) -> list[ListedDelivery]:
    """Return the same deliveries with their errors and their runs, as they are now."""
    delivery_ids = [summary.id for summary in listed]
    with inbox.database.read() as connection:
        wrong = select(delivery.c.id, delivery.c.error).where(
            in_values(delivery.c.id, delivery_ids), delivery.c.error.is_not(None)
        )
        errors: dict[int, str] = dict(map(tuple, connection.execute(wrong)))
        runs = _runs(connection, delivery_ids, {})
    return [ListedDelivery(summary, errors.get(summary.id), runs.get(summary.id, [])) for summary in listed]


def search_bound(inbox: Inbox, selection: DeliveryFilter, limit: int) -> SearchBound:
    """Return where a search for `contains` ends: at the newest `limit` of what else is selected."""
    others = replace(selection, contains=None)
    columns = (delivery.c.id, delivery.c.received_at)
    newest = select(*columns).where(*others.conditions()).order_by(delivery.c.id.desc()).limit(limit)
    part = newest.subquery()
    query = select(func.count(), func.min(part.c.id), func.min(part.c.received_at))
    with inbox.database.read() as connection:
        return SearchBound(*connection.execute(query).one())


def handler_names(inbox: Inbox, newest: int = 50) -> list[str]:
    """Return the names of handlers that have runs of the `newest` deliveries."""
    listed = with_runs(inbox, page(inbox, DeliveryFilter(), newest))
    return sorted({each.handler for listed_delivery in listed for each in listed_delivery.runs})


def is_busy(inbox: Inbox, now: datetime, limits: Mapping[str, HandlerLimits] = NO_LIMITS) -> bool:
    """Return whether a delivery is unread, or a run is running, or due for a handler with these limits."""
    unread = select(delivery.c.id).where(in_states(delivery.c.state, DeliveryState.RECEIVED))
    with inbox.database.read() as connection:
        times = next_times(connection, limits)
        due = any(at is not None and at <= now for at in (times.due_at, times.suspect_at))
        return (
            due or times.lease_ends_at is not None or connection.execute(unread.limit(1)).first() is not None
        )


def count(inbox: Inbox, selection: DeliveryFilter) -> int:
    """Count the selected deliveries."""
    with inbox.database.read() as connection:
        query = select(func.count()).select_from(delivery).where(*selection.conditions())
        number: int = connection.execute(query).scalar_one()
        return number


def counts(inbox: Inbox) -> dict[str, int]:
    """Count the deliveries in each state; every state is a key."""
    with inbox.database.read() as connection:
        rows = connection.execute(select(delivery.c.state, func.count()).group_by(delivery.c.state))
        numbers: dict[str, int] = {state: int(number) for state, number in rows}
    return {state.value: numbers.get(state.value, 0) for state in DeliveryState}


def id_batches(inbox: Inbox, selection: DeliveryFilter, batch: int = BATCH) -> Iterator[list[int]]:
    """Yield the ids of the selected in batches, oldest first; deliveries stored meanwhile are left out."""
    # The last id is taken once, or a receiver that stores faster than this reads would keep it going.
    with inbox.database.read() as connection:
        last = connection.execute(select(func.max(delivery.c.id))).scalar_one() or 0
    after = 0
    while True:
        query = _between(select(delivery.c.id).where(*selection.conditions()), after, last, batch)
        with inbox.database.read() as connection:
            ids = list(connection.execute(query).scalars())
        if not ids:
            return
        yield ids
        after = ids[-1]


def details(inbox: Inbox, delivery_ids: Sequence[int]) -> list[DeliveryDetails]:
    """Return these deliveries, oldest first; unknown ids are skipped."""
    with inbox.database.read() as connection:
        query = select(*_SUMMARY, delivery.c.body, delivery.c.headers, delivery.c.error)
        # One snapshot for all three tables, so that a delivery, its runs and their failures agree.
        rows = connection.execute(query.where(delivery.c.id.in_(delivery_ids)).order_by(delivery.c.id))
        details_rows = list(rows.mappings())
        runs = _runs(connection, delivery_ids, _failures(connection, delivery_ids))
    return [_details(row, runs.get(row["id"], [])) for row in details_rows]


def export(inbox: Inbox, selection: DeliveryFilter) -> Iterator[DeliveryDetails]:
    """Yield the selected with all their details, oldest first, a batch in memory at a time."""
    for batch in id_batches(inbox, selection, BATCH // 4):
        yield from details(inbox, batch)


def revision(inbox: Inbox) -> str | None:
    """Return the schema's revision, of any age; None without tables."""
    with inbox.database.migration_transaction() as connection:
        return migrate.found_revision(connection)


def _between(query: Select[Any], after: int, last: int, limit: int) -> Select[Any]:
    return query.where(delivery.c.id > after, delivery.c.id <= last).order_by(delivery.c.id).limit(limit)


def _details(row: RowMapping, runs: list[RunDetails]) -> DeliveryDetails:
    summary = DeliverySummary(**{name: row[name] for name in DeliverySummary.__slots__})
    return DeliveryDetails(summary, row["body"], json.loads(row["headers"]), row["error"], runs)


def _failures(connection: Connection, delivery_ids: Sequence[int]) -> dict[int, list[FailureDetails]]:
    """Return the failed attempts by the id of their run, oldest first."""
    failures: dict[int, list[FailureDetails]] = {}
    query = select(*_FAILURE).join(run, run.c.id == failure.c.run_id)
    of_these = query.where(in_values(run.c.delivery_id, delivery_ids)).order_by(failure.c.id)
    for run_id, *columns in connection.execute(of_these):
        failures.setdefault(run_id, []).append(FailureDetails(*columns))
    return failures


def _runs(
    connection: Connection, delivery_ids: Sequence[int], failures: Mapping[int, list[FailureDetails]]
) -> dict[int, list[RunDetails]]:
    by_delivery: dict[int, list[RunDetails]] = {}
    query = (
        select(run.c.delivery_id, *_RUN).where(in_values(run.c.delivery_id, delivery_ids)).order_by(run.c.id)
    )
    for row in connection.execute(query).mappings():
        own = {column.name: row[column.name] for column in _RUN}
        own["paused"] = bool(own["paused"])  # a number in SQLite
        by_delivery.setdefault(row["delivery_id"], []).append(
            RunDetails(**own, failures=failures.get(row["id"], []))
        )
    return by_delivery


class SearchBound(NamedTuple):
    """What a search reads: a number of deliveries, and the id and time of the oldest; None without any."""

    number: int
    from_id: int | None
    received_at: datetime | None


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """A delivery in a list; `body_bytes` is its length, `twin_of` the first delivery it duplicates.

    `event_type` is "" for a delivery without a type; `sent_as` is the type as sent, where an operator named
    another one; `conflict_of` is the id of the delivery that it contradicts.
    """

    id: int
    source: str
    key: str
    event_type: str
    state: str
    received_at: datetime
    signed_at: datetime | None
    body_bytes: int
    twin_of: int | None = None
    conflict_of: int | None = None
    sent_as: str | None = None


@dataclass(frozen=True, slots=True)
class FailureDetails:
    """One attempt that failed."""

    attempt: int
    failed_at: datetime
    error: str
    traceback: str | None
    duration_seconds: float | None = None
    """How long the call took; None without a call, and of attempts made before this was recorded."""


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run, with its failed attempts, oldest first.

    Runs of one handler and `order_key` are handled in order; `twin_of` is the delivery that it duplicates.
    `due_at` is None while it waits for its handler: `paused`, or at a limit.
    """

    id: int
    handler: str
    state: str
    attempts: int
    due_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    order_key: str | None = None
    twin_of: int | None = None
    paused: bool = False
    started_at: datetime | None = None
    """When its last attempt was claimed, and from its end on, when its handler was called."""
    duration_seconds: float | None = None
    """How long the last call took; None without one, or while it runs."""
    failures: list[FailureDetails] = field(default_factory=list)

    @property
    def status(self) -> str:
        """Its state, or "paused" while it waits because its handler is paused."""
        return "paused" if self.paused else self.state


@dataclass(frozen=True, slots=True)
class ListedDelivery:
    """A delivery in a list with its runs; their `failures` are left out."""

    summary: DeliverySummary
    error: str | None
    runs: list[RunDetails]

    @property
    def status(self) -> DeliveryStatus:
        """The status shown to operators."""
        return delivery_status(self.summary.state, ((run.status, run.attempts) for run in self.runs))


@dataclass(frozen=True, slots=True)
class DeliveryDetails:
    """All that is stored of a delivery; `error` says why it is quarantined or was discarded."""

    summary: DeliverySummary
    body: bytes
    headers: dict[str, str]
    error: str | None
    runs: list[RunDetails]

    @property
    def status(self) -> DeliveryStatus:
        """The status shown to operators."""
        return ListedDelivery(self.summary, self.error, self.runs).status
