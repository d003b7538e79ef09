"""Which messages are due, which process sends them, and which process looked for issues last.

The only row of `billhook_notifier` names the process that sends, and until when; when issues were last looked
for; and for each address what it has taken, and since when it has failed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, and_, or_, select, update

from billhook.basics.process_identity import ProcessIdentity
from billhook.inbox.inbox import Inbox
from billhook.inbox.tables.schema import issue, notifier
from billhook.inbox.tables.sql import in_values
from billhook.inbox.watching.issues import Issue, IssueState, list_issues
from billhook.inbox.watching.occurrences import IssueKind

LEASE = timedelta(minutes=1)
"""For how long one process sends. It is renewed before each message."""
MARK_AFTER = timedelta(seconds=15)
"""How old the time of the last look gets before it is written again."""
RETRY_AFTER = timedelta(seconds=15)
"""After the first message that an address refuses; doubled each time."""
MOST_RETRY_AFTER = timedelta(seconds=90)
LATER_RETRY_AFTER = timedelta(minutes=10)
"""Once an address has failed for a day."""
_REMEMBERED = timedelta(hours=1)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AddressState:
    """What one address has taken: `told` are keys of issues that another address still has to take.

    `well`: its last message said that all is well, or it had none. `failures` are those since that message.
    """

    told: frozenset[str] = frozenset()
    taken_at: tuple[datetime, ...] = ()
    well: bool = True
    failures: int = 0
    failing_since: datetime | None = None
    retry_at: datetime | None = None

    def took(self, keys: Collection[str], now: datetime) -> AddressState:
        """Return the state after a message about these issues; without any it said that all is well."""
        recent = tuple(at for at in self.taken_at if at > now - _REMEMBERED)
        return AddressState(self.told.union(keys), (*recent, now), not keys)

    def refused(self, now: datetime) -> AddressState:
        """Return the state after a message that was refused."""
        since = self.failing_since or now
        pause = min(RETRY_AFTER * 2 ** min(self.failures, 10), MOST_RETRY_AFTER)
        if now - since >= _DAY:
            pause = LATER_RETRY_AFTER
        return replace(self, failures=self.failures + 1, failing_since=since, retry_at=now + pause)

    def sent_lately(self, now: datetime) -> int:
        """Return how many messages it took in the last hour."""
        return sum(at > now - _REMEMBERED for at in self.taken_at)

    def is_waiting(self, now: datetime) -> bool:
        """Return whether it has failed, and is not to be tried yet."""
        return self.retry_at is not None and now < self.retry_at


@dataclass(frozen=True, slots=True)
class Due:
    """Issues that are open and that an address may not have been told of, and the state of each address."""

    issues: Sequence[Issue]
    all_closed: bool
    """Whether no issue is open or acknowledged."""
    states: Mapping[int, AddressState] = field(default_factory=dict)

    def state(self, number: int) -> AddressState:
        """Return the state of the address on this line."""
        return self.states.get(number, AddressState())


def key_of(one: Issue) -> str:
    """Return what names an issue from its opening until it opens again."""
    return f"{one.id}{one.opened_at}"


def read_due(inbox: Inbox) -> Due:
    """Read what is to be sent."""
    # Of refusals no message is sent: a stranger could cause them.
    sendable = issue.c.kind != IssueKind.REFUSED.value
    is_open = and_(sendable, issue.c.state == IssueState.OPEN.value, issue.c.notified == 0)
    unwell = in_values(issue.c.state, [IssueState.OPEN.value, IssueState.ACKNOWLEDGED.value])
    with inbox.database.read() as connection:
        opened = set(connection.execute(select(issue.c.fingerprint).where(is_open)).scalars())
        worked_on = select(issue.c.kind).where(sendable, unwell).limit(1)
        closed = not opened and connection.execute(worked_on).first() is None
        states = _states(connection)
    found = list_issues(inbox, [IssueState.OPEN], ids=opened) if opened else []
    return Due(sorted(found, key=lambda one: one.opened_at), closed, states)


def take_lease(inbox: Inbox, owner: str, now: datetime) -> bool:
    """Have this process send from now on, or go on; False while another one does.

    An owner is a name, and the process as basics.process_identity has it, so that one that died is known.
    """
    holder = inbox.fetch(select(notifier.c.owner))[0].owner
    process = ProcessIdentity.of(holder.rpartition(" ")[2])
    ended = holder if process is not None and process.has_ended() else owner
    free = or_(notifier.c.owner == owner, notifier.c.owner == ended, notifier.c.leased_until < now)
    return bool(inbox.apply(update(notifier).where(free).values(owner=owner, leased_until=now + LEASE)))


def release_lease(inbox: Inbox, owner: str, now: datetime) -> None:
    """Let another process send at once: this one sends no more."""
    inbox.apply(update(notifier).where(notifier.c.owner == owner).values(leased_until=now - LEASE))


def record_state(
    inbox: Inbox, number: int, state: AddressState, issues: Sequence[Issue], numbers: Collection[int]
) -> None:
    """Record what an address took or refused, and which issues all addresses know now.

    `numbers` are those of all addresses, and `issues` all that are due.
    """
    with inbox.database.write() as connection:
        states = {**_states(connection), number: state}
        states = {one: states.get(one, AddressState()) for one in numbers}
        known = frozenset[str].intersection(*(each.told for each in states.values()))
        over = [one for one in issues if key_of(one) in known]
        for one in over:
            # Not of one that was opened again meanwhile.
            own = (issue.c.fingerprint == one.id, issue.c.opened_at == one.opened_at)
            connection.execute(update(issue).where(*own).values(notified=1))
        left = frozenset(map(key_of, issues)) - known
        kept = {str(one): asdict(replace(each, told=each.told & left)) for one, each in states.items()}
        connection.execute(update(notifier).values(addresses=json.dumps(kept, default=_encode)))


def _encode(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else sorted(value)


def _decode(name: str, value: Any) -> Any:
    if name == "told":
        return frozenset(value)
    if name == "taken_at":
        return tuple(map(datetime.fromisoformat, value))
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _states(connection: Connection) -> dict[int, AddressState]:
    kept = json.loads(connection.execute(select(notifier.c.addresses)).scalar_one())
    decoded = {one: {name: _decode(name, each[name]) for name in each} for one, each in kept.items()}
    return {int(one): AddressState(**values) for one, values in decoded.items()}


def looked_at(inbox: Inbox) -> datetime:
    """Return when a process last looked for issues, to some seconds."""
    at: datetime = inbox.fetch(select(notifier.c.looked_at))[0].looked_at
    return at


def record_look(inbox: Inbox, now: datetime) -> datetime:
    """Record that issues were looked for; return when, as recorded.

    Mostly it only reads: a worker looks every few seconds.
    """
    at = looked_at(inbox)
    if not now - MARK_AFTER < at <= now:
        inbox.apply(update(notifier).values(looked_at=now))
        return now
    return at
