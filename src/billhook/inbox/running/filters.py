"""DeliveryFilter: which deliveries to select, as SQL conditions that the indexes serve.

What operators may give is declared once, as its fields: the options of commands, the fields of the form on
the dashboard's page and the record of actions are made from FILTERS.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from shlex import quote
from typing import Any, Literal, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Select, and_, exists, or_, select, union_all

from billhook.basics.printable import IDENTIFIER_CHARACTERS, first_line, printable
from billhook.inbox.running.limits import PAUSED_RUN
from billhook.inbox.tables.handler_names import has_name_of
from billhook.inbox.tables.schema import (
    CONFLICTING,
    DEAD_RUN,
    DUE_RUN,
    FAILED,
    FINISHED_RUN,
    IDENTIFIERS,
    RUNNING_RUN,
    UNFINISHED,
    UNREAD,
    UNREAD_TYPE,
    delivery,
    failure,
    issue,
    release,
    run,
)
from billhook.inbox.tables.sql import TextOfTables, distinct_values, in_states, in_values, position_of
from billhook.inbox.tables.states import DeliveryState, DeliveryStatus, RunState

_RETRYING = and_(DUE_RUN, run.c.attempts > 0)
TYPE_IS_UNREAD = and_(UNREAD_TYPE, delivery.c.event_type == "")
"""The type of a delivery is in the body, and no worker has read it yet."""
_OWN = run.c.delivery_id == delivery.c.id
_IDS_END = 2**63
_MATCH = delivery.alias("found")
_UNFINISHED = "unfinished"
SHOWN_STATES = (*DeliveryStatus, _UNFINISHED)
"""What `state` may be: a status, or one of the first five, whichever it is."""
STATES = (*SHOWN_STATES, DeliveryState.PLANNED)
"""SHOWN_STATES and `planned`, a stored state that is shown as `waiting` to `retrying`."""
_SOURCES = TextOfTables(
    f"WITH RECURSIVE {distinct_values('sources', 'source', 'delivery', 'TRUE')} "  # noqa: S608 - constants
    "SELECT source FROM sources WHERE source IS NOT NULL"
).columns(delivery.c.source)
"""The names of all sources: the index of keys begins with the source."""
_PARTS = (1_000, 4_000, 16_000, 40_000)
"""How many matches of a search are read, part by part. They fill a page if one in a thousand is selected."""


def _has_status(name: str) -> ColumnElement[bool]:
    """Build the condition for one of STATES. ValueError for other names."""
    if name not in STATES:
        raise ValueError(name)
    not_paused = ~exists().where(_OWN, PAUSED_RUN)
    # By the open runs, not by the deliveries: of a long queue few fail.
    retrying, running = (
        delivery.c.id.in_(select(run.c.delivery_id).where(which)) for which in (_RETRYING, RUNNING_RUN)
    )
    whole: dict[str, ColumnElement[bool]] = {
        _UNFINISHED: UNFINISHED,
        DeliveryState.RECEIVED: UNREAD,
        DeliveryState.DEAD: and_(FAILED, delivery.c.state == name),
        DeliveryState.QUARANTINED: and_(FAILED, delivery.c.state == name),
    }
    of_planned: dict[str, list[ColumnElement[bool]]] = {
        DeliveryState.PLANNED: [],
        DeliveryStatus.PAUSED: [exists().where(_OWN, PAUSED_RUN)],
        DeliveryStatus.WAITING: [not_paused, ~exists().where(_OWN, or_(_RETRYING, RUNNING_RUN))],
        DeliveryStatus.RUNNING: [not_paused, running, ~exists().where(_OWN, _RETRYING)],
        DeliveryStatus.RETRYING: [not_paused, retrying],
    }
    if name in of_planned:
        return and_(UNFINISHED, delivery.c.state == DeliveryState.PLANNED.value, *of_planned[name])
    return whole.get(name, delivery.c.state == name)


def _is_one_of(column: ColumnElement[str], value: str | tuple[str, ...]) -> ColumnElement[bool]:
    return column.in_(value) if isinstance(value, tuple) else column == value


def _contains(text: str) -> ColumnElement[bool]:
    # Senders may escape what is not ASCII, or write it as it is.
    return body_has({text.encode(), json.dumps(text)[1:-1].encode()})


def body_has(forms: Collection[bytes]) -> ColumnElement[bool]:
    """Return the condition that the body contains one of these."""
    return or_(*(position_of(form, delivery.c.body) > 0 for form in sorted(forms)))


def _says(text: str) -> ColumnElement[bool]:
    """Build the condition that an error of the delivery contains a text.

    It searches each table once, not once for each delivery.
    """
    other = delivery.alias("other")
    runs = select(run.c.delivery_id).where(run.c.last_error.icontains(text, autoescape=True))
    own = select(other.c.id).where(other.c.error.icontains(text, autoescape=True))
    return delivery.c.id.in_(union_all(runs, own))


def _of_issue(issue_id: str) -> ColumnElement[bool]:
    """Build the condition that an issue of failures or of dead runs concerns a delivery, by their indexes."""
    failed = select(run.c.delivery_id).join(failure, failure.c.run_id == run.c.id)
    handler = select(issue.c.subject).where(issue.c.fingerprint == issue_id, issue.c.kind == "dead")
    dead = select(run.c.delivery_id).where(DEAD_RUN, has_name_of(run.c.handler, handler.scalar_subquery()))
    return delivery.c.id.in_(union_all(failed.where(failure.c.fingerprint == issue_id), dead))


def _without_run(names: str | tuple[str, ...]) -> ColumnElement[bool]:
    """Build the condition that a delivery was planned, and no run of it has one of these names.

    Each is looked up in the unique index of runs. A received delivery is not missed yet: it is going to be
    planned. No handler was to have a quarantined one, and the runs of a pruned one are gone.
    """
    of_it = has_name_of(run.c.handler, *(names if isinstance(names, tuple) else (names,)))
    planned = in_states(delivery.c.state, DeliveryState.PLANNED, DeliveryState.DONE, DeliveryState.DEAD)
    return and_(planned, ~exists().where(_OWN, of_it))


def _ended(
    since: datetime | None, until: datetime | None, release_name: str | None, handler: str | None
) -> ColumnElement[bool]:
    """Build the condition that an attempt ended in a time: of the handler's run, if one is named.

    With a release, an attempt that this release made. The indexes of both times serve, for a release too: it
    made none before it was first started. A run that is replayed has its last result's time only, and those
    of its failures.
    """

    def within(at: Column[datetime]) -> list[ColumnElement[bool]]:
        bounds: list[ColumnElement[bool]] = [at >= since] if since is not None else []
        bounds += [at < until] if until is not None else []
        if release_name is not None:
            its = release.c.name == release_name
            bounds.append(at.table.c.release_id == select(release.c.id).where(its).scalar_subquery())
            bounds.append(at >= select(release.c.first_at).where(its).scalar_subquery())
        return bounds if handler is None else [*bounds, has_name_of(run.c.handler, handler)]

    finished = select(run.c.delivery_id).where(FINISHED_RUN, *within(run.c.finished_at))
    failed = select(run.c.delivery_id).join(failure, failure.c.run_id == run.c.id)
    return delivery.c.id.in_(union_all(finished, failed.where(*within(failure.c.failed_at))))


def has_failed_since(at: datetime) -> ColumnElement[bool]:
    """Build the condition that a run is dead or retried, and an attempt of it failed since a time."""
    failed = exists().where(failure.c.run_id == run.c.id, failure.c.failed_at >= at)
    return or_(and_(_RETRYING, failed), and_(DEAD_RUN, or_(failed, run.c.finished_at >= at)))


def _failed(since: datetime, handler: str | None) -> ColumnElement[bool]:
    """Build the condition that a delivery has such a run: of the handler, if one is named.

    It uses the indexes of both times, as the failures that a dead run had may have been deleted.
    """
    names = [] if handler is None else [has_name_of(run.c.handler, handler)]
    dead = select(run.c.delivery_id).where(FINISHED_RUN, run.c.finished_at >= since, DEAD_RUN, *names)
    failed = select(run.c.delivery_id).join(failure, failure.c.run_id == run.c.id)
    unfinished = or_(run.c.state == RunState.DEAD.value, _RETRYING)
    failed = failed.where(failure.c.failed_at >= since, unfinished, *names)
    return delivery.c.id.in_(union_all(dead, failed))


def _ways(text: str) -> list[Select[Any]]:
    """Select the deliveries of which a text is the id, the key or an identifying value: by an index each."""
    value = first_line(text, IDENTIFIER_CHARACTERS)  # as it is stored
    ways: list[ColumnElement[bool]] = [_MATCH.c[column.name] == value for column in IDENTIFIERS]
    ways.append(and_(_MATCH.c.source.in_(_SOURCES), _MATCH.c.key == text))
    if text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) < _IDS_END:
        ways.append(_MATCH.c.id == int(text))
    return [select(_MATCH.c.id).where(way) for way in ways]


class Filter(NamedTuple):
    """A condition of DeliveryFilter: how operators give it, and what it is in SQL.

    `told` is the help of the command line's option, and `label` names the field in the dashboard's form, if
    it is in there. `option` is the name of both. A `private` value may be of a payload: no record has it.
    """

    told: str
    condition: Callable[[Any], ColumnElement[bool]] | None
    label: str = ""
    kind: Literal["text", "texts", "time", "state", "flag"] = "text"
    metavar: str = "TEXT"
    option: str = ""
    private: bool = False


def _filter(*description: Any, default: Any = None, **more: Any) -> Any:
    """Declare a field of DeliveryFilter, with the arguments of its Filter."""
    return field(default=default, metadata={"filter": Filter(*description, **more)})


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Which deliveries to select: every condition given must hold.

    A delivery has one of several types or sources; a type in the body counts once it is read. `state` is a
    DeliveryStatus or `planned`. `contains` is a text in the body, as it was sent or as JSON escapes it; the
    database reads each body for it, so bound the search by `from_id` (see
    billhook.inbox.reading.search_scope.search_bound). `search` is found by indexes.

    `without_handler` is what a handler has missed: deliveries that were planned, and have a run under none of
    these names. Of a handler its former names count too, which the inbox knows: see
    billhook.inbox.tables.handler_names.

    `issue` is the id of an issue: deliveries of which an attempt failed by its bug, or of which the runs are
    dead that it is about. Why a delivery is quarantined no index tells: `of_issue` in inbox.watching.issues
    adds these as `quarantined`. `handled_since`, `handled_until` and `release` are of one attempt, of the
    `handler` if there is one: what a wrong deploy handled. `failed_since` is of a run that is not mended yet,
    of the `handler` if there is one. `decided` leaves out deliveries whose type an
    operator has to decide: conflicts that no handler has had, and those without a type, in a field of the
    body too.
    """

    # fmt: off
    event_type: str | tuple[str, ...] | None = _filter(
        "Of this event type; may be repeated.",
        partial(_is_one_of, delivery.c.event_type), "Type", "texts", "TYPE", option="type")
    state: str | None = _filter("In this state.", _has_status, "State", "state")
    error: str | None = _filter(
        "With this text in the last error, in upper or lower case.", _says, "Error contains", private=True)
    source: str | tuple[str, ...] | None = _filter(
        "From this source; may be repeated.",
        partial(_is_one_of, delivery.c.source), "Source", "texts", "NAME")
    key: str | None = _filter(
        "With this key, the id that the sender signed.",
        lambda key: and_(delivery.c.source.in_(_SOURCES), delivery.c.key == key), "Key", metavar="KEY")
    search: str | None = _filter(
        "With this id, this key, or this identifying value, such as an invoice's id; whole.",
        lambda text: delivery.c.id.in_(union_all(*_ways(text))), private=True)
    issue: str | None = _filter(
        "Of this issue: see `billhook failures list`.", _of_issue, "Issue", metavar="ISSUE")
    since: datetime | None = _filter(
        "Received since this time", lambda at: delivery.c.received_at >= at, "Since", "time")
    until: datetime | None = _filter(
        "Received before this time", lambda at: delivery.c.received_at < at, "Until", "time")
    contains: str | None = _filter(
        "With this text in the body, exactly as sent. The search is bounded.",
        _contains, "Body contains", private=True)
    handler: str | None = _filter(
        "With a run of this handler, under former names too.",
        lambda name: exists().where(_OWN, has_name_of(run.c.handler, name)), "Handler", metavar="NAME")
    without_handler: str | tuple[str, ...] | None = _filter(
        "Read, and given no run of this handler, under former names too; may be repeated.",
        _without_run, "Without handler", "texts", "NAME")
    handled_since: datetime | None = _filter(
        "An attempt of a handler ended since this time, with --handler of that one", None,
        "Handled since", "time")
    handled_until: datetime | None = _filter(
        "The same attempt ended before this time", None, "Handled until", "time")
    release: str | None = _filter(
        "The same attempt was made by this release of your code.", None, "Release", metavar="NAME")
    failed_since: datetime | None = _filter(
        "With a dead or retried run of which an attempt failed since this time, with --handler of that one",
        None, "Failed since", "time")
    twins: bool = _filter(
        "Deliveries that a handler has already had under another key.",
        lambda _: exists().where(_OWN, run.c.twin_of.is_not(None)), "same content", "flag", default=False)
    conflicts: bool = _filter(
        "Deliveries with the key of another delivery but other content.",
        lambda _: CONFLICTING, "in conflict", "flag", default=False)
    # fmt: on
    decided: bool = False
    from_id: int | None = None
    quarantined: tuple[int, ...] = ()

    @property
    def is_everything(self) -> bool:
        """True without any condition."""
        return self == DeliveryFilter()

    @property
    def is_of_attempts(self) -> bool:
        """Whether it selects by an attempt, and then by one of the handler if one is named."""
        return self._is_of_results or self.failed_since is not None

    @property
    def _is_of_results(self) -> bool:
        return any(each is not None for each in (self.handled_since, self.handled_until, self.release))

    def ids(
        self,
        connection: Connection,
        limit: int,
        *,
        above: int | None = None,
        below: int | None = None,
        oldest_first: bool = False,
    ) -> list[int]:
        """Return the ids of at most `limit` selected, newest first, of those between `above` and `below`.

        A value that a million deliveries have is found as fast as any other: its matches are read by their
        indexes, at first as few as asked for, then more, until the other conditions have selected enough.
        """

        def ordered(query: Select[Any], column: ColumnElement[int], number: int) -> Select[Any]:
            if above is not None:
                query = query.where(column > above)
            if below is not None:
                query = query.where(column < below)
            return query.order_by(column if oldest_first else column.desc()).limit(number)

        found: list[int] = []
        others = replace(self, search=None).conditions()
        # An error or an issue is looked up in other tables, and not again for each part.
        in_parts = self.search is not None and self.error is None and self.issue is None
        for least in (limit, *_PARTS) if in_parts else ():
            size = max(limit, least)
            ways = [ordered(way, _MATCH.c.id, size).subquery() for way in _ways(self.search or "")]
            # Each way gives its next `size`: up to the last of as many of them together, none is missing.
            matches = union_all(*(select(way.c.id) for way in ways)).subquery()
            part = connection.execute(ordered(select(matches.c.id), matches.c.id, size)).scalars().all()
            query = select(delivery.c.id).where(in_values(delivery.c.id, part), *others)
            found += connection.execute(ordered(query, delivery.c.id, limit - len(found))).scalars()
            if len(found) == limit or len(part) < size:
                return found
            above, below = (part[-1], below) if oldest_first else (above, part[-1])
        # Few matches are selected, or there is no search: the database knows which condition to begin with.
        query = ordered(select(delivery.c.id).where(*self.conditions()), delivery.c.id, limit - len(found))
        return [*found, *connection.execute(query).scalars()]

    def given(self) -> dict[str, Any]:
        """Return what operators gave, by the names of FILTERS."""
        return {name: value for name in FILTERS if (value := getattr(self, name)) not in (None, False)}

    @property
    def as_options(self) -> str:
        """The conditions as the command line's options, for the record of actions."""
        words = []
        for name, given in self.given().items():
            one = FILTERS[name]
            for value in given if isinstance(given, tuple) else (given,):
                text = f"{value:%Y-%m-%dT%H:%M:%S}" if one.kind == "time" else quote(printable(value))
                words.append(f"--{one.option}")
                words += [] if one.kind == "flag" else ["…" if one.private else text]
        return " ".join(words)

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions as SQL, over `delivery`."""
        found = {
            name: build(value)
            for name, value in self.given().items()
            if (build := FILTERS[name].condition) is not None
        }
        if self.failed_since is not None:
            found["failed"] = _failed(self.failed_since, self.handler)
        if self._is_of_results:
            found["handled"] = _ended(self.handled_since, self.handled_until, self.release, self.handler)
        if self.issue is not None:
            found["issue"] = or_(found["issue"], in_values(delivery.c.id, self.quarantined))
        conditions = list(found.values())
        if self.from_id is not None:
            conditions.append(delivery.c.id >= self.from_id)
        if self.decided:
            conditions.append(or_(delivery.c.conflict_of.is_(None), exists().where(_OWN)))
            conditions.append(or_(delivery.c.event_type != "", delivery.c.type_field.is_not(None)))
        return conditions


FILTERS: dict[str, Filter] = {
    each.name: each.metadata["filter"]._replace(
        option=each.metadata["filter"].option or each.name.replace("_", "-")
    )
    for each in fields(DeliveryFilter)
    if each.metadata
}
"""What operators may give, by the names of the fields."""
