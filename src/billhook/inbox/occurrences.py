"""What is wrong now, as far as it is stored: failures by their bug, dead runs, quarantine, workers, silence.

Each kind is read by an index, however many deliveries there are; silence and refusals are read from the
figures, which costs some milliseconds more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Text, and_, bindparam, column, select

from billhook.inbox.counts import Counted, hour_of
from billhook.inbox.inbox import Inbox
from billhook.inbox.overview import read_overview, read_periods, read_refused_since
from billhook.inbox.records import DeliveryState, fingerprint
from billhook.inbox.schema import delivery, failure, run
from billhook.inbox.sql import TextOfTables, UtcDateTime, distinct_values, in_states, in_values
from billhook.inbox.workers import worker_seen_at
from billhook.printable import without_ids

MOST = 1_000
"""Issues at most, and the newest quarantined deliveries, that are looked at."""
WORKER_GONE_AFTER = timedelta(seconds=90)
REFUSED_LIMIT = 50
"""In this hour and the one before it; with fewer, refusals are no issue."""
NONE_ACCEPTED_FOR = timedelta(minutes=15)
"""Refusals are an issue when they go on for so long after the last authentic delivery of their source."""
SILENT_AFTER = 5.0
"""A type is silent when this many deliveries were expected since its last one: one time in 150, by chance."""
_DAYS = 30
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


class IssueKind(StrEnum):
    """What an issue is about."""

    FAILURE = "failure"  # attempts of a handler fail by one bug
    DEAD = "dead"  # runs of a handler are dead
    QUARANTINE = "quarantine"  # deliveries cannot be read, for one reason
    WORKER = "worker"  # no worker has been seen for some time
    SILENCE = "silence"  # deliveries of a type have stopped
    REFUSED = "refused"  # signed deliveries are refused; never notified, for a stranger can cause it

    @property
    def runbook(self) -> str:
        """The section of `billhook runbook` that says what to do."""
        return _SECTIONS[self]


_SECTIONS = {
    IssueKind.FAILURE: "runs-are-dead",
    IssueKind.DEAD: "runs-are-dead",
    IssueKind.QUARANTINE: "deliveries-are-quarantined",
    IssueKind.WORKER: "no-worker-is-alive",
    IssueKind.SILENCE: "the-service-is-silent",
    IssueKind.REFUSED: "signed-deliveries-are-refused",
}


class Occurrence(NamedTuple):
    """Something that is wrong now, and when it happened last."""

    fingerprint: str
    kind: IssueKind
    subject: str
    title: str
    place: str | None
    last_at: datetime


_NEWEST = TextOfTables(f"""
    WITH RECURSIVE {distinct_values("own", "fingerprint", "failure", "fingerprint IS NOT NULL")}
    SELECT (
        SELECT id FROM $failure WHERE failure.fingerprint = own.fingerprint ORDER BY id DESC LIMIT 1
    ) AS id FROM own WHERE fingerprint IS NOT NULL
    LIMIT :most
""").columns(column("id", BigInteger))  # noqa: S608 - constants
_FAILURES = select(
    failure.c.fingerprint, run.c.handler, failure.c.error, failure.c.place, failure.c.failed_at
).join(run, run.c.id == failure.c.run_id)
_DEAD = TextOfTables(f"""
    WITH RECURSIVE {distinct_values("own", "handler", "run", "state IN ('dead')")}
    SELECT handler, (
        SELECT finished_at FROM $run WHERE state IN ('dead') AND run.handler = own.handler
        AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 1
    ) FROM own WHERE handler IS NOT NULL
    LIMIT :most
""").columns(column("handler", Text), column("finished_at", UtcDateTime))  # noqa: S608 - constants
_ISQUARANTINED = and_(
    in_states(delivery.c.state, DeliveryState.DEAD, DeliveryState.QUARANTINED),  # by these words, its index
    delivery.c.state == DeliveryState.QUARANTINED.value,
)
QUARANTINED = (
    select(delivery.c.id, delivery.c.event_type, delivery.c.error, delivery.c.received_at)
    .where(_ISQUARANTINED)
    .order_by(delivery.c.id.desc())
    .limit(bindparam("most"))
)


def occurrences(connection: Connection, now: datetime) -> dict[str, Occurrence]:
    """Return all that is wrong, by fingerprint."""
    most = {"most": MOST}
    newest = list(connection.execute(_NEWEST, most).scalars())
    found = [
        Occurrence(row[0], IssueKind.FAILURE, row.handler, without_ids(row.error), row.place, row.failed_at)
        for row in connection.execute(_FAILURES.where(in_values(failure.c.id, newest)))
    ]
    for handler, finished_at in connection.execute(_DEAD, most):
        its_id = fingerprint(handler, IssueKind.DEAD)
        found.append(Occurrence(its_id, IssueKind.DEAD, handler, "runs are dead", None, finished_at or now))
    for row in reversed(connection.execute(QUARANTINED, most).all()):  # the newest of a reason last
        reason = without_ids(_reason(row.error))
        its_id = quarantine_id(row)
        found.append(Occurrence(its_id, IssueKind.QUARANTINE, row.event_type, reason, None, row.received_at))
    seen_at = workers_gone_since(connection, now)
    if seen_at is not None:
        its_id = fingerprint("", IssueKind.WORKER)
        found.append(Occurrence(its_id, IssueKind.WORKER, "", "no worker is alive", None, seen_at))
    return {each.fingerprint: each for each in found}


def workers_gone_since(connection: Connection, now: datetime) -> datetime | None:
    """Return when the last worker was seen, if none is alive; None also if each was stopped in order."""
    seen_at = worker_seen_at(connection)
    return seen_at if seen_at is not None and seen_at < now - WORKER_GONE_AFTER else None


def _reason(error: str | None) -> str:
    try:
        return str(json.loads(error or "")["error"])
    except (ValueError, KeyError, TypeError):
        return error or "quarantined"


def quarantine_id(row: Any) -> str:
    """Return the fingerprint of a quarantined delivery's reason."""
    return fingerprint(row.event_type, f"{IssueKind.QUARANTINE}\n{without_ids(_reason(row.error))}")


def occurrences_in_figures(inbox: Inbox, now: datetime) -> dict[str, Occurrence]:
    """Return the types of which no delivery comes any more, and refusals if there are too many."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    midnight = hour.replace(hour=0)
    days = read_periods(inbox, midnight - (_DAYS - 1) * DAY, midnight + DAY, DAY, (Counted.ACCEPTED,))
    found = []
    for each in read_overview(inbox, now).types:
        by_day = [day.by_type[each.event_type] for day in days]
        if each.last_at is not None and is_silent(by_day, each.last_at, now):
            its_id = fingerprint(each.event_type, IssueKind.SILENCE)
            title = f"{each.event_type} has stopped coming"
            found.append(Occurrence(its_id, IssueKind.SILENCE, each.event_type, title, None, each.last_at))
    refused = [
        one
        for one in read_refused_since(inbox, hour - HOUR, _OF_SIGNED)
        if one.authentic_at is None or one.last_at - one.authentic_at >= NONE_ACCEPTED_FOR
    ]
    if any(one.number > REFUSED_LIMIT for one in refused):
        its_id = fingerprint("", IssueKind.REFUSED)
        last_at = max(hour_of(one.last_at) for one in refused)
        title = "signed deliveries are refused"
        found.append(Occurrence(its_id, IssueKind.REFUSED, "", title, None, last_at))
    return {each.fingerprint: each for each in found}


_OF_SIGNED = ("mismatch", "stale", "future")
"""The causes of refusals that a wrong secret or clock has. A stranger can send such requests too, but cannot
stop genuine deliveries: so these are an issue only while none of the source is accepted."""


def is_silent(by_day: Sequence[int], last_at: datetime | None, now: datetime) -> bool:
    """Return whether a type has stopped arriving: at its own rate, several were expected since its last one.

    `by_day` are the numbers of the last days, ending today. The rate is that of the days from the first
    delivery to the last.
    """
    if last_at is None or not any(by_day):
        return False
    first = next(day for day, number in enumerate(by_day) if number)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    began_at = midnight - (len(by_day) - 1 - first) * DAY
    seconds = max((last_at - began_at).total_seconds(), DAY.total_seconds())
    return sum(by_day) / seconds * (now - last_at).total_seconds() >= SILENT_AFTER
