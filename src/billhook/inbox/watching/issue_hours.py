"""How often issues happened by the hour, for their charts: by failures that are stored, and deleted ones."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Text, cast, func, select

from billhook.inbox.counting.counts import OF_ISSUE, hour_of
from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.dialect import dialect_of
from billhook.inbox.tables.schema import failure, hourly_count, issue
from billhook.inbox.tables.sql import in_values
from billhook.inbox.watching.issues import Issue
from billhook.inbox.watching.occurrences import HOUR, OF_BUGS

_HOURS = 24
_COUNTED_BY_HOUR = 10_000
_READ_BACK = 100_000
"""The newest failures among which the first of a time is looked for: they have no index by time."""


def by_hour(inbox: Inbox, issues: Collection[Issue], now: datetime) -> dict[str, list[int]]:
    """Count the failures of issues in each of the last 24 hours, oldest first, by the id of the issue.

    Counted are the newest 10,000 stored failures of each issue, and deleted ones; other kinds have none.
    """
    ids = [one.id for one in issues if one.kind in OF_BUGS]
    first = hour_of(now) - (_HOURS - 1) * HOUR
    deleted = select(hourly_count.c.cause, hourly_count.c.hour, hourly_count.c.number).where(
        hourly_count.c.what == OF_ISSUE, hourly_count.c.hour >= first, in_values(hourly_count.c.cause, ids)
    )
    with inbox.database.read() as connection:
        found = [tuple(row) for row in connection.execute(deleted)]
        for its_id, stored in connection.execute(_stored_by_hour(connection, ids, first)):
            by_text = json.loads(stored or "{}")
            found += [
                (its_id, datetime.fromisoformat(f"{hour}:00+00:00"), number)
                for hour, number in by_text.items()
            ]
    numbers = {each: [0] * _HOURS for each in ids}
    for its_id, hour, number in found:
        place = (hour - first) // HOUR
        if place < _HOURS:  # the clock of another machine may be ahead
            numbers[its_id][place] += number
    return numbers


def _stored_by_hour(connection: Connection, ids: Collection[str], since: datetime) -> Any:
    """Select an object of hours with numbers for each issue, by the index of its failures.

    Each has a subquery with a limit: for a join PostgreSQL would read all failures if many are of one issue.
    """
    latest = select(failure.c.id, failure.c.failed_at).order_by(failure.c.id.desc()).limit(_READ_BACK)
    of_all = latest.subquery("latest").c
    before = select(of_all.id).where(of_all.failed_at < since).limit(1).scalar_subquery()
    newest = select(failure.c.failed_at).where(
        failure.c.fingerprint == issue.c.fingerprint, failure.c.id > func.coalesce(before, 0)
    )
    newest = newest.order_by(failure.c.id.desc()).limit(_COUNTED_BY_HOUR).correlate(issue)
    at = newest.subquery("newest").c.failed_at
    own = dialect_of(connection)
    grouped = (
        select(own.hour_text(at).label("hour"), func.count().label("number"))
        .where(at >= since)
        .group_by("hour")
    )
    by = grouped.correlate(issue).subquery("by_hour").c
    numbers = select(cast(own.json_object(by.hour, by.number), Text)).correlate(issue).scalar_subquery()
    return select(issue.c.fingerprint, numbers).where(in_values(issue.c.fingerprint, ids))
