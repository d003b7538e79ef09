"""Deliveries: list, show, count, export and follow them.

Reading takes no lock and goes in pages by id, so it does not slow the receiver down.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, Table, func, or_, select, true

from billhook.basics.type_names import shown_type
from billhook.errors import ConfigError, InboxUnavailable
from billhook.inbox.inbox import Inbox
from billhook.inbox.running.due import next_times
from billhook.inbox.running.filters import TYPE_IS_UNREAD, DeliveryFilter
from billhook.inbox.running.handler_lists import EVERY_TYPE, TypeFilter, of_types
from billhook.inbox.running.limits import PAUSED_RUN
from billhook.inbox.running.transaction import NO_LIMITS, every_name
from billhook.inbox.tables.database import Listener
from billhook.inbox.tables.records import HandlerLimits
from billhook.inbox.tables.schema import IDENTIFIERS, UNREAD, delivery, failure, handler, release, run
from billhook.inbox.tables.sql import in_values
from billhook.inbox.tables.states import DeliveryState, DeliveryStatus, RunState, delivery_status
from billhook.inbox.tables.stored_errors import parse_error

BATCH = 200
POLL_SECONDS = 2.0
"""How long a delivery may lie unseen by a follower if its notification was lost."""
NO_LISTENER_SECONDS = 0.5
"""How long a delivery may lie unseen by a follower that cannot be notified."""
_MOST_FOUND = 500
_LATE_SECONDS = 70.0
"""How long after a higher id a lower one may be committed: longer than BILLHOOK_DEADLINE_SECONDS may be."""
_MOST_PASSED = 1_000
_EVERYTHING = DeliveryFilter()
_PAGE = 50


@dataclass(frozen=True, slots=True)
class DeliverySummary:
    """A delivery in a list; `body_bytes` is its length, `twin_of` the first delivery it duplicates.

    `event_type` is "" for a delivery without a type, and for one whose type is in the body, in the field at
    the path `type_field`, until that is read; `sent_as` is the type as sent, where an operator named another
    one; `conflict_of` is the id of the delivery that it contradicts, `edited_from` that of the one
    whose body an operator edited for it. `identifiers` say what it is about, from when it is planned.
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
    edited_from: int | None = None
    type_field: str | None = None
    identifiers: tuple[str, ...] = ()

    @property
    def type_is_unread(self) -> bool:
        """Whether its type is in the body, and no worker has read it yet."""
        return not self.event_type and self.type_field is not None and self.state == DeliveryState.RECEIVED

    @property
    def type_text(self) -> str:
        """The type as it is shown: a name with a blank in quotes, or in brackets why there is none."""
        if self.event_type:
            return shown_type(self.event_type)
        return "(not read yet)" if self.type_is_unread else "(no type)"


@dataclass(frozen=True, slots=True)
class FailureDetails:
    """One attempt that failed."""

    attempt: int
    failed_at: datetime
    error: str
    traceback: str | None
    duration_seconds: float | None = None
    """How long the call took; None without a call, and of attempts made before this was recorded."""
    issue: str | None = None
    """The id of the issue that it belongs to; None for one that was interrupted or put off."""
    worker: str | None = None
    """The process that made it."""
    release: str | None = None
    """The release of the user's code that it was made by; None without a name."""


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run, with its failed attempts, oldest first.

    Runs of one handler and `order_key` are handled in order; `twin_of` is the delivery that it duplicates.
    `due_at` is None while it waits for its handler: `paused`, or at the limit of its rate.
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
    worker: str | None = None
    """The process that claimed it last."""
    release: str | None = None
    """The release of the user's code in that process; None without a name."""
    not_before: datetime | None = None
    """While it is put off: the time before which it is not called."""
    failures: list[FailureDetails] = field(default_factory=list)

    @property
    def status(self) -> str:
        """Its state, or "paused" while it waits because its handler is paused."""
        return "paused" if self.paused else self.state

    @property
    def standing(self) -> str:
        """Its status; "retrying" for one that failed and will be called again."""
        return "retrying" if self.status == RunState.DUE and self.attempts > 0 else self.status


@dataclass(frozen=True, slots=True)
class ListedDelivery:
    """A delivery in a list with its runs; their `failures` are left out."""

    summary: DeliverySummary
    error: str | None
    runs: list[RunDetails]

    @property
    def status(self) -> DeliveryStatus:
        """The status shown to operators."""
        return delivery_status(self.summary.state, (run.standing for run in self.runs))

    @property
    def parsed_error(self) -> dict[str, Any] | None:
        """Its own error, with `error` and `details`; None without one."""
        return None if self.error is None else parse_error(self.error)


@dataclass(frozen=True, slots=True)
class DeliveryDetails(ListedDelivery):
    """All that is stored of a delivery; `error` says why it is quarantined or was discarded."""

    body: bytes
    headers: dict[str, str]


_COMPUTED: dict[str, ColumnElement[Any]] = {
    "body_bytes": func.length(delivery.c.body).label("body_bytes"),
    "twin_of": select(func.min(run.c.twin_of)).where(run.c.delivery_id == delivery.c.id).label("twin_of"),
}
_SUMMARY = [
    _COMPUTED[each.name] if each.name in _COMPUTED else delivery.c[each.name]
    for each in fields(DeliverySummary)
    if each.name != "identifiers"
]


def _columns(described: type[Any], of_table: Table, **named: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """Return the columns of a record's fields, and for some what computes them."""
    name = select(func.nullif(release.c.name, "")).where(release.c.id == of_table.c.release_id)
    named["release"] = name.scalar_subquery().label("release")
    names = [each.name for each in fields(described) if each.name != "failures"]
    return [named[each] if each in named else of_table.c[each] for each in names]


_RUN = _columns(RunDetails, run, paused=PAUSED_RUN.label("paused"))
_FAILURE = _columns(FailureDetails, failure, issue=failure.c.fingerprint.label("issue"))


def page(
    inbox: Inbox, selection: DeliveryFilter, limit: int, below: int | None = None
) -> list[DeliverySummary]:
    """Return a page of the selected, newest first; `below` is the last id of the page before it."""
    with inbox.database.read() as connection:
        ids = selection.ids(connection, limit, below=below)
    return summaries(inbox, ids)[::-1]


def summaries(inbox: Inbox, delivery_ids: Sequence[int]) -> list[DeliverySummary]:
    """Return these deliveries as a list shows them, oldest first; unknown ids are skipped."""
    query = (
        select(*_SUMMARY, *IDENTIFIERS).where(in_values(delivery.c.id, delivery_ids)).order_by(delivery.c.id)
    )
    return [_summary(row) for row in inbox.fetch(query)]


def _summary(row: Sequence[Any]) -> DeliverySummary:
    """Make a summary of a row: the columns of _SUMMARY, the identifiers, and any others behind them."""
    end = len(_SUMMARY)
    values: list[Any] = [*row[:end], tuple(filter(None, row[end : end + len(IDENTIFIERS)]))]
    return DeliverySummary(*values)


def with_runs(inbox: Inbox, listed: Sequence[DeliverySummary]) -> list[ListedDelivery]:
    """Return the same deliveries with their errors and their runs, as they are now."""
    delivery_ids = [summary.id for summary in listed]
    with inbox.database.read() as connection:
        wrong = select(delivery.c.id, delivery.c.error).where(
            in_values(delivery.c.id, delivery_ids), delivery.c.error.is_not(None)
        )
        errors: dict[int, str] = dict(map(tuple, connection.execute(wrong)))
        runs = _runs(connection, delivery_ids, {}, inbox.now())
    return [ListedDelivery(summary, errors.get(summary.id), runs.get(summary.id, [])) for summary in listed]


def handler_names(inbox: Inbox, newest: int = 50) -> list[str]:
    """Return the names of handlers that have runs of the `newest` deliveries."""
    listed = with_runs(inbox, page(inbox, DeliveryFilter(), newest))
    return sorted({each.handler for listed_delivery in listed for each in listed_delivery.runs})


def is_busy(
    inbox: Inbox,
    now: datetime,
    limits: Mapping[str, HandlerLimits] = NO_LIMITS,
    types: TypeFilter = EVERY_TYPE,
    which: Callable[[str], bool] = every_name,
) -> bool:
    """Return whether a delivery of these types is unread, or a run is running, or due.

    For handlers with these limits, and with names that `which` says.
    """
    unread = select(delivery.c.id).where(UNREAD, *of_types(types))
    with inbox.database.read() as connection:
        times = next_times(connection, limits).of(which)
        due = any(at is not None and at <= now for at in (times.due_at, times.suspect_at))
        is_unread = connection.execute(unread.limit(1)).first() is not None
        return due or is_unread or times.lease_ends_at is not None


def count(inbox: Inbox, selection: DeliveryFilter, limit: int | None = None) -> int:
    """Count the selected deliveries, no further than to a limit."""
    with inbox.database.read() as connection:
        if limit is not None:
            return len(selection.ids(connection, limit))
        query = select(func.count()).select_from(delivery).where(*selection.conditions())
        number: int = connection.execute(query).scalar_one()
        return number


def in_batches(ids: list[int], size: int = BATCH) -> Iterator[list[int]]:
    """Yield the ids in lists of at most `size`."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def id_batches(inbox: Inbox, selection: DeliveryFilter, batch: int = BATCH) -> Iterator[list[int]]:
    """Yield the ids of the selected in batches, oldest first; deliveries stored meanwhile are left out."""
    # The last id is taken once, or a receiver that stores faster than this reads would keep it going.
    ((last,),) = inbox.fetch(select(func.coalesce(func.max(delivery.c.id), 0)))
    after = 0
    while True:
        with inbox.database.read() as connection:
            ids = selection.ids(connection, batch, above=after, below=last + 1, oldest_first=True)
        if not ids:
            return
        yield ids
        after = ids[-1]


def details(inbox: Inbox, delivery_ids: Sequence[int]) -> list[DeliveryDetails]:
    """Return these deliveries, oldest first; unknown ids are skipped."""
    with inbox.database.read() as connection:
        query = select(*_SUMMARY, *IDENTIFIERS, delivery.c.body, delivery.c.headers, delivery.c.error)
        # One snapshot for all three tables, so that a delivery, its runs and their failures agree.
        rows = connection.execute(query.where(delivery.c.id.in_(delivery_ids)).order_by(delivery.c.id)).all()
        failed = select(failure.c.run_id, *_FAILURE).join(run, run.c.id == failure.c.run_id)
        failed = failed.where(in_values(run.c.delivery_id, delivery_ids)).order_by(failure.c.id)
        failures: dict[int, list[FailureDetails]] = {}
        for run_id, *columns in connection.execute(failed):
            failures.setdefault(run_id, []).append(FailureDetails(*columns))
        runs = _runs(connection, delivery_ids, failures, inbox.now())
    return [
        DeliveryDetails(
            summary=_summary(row),
            error=row.error,
            runs=runs.get(row.id, []),
            body=row.body,
            headers=json.loads(row.headers),
        )
        for row in rows
    ]


def export(inbox: Inbox, selection: DeliveryFilter) -> Iterator[DeliveryDetails]:
    """Yield the selected with all their details, oldest first, a batch in memory at a time."""
    for batch in id_batches(inbox, selection, BATCH // 4):
        yield from details(inbox, batch)


def _runs(
    connection: Connection,
    delivery_ids: Sequence[int],
    failures: Mapping[int, list[FailureDetails]],
    now: datetime,
) -> dict[int, list[RunDetails]]:
    by_delivery: dict[int, list[RunDetails]] = {}
    next_start = select(handler.c.next_start_at).where(handler.c.name == run.c.handler).scalar_subquery()
    query = select(run.c.delivery_id, *_RUN, next_start)
    of_these = query.where(in_values(run.c.delivery_id, delivery_ids)).order_by(run.c.id)
    for delivery_id, *values, next_start_at in connection.execute(of_these):
        one = RunDetails(*values)
        is_limited = one.state == RunState.DUE and (next_start_at or now) > now
        due_at = None if one.paused or is_limited else one.due_at
        paused = bool(one.paused)  # a number in SQLite
        one = replace(one, due_at=due_at, paused=paused, failures=failures.get(one.id, []))
        by_delivery.setdefault(delivery_id, []).append(one)
    return by_delivery


class Deliveries:
    """The deliveries of an inbox, to read: find, count and follow them. Changes nothing.

    >>> with Deliveries.open("sqlite:////var/lib/shop/billhook.db") as deliveries:  # doctest: +SKIP
    ...     for found in deliveries.find(DeliveryFilter(event_type="PaymentFailed"), limit=20):
    ...         print(found.summary.id, found.status, found.body)

    Any number of threads may share one. Methods raise InboxUnavailable when the storage fails.
    """

    def __init__(self, inbox: Inbox) -> None:
        """Read an inbox that is open already; `open` is for one that is not."""
        self._inbox = inbox

    @classmethod
    def open(cls, url: str, *, schema: str = "billhook", pool_mode: str = "transaction") -> Self:
        """Open the inbox at the URL, as BILLHOOK_INBOX_URL has it. Raises ConfigError if there is none."""
        inbox = Inbox(url, schema=schema, pool_mode=pool_mode)
        if inbox.is_missing:  # SQLite would create an empty one
            raise ConfigError(f"there is no inbox at {inbox.database.display_url}")
        return cls(inbox)

    def close(self) -> None:
        """Close the inbox's connections."""
        self._inbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, delivery_id: int) -> DeliveryDetails | None:
        """Return a delivery with its body, headers and runs; None if there is none of this id."""
        return next(iter(details(self._inbox, [delivery_id])), None)

    def count(self, selection: DeliveryFilter = _EVERYTHING) -> int:
        """Count the selected deliveries."""
        return count(self._inbox, selection)

    def find(
        self, selection: DeliveryFilter = _EVERYTHING, *, limit: int | None = None
    ) -> Iterator[DeliveryDetails]:
        """Yield the selected, newest first, at most `limit`; a page of them is in memory at a time."""
        below = None
        left = sys.maxsize if limit is None else limit
        while left > 0:
            found = page(self._inbox, selection, min(left, _PAGE), below)
            yield from reversed(details(self._inbox, [summary.id for summary in found]))
            if len(found) < _PAGE:
                return
            left -= len(found)
            below = found[-1].id

    def follow(
        self,
        selection: DeliveryFilter = _EVERYTHING,
        *,
        after: int | None = None,
        idle_seconds: float | None = None,
        on_unavailable: Callable[[InboxUnavailable], object] | None = None,
    ) -> Iterator[DeliveryDetails]:
        """Yield the selected as they are stored, in the order in which they were, and wait for others.

        Begins after the delivery `after`, or with the next that is stored after this call. Ends after
        `idle_seconds` in which nothing selected was stored, by default never. A delivery is there some
        milliseconds after its commit; a notification that was lost costs up to 2 s. With `on_unavailable` it
        does not raise InboxUnavailable: it calls that, which waits, and goes on where it was.
        """
        return self._follow(NewIds(self._inbox, after), selection, idle_seconds, on_unavailable)

    def _follow(
        self,
        news: NewIds,
        selection: DeliveryFilter,
        idle_seconds: float | None,
        on_unavailable: Callable[[InboxUnavailable], object] | None,
    ) -> Iterator[DeliveryDetails]:
        own: AbstractContextManager[Listener | None] = nullcontext()  # without a listener it polls
        with suppress(OSError):  # a folder that this user may not write to
            own = closing(self._inbox.waker.listener())
        with own as listener:
            found: list[int] = []
            unread: list[int] = []
            last_at = time.monotonic()
            while True:
                try:
                    # Read again what an interruption kept from being yielded.
                    found = found or news.poll()
                    selected, still_unread = _selected(self._inbox, [*unread, *found], selection)
                    chosen = details(self._inbox, selected)
                except InboxUnavailable as error:
                    if on_unavailable is None:
                        raise
                    on_unavailable(error)
                    continue
                unread = still_unread
                yield from chosen
                if chosen:
                    last_at = time.monotonic()
                if found:
                    found = []
                    continue
                pause = NO_LISTENER_SECONDS if unread else POLL_SECONDS
                if idle_seconds is not None:
                    pause = min(pause, last_at + idle_seconds - time.monotonic())
                    if pause <= 0:
                        return
                try:
                    if listener is None:
                        time.sleep(min(pause, NO_LISTENER_SECONDS))
                    else:
                        listener.wait(pause)
                except OSError:  # the server is away, or was: the next poll tells
                    time.sleep(pause)


def _selected(inbox: Inbox, ids: Sequence[int], selection: DeliveryFilter) -> tuple[list[int], list[int]]:
    """Return those of the ids that are selected, and those that may be once their type is read."""
    if not ids:
        return [], []
    unread: list[int] = []
    query = select(delivery.c.id).where(in_values(delivery.c.id, ids)).order_by(delivery.c.id)
    with inbox.database.read() as connection:  # of one moment: none is read between the two
        if selection.event_type is not None:
            unread = list(connection.execute(query.where(TYPE_IS_UNREAD)).scalars())
        return list(connection.execute(query.where(*selection.conditions())).scalars()), unread


class NewIds:
    """The ids of deliveries that were stored since the last poll.

    On PostgreSQL a transaction may commit a lower id after another one has committed a higher one, so ids
    that were passed over are looked for again for a while. Most of them belong to no delivery at all.
    """

    def __init__(self, inbox: Inbox, after: int | None) -> None:
        self._inbox = inbox
        self._passed: dict[int, float] = {}
        last = delivery.c.id <= after if after is not None else true()
        query = select(delivery.c.id).where(last).order_by(delivery.c.id.desc()).limit(_MOST_PASSED)
        there = {row.id for row in inbox.fetch(query)}
        self._last = max(there, default=0) if after is None else after
        self._pass(range(max(min(there, default=1), self._last - _MOST_PASSED), self._last), there)

    def poll(self) -> list[int]:
        """Return new ids, at most a batch, in their order."""
        now = time.monotonic()
        late = in_values(delivery.c.id, list(self._passed))
        query = select(delivery.c.id).where(
            or_(delivery.c.id > self._last, late) if self._passed else delivery.c.id > self._last
        )
        found = [row.id for row in self._inbox.fetch(query.order_by(delivery.c.id).limit(_MOST_FOUND))]
        # Only now: after a long pause of the reader, each has been looked for once more.
        self._passed = {one: until for one, until in self._passed.items() if until > now}
        for delivery_id in found:
            self._passed.pop(delivery_id, None)
            if delivery_id > self._last:
                self._pass(range(max(self._last + 1, delivery_id - _MOST_PASSED), delivery_id))
                self._last = delivery_id
        return found

    def _pass(self, ids: range, there: Collection[int] = ()) -> None:
        until = time.monotonic() + _LATE_SECONDS
        self._passed.update({one: until for one in ids if one not in there})
