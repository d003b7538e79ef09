"""Compare the rows of issues with what is wrong, and open, reopen and resolve them.

    it happens, and has no row                                     open
    it happens again after it was resolved                         open again
    snoozed, its time or its number is over, and it is not         open again
    open or acknowledged, and nothing of it for an hour            resolved, by billhook
    snoozed for a time that is over, and nothing of it             resolved, by billhook

"Nothing of it" means that no run is dead or retried because of it, however long ago it failed.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, or_, select, update

from billhook.clock import short_time
from billhook.inbox.counting.counts import OF_ISSUE
from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.dialect import dialect_of
from billhook.inbox.tables.locks import lock_counts
from billhook.inbox.tables.schema import hourly_count, issue
from billhook.inbox.tables.sql import in_values
from billhook.inbox.watching.issues import Issue, IssueState, Replayable, unfinished_runs
from billhook.inbox.watching.occurrences import (
    MOST,
    OF_BUGS,
    OF_FIGURES,
    QUARANTINED,
    IssueKind,
    Occurrence,
    little_space,
    occurrences,
    occurrences_in_figures,
)
from billhook.inbox.watching.snoozes import snooze_ended

QUIET = timedelta(hours=1)
"""How long nothing must have happened before an issue counts as resolved by itself."""
KEPT_FOR = timedelta(days=30)
"""How long the row of a resolved issue is kept that happens no more."""
_NO_ONE = {"who": None, "why": None, "snoozed_until": None, "snoozed_more": None}


def update_issues(inbox: Inbox, now: datetime, *, with_figures: bool = True) -> int:
    """Open, reopen and resolve issues by what is stored; returns how many changed. Mostly it only reads.

    Without figures, silence and refusals stay as they are.
    """
    figures = occurrences_in_figures(inbox, now) if with_figures else {}
    with inbox.database.read() as connection:
        found = occurrences(connection, now, figures)
        rows = {row.fingerprint: row for row in connection.execute(select(issue))}
        examined = [row for row in rows.values() if with_figures or row.kind not in OF_FIGURES]
        # What another occurrence explains opens no issue, and ends none.
        happening = {**figures, **found}
        over = [row for row in examined if _is_over(inbox, connection, row, happening, now)]
        ended = {row.fingerprint for row in over}
        back = {
            row.fingerprint
            for row in rows.values()
            if row.fingerprint not in ended and snooze_ended(connection, row, now)
        }
        opened = [each for each in found.values() if _opens(each, rows.get(each.fingerprint), back)]
    if not (opened or over):
        return 0
    with inbox.database.write() as connection:
        # So that of two processes, and of one that erases or prunes, none has a row that the other waits for.
        lock_counts(connection)
        # Read again: the text of a failure that was erased meanwhile must not be stored.
        latest = occurrences(connection, now, figures) if opened else {}
        for its_id in [each.fingerprint for each in opened if each.fingerprint in latest]:
            _open(connection, latest[its_id], rows.get(its_id), now)
        resolving = update(issue).where(
            in_values(issue.c.fingerprint, [row.fingerprint for row in over]),
            or_(
                in_values(issue.c.state, [IssueState.OPEN.value, IssueState.ACKNOWLEDGED.value]),
                issue.c.snoozed_until <= now,
            ),
        )
        resolved = {"state": IssueState.RESOLVED.value, "changed_at": now, **_NO_ONE}
        connection.execute(resolving.values(resolved))
        old = [row.fingerprint for row in over if row.changed_at < now - KEPT_FOR]
        forgotten = delete(issue).where(
            in_values(issue.c.fingerprint, old), issue.c.changed_at < now - KEPT_FOR
        )
        gone = connection.execute(forgotten.returning(issue.c.fingerprint)).scalars().all()
        connection.execute(
            delete(hourly_count).where(hourly_count.c.what == OF_ISSUE, in_values(hourly_count.c.cause, gone))
        )
    return len(opened) + len(over)


def resolves_text(one: Issue, left: Replayable, now: datetime) -> str | None:
    """Return when an open issue is resolved by itself: `at 19:45, unless it happens again`; else None.

    An issue of failures only: others end as soon as what they are about does.
    """
    if one.kind not in OF_BUGS or one.state not in (IssueState.OPEN, IssueState.ACKNOWLEDGED):
        return None
    quiet_at = (one.last_at or one.opened_at) + QUIET
    if left.number:
        runs = "its run is" if left.number == 1 else f"its {left.number:,} runs are"
        return f"when {runs} no longer dead or retried, after an hour of quiet"
    if quiet_at <= now:
        return "with the next look of a worker"
    return f"at {short_time(quiet_at, now)}, unless it happens again"


def _opens(occurrence: Occurrence, row: Any, back: Collection[str]) -> bool:
    """Return whether an issue is opened for something that happens, or is open again."""
    if row is None:
        return True
    if row.state == IssueState.RESOLVED:
        return bool(occurrence.last_at > row.changed_at)
    return row.fingerprint in back


def _open(connection: Connection, occurrence: Occurrence, before: Any, now: datetime) -> None:
    state = {"state": IssueState.OPEN.value, "opened_at": now, "changed_at": now, "notified": 0}
    values = {**state, **_NO_ONE, "title": occurrence.title, "place": occurrence.place}
    if before is not None:
        # Of two processes that see it, one opens it; and what an operator says meanwhile stays.
        unchanged = (issue.c.fingerprint == occurrence.fingerprint, issue.c.changed_at == before.changed_at)
        connection.execute(update(issue).where(*unchanged).values(values))
        return
    known = ("fingerprint", "kind", "subject")
    row = {**values, **{name: getattr(occurrence, name) for name in known}}
    connection.execute(dialect_of(connection).insert(issue).values(row).on_conflict_do_nothing())


def _is_over(
    inbox: Inbox, connection: Connection, row: Any, found: dict[str, Occurrence], now: datetime
) -> bool:
    """Return whether nothing of an issue is left: it is resolved then, and forgotten some day."""
    if row.state == IssueState.RESOLVED:
        return row.fingerprint not in found and bool(row.changed_at < now - KEPT_FOR)
    if row.state == IssueState.SNOOZED and row.snoozed_until > now:
        return False
    occurrence = found.get(row.fingerprint)
    if row.kind in OF_BUGS:
        is_quiet = occurrence is None or occurrence.last_at <= now - QUIET
        return is_quiet and not connection.execute(unfinished_runs(row.fingerprint).limit(1)).first()
    if row.kind == IssueKind.QUARANTINE and occurrence is None:
        # Deliveries that are older than those looked at may be quarantined for it.
        return not connection.execute(QUARANTINED.offset(MOST), {"most": 1}).first()
    if row.kind == IssueKind.DISK and occurrence is None:
        # Not at once: what is free goes up and down, with each log file that is rotated.
        return little_space(inbox, critical=False) is None
    return occurrence is None
