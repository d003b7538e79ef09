"""Count the threads of billhook's own that an error has ended, for `billhook status` and doctor.

They are rows of the hourly counts of inbox.counting.counts: with a thread as handler, and its error as cause.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from billhook.basics.printable import printable, without_ids
from billhook.inbox.counting.counts import NO_DURATION, CountKey, hour_of
from billhook.inbox.tables.schema import hourly_count

_CRASH = "crash"


@dataclass(frozen=True, slots=True)
class ThreadCrashes:
    """How often errors have ended a thread, in all processes, and which was the last."""

    thread: str
    number: int
    last_at: datetime
    last_error: str
    """Without what differs between two customers."""


def crash_key(thread: str, error: Exception, at: datetime) -> CountKey:
    """Return what counts a crash; without what may name a customer, as counts are not erased."""
    cause = ": ".join(filter(None, (type(error).__name__, without_ids(str(error)))))
    return CountKey(hour_of(at), "", "", thread, _CRASH, printable(cause), NO_DURATION)


def read_crashes(connection: Connection, since: datetime) -> list[ThreadCrashes]:
    """Return the threads that have crashed since the beginning of an hour, by name."""
    column = hourly_count.c
    query = select(column.handler, column.cause, column.number, column.last_at)
    query = query.where(column.hour >= since, column.what == _CRASH).order_by(column.last_at)
    numbers, last = Counter[str](), {}
    for thread, error, number, last_at in connection.execute(query):
        numbers[thread] += number
        last[thread] = (last_at, error)
    return [ThreadCrashes(thread, numbers[thread], *last[thread]) for thread in sorted(last)]
