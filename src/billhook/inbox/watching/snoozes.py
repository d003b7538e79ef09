"""Issues that an operator has snoozed: when they come back, and what of the figures is theirs.

A snooze ends at its time, or when the issue has happened a number of times since. It is then as new: open,
and sent once more. Meanwhile no message is sent of it, and it is no reason for a warning; what is critical is
shown all the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, exists, func, or_, select

from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.handler_names import has_name_of
from billhook.inbox.tables.schema import DEAD_RUN, FAILED, HAS_FINGERPRINT, delivery, failure, issue, run
from billhook.inbox.tables.sql import in_values
from billhook.inbox.tables.states import DeliveryState
from billhook.inbox.watching.issues import IssueState, quarantined_by_issue
from billhook.inbox.watching.occurrences import OF_BUGS, IssueKind

COUNTED = (*OF_BUGS, IssueKind.DEAD, IssueKind.QUARANTINE)
"""The kinds that happen a number of times; of the others it is known only that they hold."""
MOST_MORE = 1_000
"""The most occurrences until which an issue may be snoozed: it is as many as are looked at."""
_IS_SNOOZED = issue.c.state == IssueState.SNOOZED.value


def snooze_ended(connection: Connection, row: Any, now: datetime) -> bool:
    """Return whether the row of an issue is snoozed, and its time or its number is over."""
    if row.state != IssueState.SNOOZED:
        return False
    if row.snoozed_until <= now:
        return True
    return row.snoozed_more is not None and _happened_since(connection, row, row.snoozed_more)


def _happened_since(connection: Connection, row: Any, times: int) -> bool:
    """Return whether an issue happened that many times since it was snoozed; reads only the last one."""
    if row.kind == IssueKind.QUARANTINE:
        found = [each.received_at for each in quarantined_by_issue(connection)[row.fingerprint]]
        return len(found) >= times and bool(found[times - 1] > row.changed_at)
    if row.kind == IssueKind.DEAD:
        at = run.c.finished_at
        dead = select(at).where(DEAD_RUN, has_name_of(run.c.handler, row.subject), at.is_not(None))
        last = dead.order_by(at.desc())
    else:
        of_it = select(failure.c.failed_at).where(failure.c.fingerprint == row.fingerprint)
        last = of_it.order_by(failure.c.id.desc())
    nth: datetime | None = connection.execute(last.offset(times - 1).limit(1)).scalar()
    return nth is not None and nth > row.changed_at


def snoozed_ids(inbox: Inbox) -> set[str]:
    """Return the ids of the issues that are snoozed."""
    return {row.fingerprint for row in inbox.fetch(select(issue.c.fingerprint).where(_IS_SNOOZED))}


def count_dead_of_snoozed(inbox: Inbox, limit: int) -> int:
    """Count the dead deliveries of which each dead run is of a snoozed issue, up to `limit`."""
    query = select(issue.c.fingerprint, issue.c.kind, issue.c.subject).where(_IS_SNOOZED)
    rows = inbox.fetch(query)
    ids = [row.fingerprint for row in rows if row.kind in OF_BUGS]
    handlers = [row.subject for row in rows if row.kind == IssueKind.DEAD]
    if not ids and not handlers:
        return 0
    of_bug = exists().where(failure.c.run_id == run.c.id, in_values(failure.c.fingerprint, ids))
    without = ~exists().where(failure.c.run_id == run.c.id, HAS_FINGERPRINT)
    its = or_(of_bug, and_(has_name_of(run.c.handler, *handlers), without)) if handlers else of_bug
    other = exists().where(run.c.delivery_id == delivery.c.id, DEAD_RUN, ~its)
    is_dead = (FAILED, delivery.c.state == DeliveryState.DEAD.value)
    counted = select(delivery.c.id).where(*is_dead, ~other).limit(limit).subquery()
    return int(inbox.fetch(select(func.count()).select_from(counted))[0][0])


def count_quarantined_of_snoozed(inbox: Inbox) -> int:
    """Count the quarantined deliveries of snoozed issues, among the newest."""
    query = select(issue.c.fingerprint).where(_IS_SNOOZED, issue.c.kind == IssueKind.QUARANTINE.value)
    with inbox.database.read() as connection:
        ids = connection.execute(query).scalars().all()
        found = quarantined_by_issue(connection) if ids else {}
    return sum(len(found[each]) for each in ids if each in found)
