"""Note the queues of a broker that no worker consumes, for `billhook status` and doctor.

They are rows of the hourly counts of inbox.counting.counts, with a queue as handler: a sweeper of Celery's
notes one every 20 s while it is so.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from billhook.inbox.counting.counts import NO_DURATION, CountKey, hour_of
from billhook.inbox.tables.schema import hourly_count

_UNCONSUMED = "unconsumed"
_NOTED_FOR = timedelta(seconds=60)
"""For how long a note holds: the next two, and the seconds until each of them is written, may be missing."""


def unconsumed_key(queue: str, at: datetime) -> CountKey:
    """Return what a note is counted by."""
    return CountKey(hour_of(at), "", "", queue, _UNCONSUMED, "", NO_DURATION)


def read_unconsumed(connection: Connection, now: datetime) -> list[str]:
    """Return the queues that no worker consumes now, by name."""
    column, since = hourly_count.c, now - _NOTED_FOR
    noted = [column.what == _UNCONSUMED, column.hour >= hour_of(since), column.last_at >= since]
    query = select(column.handler).distinct().where(*noted).order_by(column.handler)
    return list(connection.execute(query).scalars())
