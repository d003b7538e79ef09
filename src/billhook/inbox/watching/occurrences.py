"""What is wrong now, as far as it is stored: failures by their bug, dead runs, quarantine, workers, silence.

Each kind is read by an index, however many deliveries there are; silence and refusals are read from the
figures, which costs some milliseconds more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Text, and_, bindparam, column, select

from billhook.basics.printable import error_title, without_ids
from billhook.inbox.counting.counts import hour_of
from billhook.inbox.inbox import Inbox
from billhook.inbox.running.due import next_times
from billhook.inbox.running.leases import LOST
from billhook.inbox.running.lost_workers import (
    REPORTED_FOR,
    read_lost_beside,
    read_lost_workers,
    while_running,
)
from billhook.inbox.running.workers import expects_worker, worker_times
from billhook.inbox.tables.handler_names import present_names
from billhook.inbox.tables.records import fingerprint
from billhook.inbox.tables.schema import DEAD_RUN, FAILED, HAS_FINGERPRINT, delivery, failure, issue, run
from billhook.inbox.tables.sql import TextOfTables, UtcDateTime, distinct_values, in_values, words
from billhook.inbox.tables.states import DeliveryState
from billhook.inbox.tables.stored_errors import parse_error
from billhook.inbox.watching.backlog_pace import (
    OLD,
    first_untried_at,
    grows,
    read_not_stored,
    read_slow_handlers,
)
from billhook.inbox.watching.disagreements import MISSED_FOR, read_lacking, read_not_called
from billhook.inbox.watching.overview import read_refused_since, read_state
from billhook.inbox.watching.silence import read_silent_types

_DEAD_READ = 500
"""The newest dead runs of a handler of which it is asked whether a failure is stored."""
MOST = 1_000
"""Issues at most, and the newest quarantined deliveries, that are looked at."""
WORKER_GONE_AFTER = timedelta(seconds=90)
REFUSED_LIMIT = 50
"""In this hour and the one before it; with fewer, refusals are no issue."""
NONE_ACCEPTED_FOR = timedelta(minutes=15)
"""Refusals are an issue when they go on for so long after the last authentic delivery of their source."""
HOUR = timedelta(hours=1)
_LITTLE_BYTES, _TOO_LITTLE_BYTES = 1024**3, 100 * 1024**2


class IssueKind(StrEnum):
    """What an issue is about."""

    FAILURE = "failure"  # attempts of a handler fail by one bug
    KILLER = "killer"  # workers die while a handler runs, alone
    DEAD = "dead"  # runs of a handler are dead, and no failure of theirs is stored
    QUARANTINE = "quarantine"  # deliveries cannot be read, for one reason
    WORKER = "worker"  # no worker has been seen for some time
    CRASH_LOOP = "crash-loop"  # workers die one after another
    LOST_WORKER = "lost-worker"  # a worker died, and others are alive
    NOT_STORED = "not-stored"  # deliveries were answered 503
    BACKLOG = "backlog"  # more deliveries come than are handled
    SLOW = "slow"  # a handler takes much longer than it did
    MISSED = "missed"  # deliveries were planned without the newest handlers
    LEFT_OUT = "left-out"  # a handler gets nothing, as the newest list or each lacks it
    SILENCE = "silence"  # deliveries of a type have stopped
    DISK = "disk-full"  # little is free beside a SQLite inbox
    REFUSED = "refused"  # signed deliveries are refused; never notified, for a stranger can cause it


OF_BUGS = (IssueKind.FAILURE, IssueKind.KILLER)
"""The kinds of which each occurrence is a failure of an attempt, with the issue's fingerprint."""
OF_FIGURES = (
    *(IssueKind.SILENCE, IssueKind.REFUSED, IssueKind.NOT_STORED),
    *(IssueKind.BACKLOG, IssueKind.SLOW, IssueKind.DISK),
)
"""The kinds that are read from the figures."""
OF_WORKERS = (IssueKind.WORKER, IssueKind.CRASH_LOOP, IssueKind.LOST_WORKER)
"""The kinds that are read from the table of workers."""
OF_LISTS = (IssueKind.MISSED, IssueKind.LEFT_OUT)
"""The kinds that are read from the lists of handlers of live processes."""
OF_STATE = (*OF_WORKERS, *OF_FIGURES, *OF_LISTS)
"""The kinds that concern no delivery alone: each is a condition that holds or does not."""
_STOPS_HANDLING = (IssueKind.KILLER, IssueKind.CRASH_LOOP, IssueKind.WORKER)


class Occurrence(NamedTuple):
    """Something that is wrong now, and when it happened last."""

    fingerprint: str
    kind: IssueKind
    subject: str
    title: str
    place: str | None
    last_at: datetime


_NEWEST = TextOfTables(f"""
    WITH RECURSIVE {distinct_values("own", "fingerprint", "failure", words(HAS_FINGERPRINT))}
    SELECT (
        SELECT id FROM $failure WHERE failure.fingerprint = own.fingerprint ORDER BY id DESC LIMIT 1
    ) AS id FROM own WHERE fingerprint IS NOT NULL
    LIMIT :most
""").columns(column("id", BigInteger))  # noqa: S608 - constants
_FAILURES = select(
    failure.c.fingerprint, run.c.handler, failure.c.error, failure.c.place, failure.c.failed_at
).join(run, run.c.id == failure.c.run_id)
_DEAD = TextOfTables(f"""
    WITH RECURSIVE {distinct_values("own", "handler", "run", words(DEAD_RUN))}
    SELECT handler, (
        SELECT finished_at FROM (
            SELECT id, finished_at FROM $run WHERE {words(DEAD_RUN)} AND run.handler = own.handler
            AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT :newest
        ) AS dead WHERE NOT EXISTS (
            SELECT 1 FROM $failure WHERE failure.run_id = dead.id AND failure.fingerprint IS NOT NULL
        ) ORDER BY finished_at DESC LIMIT 1
    ) AS finished_at FROM own WHERE handler IS NOT NULL
    LIMIT :most
""").columns(column("handler", Text), column("finished_at", UtcDateTime))  # noqa: S608 - constants
_IS_QUARANTINED = and_(FAILED, delivery.c.state == DeliveryState.QUARANTINED.value)
QUARANTINED = (
    select(delivery.c.id, delivery.c.event_type, delivery.c.error, delivery.c.received_at)
    .where(_IS_QUARANTINED)
    .order_by(delivery.c.id.desc())
    .limit(bindparam("most"))
)


_BACKLOG_IS_OPEN = select(issue.c.fingerprint).where(
    issue.c.fingerprint == fingerprint("", IssueKind.BACKLOG),
    in_values(
        issue.c.state, ["open", "acknowledged", "snoozed"]
    ),  # of billhook.inbox.watching.issues, which imports this module
)


def occurrences(
    connection: Connection, now: datetime, figures: Mapping[str, Occurrence] = MappingProxyType({})
) -> dict[str, Occurrence]:
    """Return all that is wrong, by fingerprint: by what is stored in rows, and by these figures."""
    most = {"most": MOST}
    newest = list(connection.execute(_NEWEST, most).scalars())
    renamed = present_names(connection)
    found = [
        _of_failure(connection, row, renamed.get(row.handler, row.handler))
        for row in connection.execute(_FAILURES.where(in_values(failure.c.id, newest)))
    ]
    dead: dict[str, datetime] = {}
    for handler, finished_at in connection.execute(_DEAD, {**most, "newest": _DEAD_READ}):
        if finished_at is not None:
            name = renamed.get(handler, handler)
            dead[name] = max(finished_at, dead.get(name, finished_at))
    found += [_occurrence(IssueKind.DEAD, name, "runs are dead", at) for name, at in dead.items()]
    for row in reversed(connection.execute(QUARANTINED, most).all()):  # the newest of a reason last
        reason = without_ids(quarantine_reason(row.error))
        its_id = quarantine_id(row)
        found.append(Occurrence(its_id, IssueKind.QUARANTINE, row.event_type, reason, None, row.received_at))
    known = any(each.kind is IssueKind.KILLER and each.last_at > now - REPORTED_FOR for each in found)
    found += _of_lists(connection, now)
    all_found = {each.fingerprint: each for each in found}
    of_workers = [*_of_workers(connection, now)]
    # Where no worker lives for long, that is why deliveries wait.
    stopped = any(each.kind in _STOPS_HANDLING for each in of_workers)
    of_figures = [each for each in figures.values() if not (stopped and each.kind is IssueKind.BACKLOG)]
    all_found |= {each.fingerprint: each for each in of_figures}
    for each in of_workers:
        before = all_found.get(each.fingerprint)
        if before is not None:  # a killer of which runs were lost, too
            each = each._replace(place=before.place, last_at=max(before.last_at, each.last_at))
        # That a known handler ends the workers explains all but that another one does.
        if not known or each.kind is IssueKind.KILLER:
            all_found[each.fingerprint] = each
    return all_found


def read_occurrences(inbox: Inbox, now: datetime) -> Collection[Occurrence]:
    """Return all that is wrong, by rows and figures."""
    figures = occurrences_in_figures(inbox, now)
    with inbox.database.read() as connection:
        return occurrences(connection, now, figures).values()


def _occurrence(kind: IssueKind, subject: str, title: str, last_at: datetime) -> Occurrence:
    return Occurrence(fingerprint(subject, kind), kind, subject, title, None, last_at)


def _of_failure(connection: Connection, row: Any, handler: str) -> Occurrence:
    kind, title, place = IssueKind.FAILURE, error_title(row.error), row.place
    if row.fingerprint in (fingerprint(row.handler, LOST), fingerprint(handler, LOST)):
        kind, title = IssueKind.KILLER, f"workers die {while_running([handler], '{} runs')}"
        beside = read_lost_beside(connection, row.handler)
        place = f"lost beside it: {', '.join(beside)}" if beside else None
    return Occurrence(row.fingerprint, kind, handler, title, place, row.failed_at)


def _of_workers(connection: Connection, now: datetime) -> Iterator[Occurrence]:
    """Yield the gravest that is wrong with the workers, where no killer is known."""
    seen_at, lost = workers_gone_since(connection, now), read_lost_workers(connection, now)
    if lost is not None and lost.killer is not None:
        its_id = fingerprint(lost.killer, LOST)
        yield Occurrence(its_id, IssueKind.KILLER, lost.killer, lost.text, None, lost.last_at)
    elif lost is not None and lost.is_loop:
        yield _occurrence(IssueKind.CRASH_LOOP, "", lost.text, lost.last_at)
    elif seen_at is not None:
        yield _occurrence(IssueKind.WORKER, "", "no worker is alive", seen_at)
    elif lost is not None:
        yield _occurrence(IssueKind.LOST_WORKER, "", lost.text, lost.last_at)


def _of_lists(connection: Connection, now: datetime) -> Iterator[Occurrence]:
    """Yield which handlers lack deliveries that others planned, and which get none."""
    for missed in read_lacking(connection, now - MISSED_FOR):
        which = "it" if missed.name else "the newest handlers"
        text = f"deliveries were read without {which}: no process that has {which} read any for 60 s"
        title = f"{missed.name}: {text}" if missed.name else text
        yield _occurrence(IssueKind.MISSED, missed.name, title, missed.at)
    for one in read_not_called(connection, now):
        yield _occurrence(IssueKind.LEFT_OUT, one.name, one.text, one.since)


def workers_gone_since(connection: Connection, now: datetime) -> datetime | None:
    """Return since when a worker is missed: when the last was seen, if none is alive; None if none is missed.

    Where each was stopped in order, it is missed by the first delivery that waits for it for ten minutes.
    """
    seen_at, stopped_at = worker_times(connection)
    if seen_at is not None:
        return seen_at if seen_at < now - WORKER_GONE_AFTER else None
    if stopped_at is None or now - stopped_at <= OLD or not expects_worker(connection):
        return None
    came_at = first_untried_at(connection, next_times(connection, {}).due, now)
    return max(stopped_at, came_at) if came_at is not None and now - came_at > OLD else None


def quarantine_reason(error: str | None) -> str:
    """Return why a delivery is quarantined, by its stored error."""
    return str(parse_error(error or "quarantined")["error"])


def quarantine_id(row: Any) -> str:
    """Return the fingerprint of a quarantined delivery's reason."""
    return fingerprint(row.event_type, f"{IssueKind.QUARANTINE}\n{without_ids(quarantine_reason(row.error))}")


def occurrences_in_figures(inbox: Inbox, now: datetime) -> dict[str, Occurrence]:
    """Return what is wrong by the figures: silence, refusals, what was not stored, what is too slow."""
    refused = [
        one
        for one in read_refused_since(inbox, hour_of(now) - HOUR, _OF_SIGNED)
        if one.authentic_at is None or one.last_at - one.authentic_at >= NONE_ACCEPTED_FOR
    ]
    # Who changes a secret stops no deliveries: they come, and are refused.
    are_refused = any(one.number > REFUSED_LIMIT for one in refused)
    cause = "; signed deliveries are refused" if are_refused else ""
    found = [
        _occurrence(IssueKind.SILENCE, one.event_type, f"{one.text}{cause}", one.last_at)
        for one in read_silent_types(inbox, now)
    ]
    if are_refused:
        last_at = max(hour_of(one.last_at) for one in refused)
        found.append(_occurrence(IssueKind.REFUSED, "", "signed deliveries are refused", last_at))
    not_stored = read_not_stored(inbox, now)
    if not_stored is not None:
        found.append(_occurrence(IssueKind.NOT_STORED, "", "deliveries were answered 503", not_stored[1]))
    is_open = bool(inbox.fetch(_BACKLOG_IS_OPEN))
    if grows(inbox, read_state(inbox, now), now, is_open=is_open):
        found.append(_occurrence(IssueKind.BACKLOG, "", "more deliveries come than are handled", now))
    found += [_occurrence(IssueKind.SLOW, one.name, one.text, now) for one in read_slow_handlers(inbox, now)]
    if space := little_space(inbox, critical=True):
        found.append(_occurrence(IssueKind.DISK, "", space, now))
    return {each.fingerprint: each for each in found}


def little_space(inbox: Inbox, *, critical: bool) -> str | None:
    """Return what is free beside a SQLite inbox, if that is little, or is critical."""
    space = inbox.database.free_bytes()
    if space is None:
        return None
    free, used = space
    if free < _TOO_LITTLE_BYTES if critical else _TOO_LITTLE_BYTES <= free < max(_LITTLE_BYTES, used):
        return f"{free // 1024**2} MiB are free beside the inbox of {used // 1024**2} MiB"
    return None


_OF_SIGNED = ("mismatch", "stale", "future")
"""The causes of refusals that a wrong secret or clock has. A stranger can send such requests too, but cannot
stop genuine deliveries: so these are an issue only while none of the source is accepted."""
