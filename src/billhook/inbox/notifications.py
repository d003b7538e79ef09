"""Which issues no message was sent about, and which process is to do it.

The only row of `billhook_notifier` names that process, until when, when messages were sent in the last hour,
and whether the last of them said that all is well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, or_, select, update

from billhook.inbox.inbox import Inbox
from billhook.inbox.issues import Issue, IssueState, list_issues
from billhook.inbox.occurrences import IssueKind
from billhook.inbox.schema import issue, notifier
from billhook.inbox.sql import in_values

LEASE = timedelta(minutes=2)
"""For how long one process sends. It is renewed with each message that is due."""
_REMEMBERED = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be sent: issues that have opened; without any, that all is well. And when the last were."""

    issues: Sequence[Issue]
    sent_at: Sequence[datetime]


def due_notifications(inbox: Inbox, owner: str, now: datetime) -> Due | None:
    """Return what is to be sent, if this process is the one to do it. Mostly it only reads."""
    with inbox.database.read() as connection:
        row = connection.execute(select(notifier)).one()
        # Of refusals no message is sent: a stranger could cause them.
        sendable = issue.c.kind != IssueKind.REFUSED.value
        is_open = and_(sendable, issue.c.state == IssueState.OPEN.value)
        opened = set(
            connection.execute(select(issue.c.fingerprint).where(is_open, issue.c.notified == 0)).scalars()
        )
        unwell = in_values(issue.c.state, [IssueState.OPEN.value, IssueState.ACKNOWLEDGED.value])
        unwell_now = connection.execute(select(issue.c.fingerprint).where(sendable, unwell)).first()
        all_well = not (row.well or unwell_now)
    if not (opened or all_well):
        return None
    with inbox.database.write() as connection:
        mine = or_(notifier.c.owner == owner, notifier.c.leased_until < now)
        taking = update(notifier).where(mine).values(owner=owner, leased_until=now + LEASE)
        if not connection.execute(taking).rowcount:
            return None
    found = list_issues(inbox, [IssueState.OPEN], ids=opened)
    if opened and not found:  # acknowledged meanwhile: that is not well yet
        return None
    sent_at = [datetime.fromisoformat(text) for text in json.loads(row.sent_at)]
    return Due(sorted(found, key=lambda one: one.opened_at), sent_at)


def record_sent(inbox: Inbox, issues: Sequence[Issue], now: datetime) -> None:
    """Record that a message told of these issues; without any, that all is well."""
    with inbox.database.write() as connection:
        for one in issues:
            # Not of one that was opened again meanwhile.
            own = (issue.c.fingerprint == one.id, issue.c.opened_at == one.opened_at)
            connection.execute(update(issue).where(*own).values(notified=1))
        before = json.loads(connection.execute(select(notifier.c.sent_at)).scalar_one())
        recent = [text for text in before if datetime.fromisoformat(text) > now - _REMEMBERED]
        values = {"sent_at": json.dumps([*recent, now.isoformat()]), "well": int(not issues)}
        connection.execute(update(notifier).values(values))
