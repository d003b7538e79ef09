"""Find what live processes disagree about: which handlers and event types there are.

their lists differ                            said while it is so: mostly a deployment is under way
a handler is missing in the newest list,      it gets nothing: of two teams that share an inbox, or of a
while both are alive for five minutes         process that is left of an earlier release
the newest list has not planned for 60 s,     its handlers lack deliveries that others planned; said for
and others did in its place                   30 days, unless an operator resolves the issue
a process of the last 24 hours had a handler  its deliveries are stored, and nothing is called: of a deploy
of a type that now has none                   that lacks it; said for these 24 hours
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, select

from billhook.basics.printable import counted
from billhook.inbox.running.handler_lists import UNKNOWN_TYPES, HandlerList, read_live_lists
from billhook.inbox.running.workers import WORKER_SILENT_AFTER
from billhook.inbox.tables.schema import delivery, handler_list, release, run, worker
from billhook.inbox.tables.states import DeliveryState

LEFT_OUT_AFTER = timedelta(minutes=5)
MISSED_FOR = timedelta(days=30)
_SHOWN = 3
GONE_FOR = timedelta(days=1)
_LISTS_READ = 50
_DELIVERIES_READ = 1_000
"""How many deliveries of a type that no handler got are counted at most."""


class _Process(NamedTuple):
    """A live process: its release and its list of handlers."""

    release: str
    number: int
    handlers: HandlerList
    live_since: datetime


class LeftOut(NamedTuple):
    """A handler that gets nothing, as the newest list of live processes lacks it; since when both live."""

    name: str
    since: datetime
    text: str


class LackingHandler(NamedTuple):
    """How many deliveries a handler lacks, which others planned without it, up to the last at `at`."""

    name: str
    number: int
    at: datetime


def _processes(connection: Connection, now: datetime) -> list[_Process]:
    query = (
        select(release.c.name, handler_list.c.id, handler_list.c.content, handler_list.c.live_since)
        .select_from(worker)
        .join(handler_list, handler_list.c.id == worker.c.list_id)
        .outerjoin(release, release.c.id == worker.c.release_id)
        .where(worker.c.stopped_at.is_(None), worker.c.seen_at > now - WORKER_SILENT_AFTER)
        .where(worker.c.held_at.is_(None))
        .order_by(handler_list.c.id.desc(), worker.c.started_at)
    )
    rows = connection.execute(query).all()
    lists = {number: HandlerList.parse(content) for _, number, content, _ in rows}
    return [_Process(name or "", number, lists[number], since) for name, number, _, since in rows]


def read_disagreement(connection: Connection, now: datetime) -> str | None:
    """Return what live processes disagree about, as a part of a sentence; None if they agree."""
    every = _processes(connection, now)
    if len({each.number for each in every}) < 2:
        return None
    found = [*_differences(every)]
    if not found:  # they have other aliases, by which deliveries get the same
        return None
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"workers disagree: {'; '.join(found[:_SHOWN])}{more}"


def _differences(every: Sequence[_Process]) -> Iterator[str]:
    """Yield what some of these have and others lack: handlers, event types, what types a handler gets."""
    names = sorted({name for each in every for name in each.handlers.names})
    types = sorted({one for each in every for one in each.handlers.by_type} - {UNKNOWN_TYPES})
    for name in names:
        yield from _parts_of(
            every, f"{name} is known to", [name in one.handlers.stored_names for one in every]
        )
    for event_type in types:
        knowing = [one.handlers.knows(event_type) for one in every]
        yield from _parts_of(every, f"the type {event_type} is known to", knowing)
    known = [name for name in names if all(name in each.handlers.stored_names for each in every)]
    shared = [one for one in types if all(each.handlers.knows(one) for each in every)]
    for name in known:
        order = [each.handlers.ordered.get(name) for each in every]
        if all(name in each.handlers.names for each in every):
            yield from _parts_of(every, f"{name} has another order at", [each != order[0] for each in order])
        for event_type in (*shared, UNKNOWN_TYPES):
            shown = event_type or "unknown types"
            called = [one.handlers.calls(name, event_type) for one in every]
            yield from _parts_of(every, f"{name} gets {shown} at", called)
            sources = [one.handlers.of_type(event_type).get(name) for one in every]
            if all(each is not None for each in sources):
                others = [sorted(each or ()) != sorted(sources[0] or ()) for each in sources]
                yield from _parts_of(every, f"{name} has other sources for {shown} at", others)


def _parts_of(every: Sequence[_Process], what: str, having: Sequence[bool]) -> Iterator[str]:
    """Yield how many of these processes have it, unless all or none do."""
    have = [each for each, has in zip(every, having, strict=True) if has]
    lack = [each for each, has in zip(every, having, strict=True) if not has]
    if have and lack:
        yield f"{what} {len(have)} of {len(every)}{_releases(have, lack)}"


def _releases(have: Sequence[_Process], lack: Sequence[_Process]) -> str:
    """Return the releases of those that have it and of those that lack it, where they have names."""
    named, others = ({each.release or "unnamed" for each in some} for some in (have, lack))
    if named | others == {"unnamed"}:
        return ""
    return f" (release {', '.join(sorted(named))}; not {', '.join(sorted(others))})"


def read_left_out(connection: Connection, now: datetime) -> list[LeftOut]:
    """Return the handlers of live processes that get nothing, as the newest list lacks them."""
    every = _processes(connection, now)
    found: dict[str, LeftOut] = {}
    for each in every:
        newest = every[0]
        since = max(newest.live_since, each.live_since)
        if now - since < LEFT_OUT_AFTER:
            continue
        for name in sorted(each.handlers.names - newest.handlers.stored_names):
            releases = _releases([each], [newest])
            text = f"{name} gets no deliveries: the newest list of handlers lacks it{releases}"
            found.setdefault(name, LeftOut(name, since, text))
    return list(found.values())


def read_not_called(connection: Connection, now: datetime) -> list[LeftOut]:
    """Return the handlers that get no deliveries: no live process has them, or the newest list lacks them."""
    return [*read_gone(connection, now), *read_left_out(connection, now)]


def read_lacking(connection: Connection, since: datetime) -> list[LackingHandler]:
    """Return the handlers that lack deliveries which others planned since then, "" for none by name."""
    query = select(handler_list.c.missed, handler_list.c.missed_names, handler_list.c.missed_at)
    query = query.where(handler_list.c.missed > 0, handler_list.c.missed_at > since)
    found: dict[str, LackingHandler] = {}
    for number, names, at in connection.execute(query.order_by(handler_list.c.id)):
        for name, lacking in (json.loads(names) or {"": number}).items():
            before = found.get(name, LackingHandler(name, 0, at))
            found[name] = LackingHandler(name, before.number + lacking, max(before.at, at))
    return list(found.values())


def read_gone(connection: Connection, now: datetime) -> list[LeftOut]:
    """Return the handlers of 24 hours that no live process has, where deliveries came that got no other.

    A handler that was renamed or divided has others of its types: these get the deliveries.
    """
    live = [one.handlers for one in read_live_lists(connection, now)]
    if not live:
        return []
    recent = select(handler_list.c.content).where(handler_list.c.planned_at > now - GONE_FOR)
    rows = connection.execute(recent.order_by(handler_list.c.id.desc()).limit(_LISTS_READ))
    types: dict[str, set[str]] = {}
    for (content,) in rows:
        former = HandlerList.parse(content)
        for name in former.names.difference(*(one.stored_names for one in live)):
            its = {each for each, named in former.by_type.items() if name in named}
            types.setdefault(name, its - {UNKNOWN_TYPES})
    found = []
    for name in sorted(types):
        unhandled: dict[str, Sequence[datetime]] = {}
        for event_type in sorted(types[name]):
            has_another = any(one.of_type(event_type) for one in live)
            if not has_another and (times := _unhandled(connection, event_type)):
                unhandled[event_type] = times
        if unhandled:
            number = sum(map(len, unhandled.values()))
            deliveries = f"{counted(number, 'delivery')} of {', '.join(unhandled)}"
            text = f"no process has {name} any more, and {deliveries} got no handler"
            found.append(LeftOut(name, max(each[0] for each in unhandled.values()), text))
    return found


def _unhandled(connection: Connection, event_type: str) -> Sequence[datetime]:
    """Return when the deliveries of a type came without a run, since the last that has one; newest first."""
    columns = delivery.c.id, delivery.c.received_at, delivery.c.state
    newest = select(*columns).where(delivery.c.event_type == event_type)
    its = newest.order_by(delivery.c.id.desc()).limit(_DELIVERIES_READ).subquery().c
    has_run = select(run.c.id).where(run.c.delivery_id == its.id).exists()
    rows = connection.execute(select(its.received_at, its.state, has_run).order_by(its.id.desc()))
    since = itertools.takewhile(lambda row: not row[2], rows)
    return [received_at for received_at, state, _ in since if state == DeliveryState.DONE.value]
