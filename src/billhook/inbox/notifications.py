"""Which issues no message was sent about, and which process is to do it.

The only row of `billhook_notifier` names that process, until when, which messages were taken in the last
hour, and whether the last message said that all is well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, and_, or_, select, update

from billhook.inbox.inbox import Inbox
from billhook.inbox.issues import Issue, IssueState, list_issues
from billhook.inbox.occurrences import IssueKind
from billhook.inbox.schema import issue, notifier
from billhook.inbox.sql import in_values

LEASE = timedelta(minutes=2)
"""For how long one process sends. It is renewed with each message that an address takes."""
_REMEMBERED = timedelta(hours=1)


class Sent(NamedTuple):
    """A message that an address took: the number of the address, when, and what the message was about."""

    to: int
    at: datetime
    keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be sent: issues that have opened; without any, that all is well.

    `sent` is what was sent in the last hour.
    """

    issues: Sequence[Issue]
    sent: Sequence[Sent]


def due_notifications(inbox: Inbox, owner: str, now: datetime) -> Due | None:
    """Return what is to be sent, if this process is the one to do it. Mostly it only reads."""
    with inbox.database.read() as connection:
        if _find_due(connection) is None:
            return None
    with inbox.database.write() as connection:
        mine = or_(notifier.c.owner == owner, notifier.c.leased_until < now)
        taking = update(notifier).where(mine).values(owner=owner, leased_until=now + LEASE)
        if not connection.execute(taking).rowcount:
            return None
        opened = _find_due(connection)  # again: an issue may have opened meanwhile, or a process sent it
        sent = _sent(connection, now)
    if opened is None:
        return None
    found = list_issues(inbox, [IssueState.OPEN], ids=opened)
    if opened and not found:  # acknowledged meanwhile: that is not well yet
        return None
    return Due(sorted(found, key=lambda one: one.opened_at), sent)


def _find_due(connection: Connection) -> set[str] | None:
    """Return the issues of which no message was sent; none of them if all is well again, None if not."""
    # Of refusals no message is sent: a stranger could cause them.
    sendable = issue.c.kind != IssueKind.REFUSED.value
    is_open = and_(sendable, issue.c.state == IssueState.OPEN.value)
    opened = connection.execute(select(issue.c.fingerprint).where(is_open, issue.c.notified == 0)).scalars()
    if found := set(opened):
        return found
    unwell = in_values(issue.c.state, [IssueState.OPEN.value, IssueState.ACKNOWLEDGED.value])
    if connection.execute(select(notifier.c.well)).scalar_one():
        return None
    return None if connection.execute(select(issue.c.fingerprint).where(sendable, unwell)).first() else found


def record_sent(
    inbox: Inbox, issues: Sequence[Issue], now: datetime, message: Sent | None, *, well: bool = False
) -> None:
    """Record that an address took a message, that all addresses know these issues, or that all is well."""
    with inbox.database.write() as connection:
        for one in issues:
            # Not of one that was opened again meanwhile.
            own = (issue.c.fingerprint == one.id, issue.c.opened_at == one.opened_at)
            connection.execute(update(issue).where(*own).values(notified=1))
        recent = [*_sent(connection, now), *filter(None, [message])]
        sent = json.dumps([(each.to, each.at.isoformat(), sorted(each.keys)) for each in recent])
        # Services limit the rate of messages, so that many of them take minutes.
        values = {"sent": sent, "well": int(well), "leased_until": now + LEASE}
        connection.execute(update(notifier).values(values))


def release(inbox: Inbox, owner: str, now: datetime) -> None:
    """Let another process send at once: this one sends no more."""
    with inbox.database.write() as connection:
        connection.execute(update(notifier).where(notifier.c.owner == owner).values(leased_until=now - LEASE))


def _sent(connection: Connection, now: datetime) -> list[Sent]:
    sent = json.loads(connection.execute(select(notifier.c.sent)).scalar_one())
    found = [Sent(to, datetime.fromisoformat(at), frozenset(keys)) for to, at, keys in sent]
    return [each for each in found if each.at > now - _REMEMBERED]
