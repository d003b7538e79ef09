"""Issues: what is wrong, each of them once and not once for each delivery.

A failure of one bug is an issue, and so is all else that billhook.inbox.watching.occurrences finds. A row of
`billhook_issue` has the state of an issue only. How often it happened is read from what is stored, and from
the hourly counts of inbox.counting.counts, which has the failures that retention or an operator has deleted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    case,
    func,
    literal,
    null,
    or_,
    select,
    update,
)

from billhook.basics.printable import first_line
from billhook.inbox.counting.counts import BEFORE, OF_ISSUE
from billhook.inbox.counting.retention import cut_texts
from billhook.inbox.inbox import Inbox
from billhook.inbox.running.filters import DeliveryFilter
from billhook.inbox.running.workers import last_seen_before
from billhook.inbox.tables.handler_names import has_name_of, present_names
from billhook.inbox.tables.records import fingerprint
from billhook.inbox.tables.schema import (
    CLAIMABLE,
    DEAD_RUN,
    IDENTIFIERS,
    delivery,
    failure,
    hourly_count,
    issue,
    run,
)
from billhook.inbox.tables.sql import in_states, in_values
from billhook.inbox.tables.states import RunState
from billhook.inbox.watching.disagreements import read_lacking
from billhook.inbox.watching.occurrences import (
    MOST,
    OF_BUGS,
    OF_STATE,
    OF_WORKERS,
    QUARANTINED,
    IssueKind,
    quarantine_id,
    quarantine_reason,
)

RESOLVES_ITSELF = "The issue resolves itself when none of its runs is dead or retried, after an hour of quiet"
LIVE_FOR = timedelta(minutes=10)
"""An issue is live for so long after it happened last, also where nothing of it is left."""
_EXAMPLES = 3
_BATCH = 500
_LONGEST_UNTIL_MORE = timedelta(days=30)
"""How long an issue is snoozed at most until it happens more often, for it may never do so."""


_DELETED = select(hourly_count.c.hour, hourly_count.c.number, hourly_count.c.last_at).where(
    hourly_count.c.what == OF_ISSUE
)


class IssueState(StrEnum):
    """The state of an issue."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"  # it is worked on
    RESOLVED = "resolved"  # open again when it happens again
    SNOOZED = "snoozed"  # for a time, or until it happens more often


@dataclass(frozen=True, slots=True)
class Issue:
    """What is wrong: `subject` is the handler or the event type, `place` where the user's code failed.

    `count` is how many attempts failed, with those that retention or an operator has deleted, how many runs
    are dead or how many deliveries are quarantined. `deliveries` is how many stored deliveries that concerns,
    with the newest as `examples`. `identifiers` say what each of these is about, by its id.

    `newest_error` is the newest failure's, in full, or why the newest delivery is quarantined: `title` leaves
    out what differs between two.
    `is_left` says whether a run or a delivery of it is dead, quarantined or not finished; False if resolved.
    """

    id: str
    kind: IssueKind
    subject: str
    title: str
    place: str | None
    state: IssueState
    opened_at: datetime
    changed_at: datetime
    who: str | None
    why: str | None
    snoozed_until: datetime | None
    snoozed_more: int | None
    first_at: datetime | None = None
    last_at: datetime | None = None
    count: int = 0
    deliveries: int = 0
    examples: tuple[int, ...] = ()
    identifiers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    newest_error: str | None = None
    is_left: bool = False

    def is_live(self, now: datetime) -> bool:
        """Return whether something of it is left, or it happened in ten minutes; else it is quiet."""
        if self.state is IssueState.RESOLVED:
            return False
        return (
            self.is_left
            or self.kind in OF_STATE
            or (self.last_at is not None and now - self.last_at < LIVE_FOR)
        )

    def standing(self, now: datetime) -> str:
        """Return its state, and whether it is live or quiet: `open, live`."""
        if self.state is IssueState.RESOLVED:
            return self.state.value
        return f"{self.state.value}, {'live' if self.is_live(now) else 'quiet'}"

    @property
    def heading(self) -> str:
        """What happened last, in a line: the newest error where the title leaves out a part of it."""
        return first_line(self.newest_error) if self.newest_error and self.is_pattern else self.title

    @property
    def is_pattern(self) -> bool:
        """Whether the title leaves out what differs between two failures."""
        return "…" in self.title

    @property
    def who_text(self) -> str:
        """Who works on it, or who changed its state, and why."""
        by = f"{self.who} works on it" if self.state is IssueState.ACKNOWLEDGED else f"by {self.who}"
        return f"{by}: {self.why}" if self.why else by

    @property
    def snooze_text(self) -> str | None:
        """Until when it is snoozed: `until 10 more, or 2026-01-31 18:45 UTC`; None if it is not."""
        if self.state is not IssueState.SNOOZED:
            return None
        at = f"{self.snoozed_until:%Y-%m-%d %H:%M} UTC"
        return f"until {at}" if self.snoozed_more is None else f"until {self.snoozed_more:,} more, or {at}"

    @property
    def subject_is_type(self) -> bool:
        """Whether its subject is an event type, and no handler."""
        return self.kind in (IssueKind.QUARANTINE, IssueKind.SILENCE)

    @property
    def handler(self) -> str | None:
        """The handler of the runs that failed; None for an issue of another kind."""
        return self.subject if self.kind in (*OF_BUGS, IssueKind.DEAD) else None


def list_issues(
    inbox: Inbox,
    states: Sequence[IssueState] = (),
    subject: str | None = None,
    ids: Collection[str] | None = None,
) -> list[Issue]:
    """Return issues in these states (default: all), of one subject or of all, or of these ids: open first."""
    with inbox.database.read() as connection:
        query = select(issue)
        if states:
            query = query.where(in_values(issue.c.state, [state.value for state in states]))
        if subject is not None:
            query = query.where(has_name_of(issue.c.subject, subject))
        if ids is not None:
            query = query.where(in_values(issue.c.fingerprint, sorted(ids)))
        # Of more than are looked at, the resolved ones are left out first.
        query = query.order_by(issue.c.state == IssueState.RESOLVED.value, issue.c.changed_at.desc())
        found = [_issue(row) for row in connection.execute(query.limit(MOST))]
        counted = _with_numbers(connection, found)
    order = list(IssueState)
    return sorted(
        counted,
        key=lambda each: (
            order.index(each.state),
            -(each.last_at or each.opened_at).timestamp(),
            each.id,
        ),
    )


class OpenIssue(NamedTuple):
    """An issue that is open, without its numbers; `live` as `Issue.is_live` has it."""

    kind: IssueKind
    subject: str
    title: str
    live: bool


def list_open(inbox: Inbox, now: datetime) -> list[OpenIssue]:
    """Return the issues that are open, quickly."""
    newest = select(failure.c.failed_at).where(failure.c.fingerprint == issue.c.fingerprint)
    newest = newest.order_by(failure.c.id.desc()).limit(1).correlate(issue)
    left = _runs_that_failed(issue.c.fingerprint, _IS_LEFT).with_only_columns(run.c.id).limit(1)
    query = select(
        issue.c.kind,
        issue.c.subject,
        issue.c.title,
        case(
            (~in_values(issue.c.kind, [kind.value for kind in OF_BUGS]), literal(value=True)),
            (newest.scalar_subquery() > now - LIVE_FOR, literal(value=True)),
            else_=left.correlate(issue).scalar_subquery().is_not(None),
        ),
    )
    rows = inbox.fetch(query.where(issue.c.state == IssueState.OPEN.value))
    return [OpenIssue(IssueKind(row[0]), row[1], row[2], bool(row[3])) for row in rows]


def count_issues(inbox: Inbox) -> dict[IssueState, int]:
    """Return how many issues are in each state."""
    found = dict(map(tuple, inbox.fetch(select(issue.c.state, func.count()).group_by(issue.c.state))))
    return {state: found.get(state, 0) for state in IssueState}


def find_issue(inbox: Inbox, issue_id: str) -> Issue | None:
    """Return the issue with an id; None without one."""
    if not issue_id.isalnum():  # PostgreSQL refuses some texts (NUL)
        return None
    return next(iter(list_issues(inbox, ids=[issue_id])), None)


def issue_ids(inbox: Inbox, beginning: str) -> list[str]:
    """Return the ids of issues that begin like this."""
    if not beginning.isalnum():
        return []
    begins = func.substr(issue.c.fingerprint, 1, len(beginning)) == beginning
    query = select(issue.c.fingerprint).where(begins).order_by(issue.c.fingerprint)
    return [row.fingerprint for row in inbox.fetch(query)]


def change_issue(
    inbox: Inbox,
    issue_id: str,
    state: IssueState,
    now: datetime,
    *,
    who: str,
    why: str | None = None,
    until: datetime | None = None,
    more: int | None = None,
) -> bool:
    """Acknowledge, resolve, snooze or open an issue for an operator; False if there is no such issue.

    `who` changes it or, of an issue that is acknowledged, works on it. One that is snoozed comes back at
    `until`, after 30 days by default, or when it has happened `more` times since, if that is earlier.
    """
    if state is IssueState.SNOOZED and until is None:
        until = now + _LONGEST_UNTIL_MORE
    values: dict[str, Any] = {"state": state.value, "changed_at": now, "who": who, "why": why}
    values |= {"snoozed_until": until, "snoozed_more": more}
    return bool(inbox.apply(update(issue).where(issue.c.fingerprint == issue_id).values(values)))


def clear_texts(connection: Connection, delivery_ids: Sequence[int]) -> None:
    """Remove from the issues of deliveries that are erased all that may name a customer."""
    failed = select(failure.c.fingerprint).join(run, run.c.id == failure.c.run_id)
    ids = set(connection.execute(failed.where(in_values(run.c.delivery_id, delivery_ids))).scalars())
    # In any state: they may have been dead, or quarantined, when an operator wrote the reason.
    runs = select(run.c.handler).where(in_values(run.c.delivery_id, delivery_ids)).distinct()
    names, renamed = {*connection.execute(runs).scalars()}, present_names(connection)
    names |= {renamed[name] for name in names & renamed.keys()}
    ids |= {fingerprint(name, IssueKind.DEAD) for name in names}
    types = (
        select(column).where(in_values(delivery.c.id, delivery_ids))
        for column in (delivery.c.event_type, delivery.c.sent_as)
    )
    of_types = select(issue.c.fingerprint).where(
        issue.c.kind == IssueKind.QUARANTINE.value, or_(*map(issue.c.subject.in_, types))
    )
    ids |= set(connection.execute(of_types).scalars())
    cut_texts(connection, in_values(issue.c.fingerprint, sorted(filter(None, ids))))


def newest_traceback(inbox: Inbox, issue_id: str) -> tuple[int, str] | None:
    """Return the newest failure's delivery, and its traceback or its error; None without a failure."""
    query = (
        select(run.c.delivery_id, func.coalesce(failure.c.traceback, failure.c.error))
        .join(run, run.c.id == failure.c.run_id)
        .where(failure.c.fingerprint == issue_id)
        .order_by(failure.c.id.desc())
    )
    return next(((row[0], row[1]) for row in inbox.fetch(query.limit(1))), None)


_UNFINISHED = or_(run.c.state == RunState.DEAD.value, and_(CLAIMABLE, run.c.attempts > 0))
"""Dead or retried: what a replay concerns."""
_IS_LEFT = in_states(run.c.state, RunState.DEAD, RunState.WAITING, RunState.DUE, RunState.RUNNING)
"""Dead or unfinished: also replayed runs that are not handled yet."""


def unfinished_runs(its_fingerprint: str) -> Any:
    """Select the runs that are dead or retried, and have failed by an issue's bug."""
    return _runs_that_failed(its_fingerprint, _UNFINISHED).distinct()


def _runs_that_failed(its_fingerprint: Any, condition: ColumnElement[bool]) -> Any:
    query = select(run.c.id, run.c.delivery_id).join(failure, failure.c.run_id == run.c.id)
    return query.where(failure.c.fingerprint == its_fingerprint, condition)


class Replayable(NamedTuple):
    """What a replay of an issue makes due again: dead runs or quarantined deliveries, and retried runs."""

    dead: int = 0
    retried: int = 0

    @property
    def number(self) -> int:
        """How many runs and deliveries in all."""
        return self.dead + self.retried


def count_replayable(inbox: Inbox, one: Issue) -> Replayable:
    """Count what a replay of an issue concerns: see `failing_delivery_ids`."""
    if one.kind in (IssueKind.QUARANTINE, IssueKind.DEAD):
        return Replayable(one.count)
    if one.kind not in OF_BUGS:
        return Replayable()
    unfinished = unfinished_runs(one.id).add_columns(run.c.state).subquery()
    states = select(unfinished.c.state, func.count()).group_by(unfinished.c.state)
    found: dict[str, int] = dict(map(tuple, inbox.fetch(states)))
    dead = found.pop(RunState.DEAD.value, 0)
    return Replayable(dead, sum(found.values()))


def failing_delivery_ids(inbox: Inbox, one: Issue) -> Iterator[list[int]]:
    """Yield the ids of deliveries that an issue's replay concerns, oldest first, some hundreds at a time."""
    after = 0
    while True:
        with inbox.database.read() as connection:
            ids = _delivery_ids(connection, one, after)
        if ids:
            yield ids
        if len(ids) < _BATCH:
            return
        after = ids[-1]


def _delivery_ids(connection: Connection, one: Issue, after: int) -> list[int]:
    if one.kind is IssueKind.QUARANTINE:
        return sorted(row.id for row in quarantined_by_issue(connection)[one.id] if row.id > after)[:_BATCH]
    if one.kind is IssueKind.DEAD:
        found = select(run.c.delivery_id).where(DEAD_RUN, has_name_of(run.c.handler, one.subject))
    elif one.kind in OF_BUGS:
        found = select(unfinished_runs(one.id).subquery().c.delivery_id)
    else:
        return []
    ids = found.distinct().subquery().c.delivery_id
    query = select(ids).where(ids > after).order_by(ids).limit(_BATCH)
    return list(connection.execute(query).scalars())


def of_issue(inbox: Inbox, selection: DeliveryFilter) -> DeliveryFilter:
    """Return a filter that also selects what an issue of quarantined deliveries is about."""
    one = None if selection.issue is None else find_issue(inbox, selection.issue)
    if one is None or one.kind is not IssueKind.QUARANTINE:
        return selection
    with inbox.database.read() as connection:
        found = quarantined_by_issue(connection)[one.id]
    return replace(selection, quarantined=tuple(row.id for row in found))


def _issue(row: Any) -> Issue:
    its_id, kind, subject, title, place, state, *others, _ = row
    return Issue(its_id, IssueKind(kind), subject, title, place, IssueState(state), *others)


def quarantined_by_issue(connection: Connection) -> defaultdict[str, list[Any]]:
    """Return the newest quarantined deliveries by the ids of their issues."""
    found: defaultdict[str, list[Any]] = defaultdict(list)
    for row in connection.execute(QUARANTINED, {"most": MOST}):
        found[quarantine_id(row)].append(row)
    return found


def _with_numbers(connection: Connection, found: Sequence[Issue]) -> list[Issue]:
    """Return the issues with their numbers, and with what their examples are about."""
    is_quarantine = any(one.kind is IssueKind.QUARANTINE for one in found)
    quarantined = quarantined_by_issue(connection) if is_quarantine else {}
    counted = [_counted(connection, one, quarantined) for one in found]
    ids = {delivery_id for each in counted for delivery_id in each.examples}
    query = select(delivery.c.id, *IDENTIFIERS).where(in_values(delivery.c.id, sorted(ids)))
    about = {row[0]: tuple(filter(None, row[1:])) for row in connection.execute(query)}
    return [
        replace(each, identifiers={one: about[one] for one in each.examples if about.get(one)})
        for each in counted
    ]


def _counted(connection: Connection, one: Issue, quarantined: Mapping[str, list[Any]]) -> Issue:
    """Return an issue with its numbers."""
    if one.kind is IssueKind.MISSED:
        for each in read_lacking(connection, BEFORE):
            if each.name == one.subject:
                number = each.number
                return replace(one, first_at=one.opened_at, last_at=each.at, count=number, deliveries=number)
    if one.kind in OF_STATE:
        held_at = one.opened_at
        if one.kind in OF_WORKERS:
            stopped = one.kind is IssueKind.WORKER
            held_at = last_seen_before(connection, one.opened_at, stopped=stopped) or held_at
        return replace(one, first_at=held_at, last_at=held_at, count=1)
    numbers: Any
    newest_error, is_left = None, False
    if one.kind is IssueKind.QUARANTINE:
        rows = quarantined[one.id]
        times, ids = [row.received_at for row in rows], [row.id for row in rows]
        count = deliveries = len(rows)
        is_left = bool(rows)
        newest_error = quarantine_reason(rows[0].error) if rows else None
    else:
        if one.kind is IssueKind.DEAD:
            at, of_it, deleted = (
                run.c.finished_at,
                and_(DEAD_RUN, has_name_of(run.c.handler, one.subject)),
                [],
            )
            numbers = select(func.count(), func.min(at), func.max(at), func.count())
            examples = select(run.c.delivery_id, null()).order_by(at.desc())
        else:
            of_it = failure.c.fingerprint == one.id
            ordered = select(failure.c.failed_at).where(of_it).limit(1)
            ends = (ordered.order_by(by).scalar_subquery() for by in (failure.c.id, failure.c.id.desc()))
            # All of one handler, so a delivery has one run among them. By the index alone.
            numbers = select(func.count(), *ends, func.count(func.distinct(failure.c.run_id)))
            examples = select(run.c.delivery_id, failure.c.error)
            examples = examples.join(failure, failure.c.run_id == run.c.id)
            examples = examples.order_by(failure.c.id.desc())
            deleted = [*connection.execute(_DELETED.where(hourly_count.c.cause == one.id))]
        count, *ends_at, deliveries = connection.execute(numbers.where(of_it)).one()
        count += sum(each.number for each in deleted)
        # The first time of an hour is not known when its failures are gone.
        times = [*filter(None, ends_at), *(each.last_at for each in deleted)]
        found = connection.execute(examples.where(of_it).limit(_EXAMPLES * 4)).all()
        ids = list(dict.fromkeys(delivery_id for delivery_id, _ in found))
        if found and one.kind is IssueKind.FAILURE:
            newest_error = found[0][1]
        if one.state is not IssueState.RESOLVED:
            left = _runs_that_failed(one.id, _IS_LEFT).limit(1)
            is_left = bool(found) if one.kind is IssueKind.DEAD else bool(connection.execute(left).first())
    first_at, last_at = min(times, default=None), max(times, default=None)
    return replace(
        one, first_at=first_at, last_at=last_at, count=count, deliveries=deliveries,
        examples=tuple(ids[:_EXAMPLES]), newest_error=newest_error, is_left=is_left,
    )  # fmt: skip
