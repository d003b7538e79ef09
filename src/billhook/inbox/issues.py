"""Issues: what is wrong, each of them once and not once for each delivery.

A failure of one bug is an issue, and so are the dead runs of a handler, deliveries quarantined for one
reason, and workers that are gone. A row of `billhook_issue` has the state of an issue only; how often it
happened is read from what is stored. `update_issues` compares the two:

    it happens, and has no row                                     open
    it happens again after it was resolved                         open again
    it happens again after the time for which it was ignored       open again
    open or acknowledged, and nothing of it for an hour            resolved, by billhook

"Nothing of it" means that no run is dead or waits for a retry because of it, however long ago it failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    Connection,
    Text,
    and_,
    bindparam,
    column,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from billhook.inbox.fingerprint import fingerprint
from billhook.inbox.inbox import Inbox
from billhook.inbox.schema import delivery, failure, issue, run, worker
from billhook.inbox.sql import UtcDateTime, in_states, in_values
from billhook.inbox.states import DeliveryState, RunState
from billhook.printable import without_ids

QUIET = timedelta(hours=1)
"""How long nothing must have happened before an issue counts as resolved by itself."""
KEPT_FOR = timedelta(days=30)
"""How long the row of a resolved issue is kept that happens no more."""
WORKER_GONE_AFTER = timedelta(seconds=90)
_MOST = 1_000
"""Issues at most, and the newest quarantined deliveries, that are looked at."""
_EXAMPLES = 3
_BATCH = 500


class IssueKind(StrEnum):
    """What an issue is about."""

    FAILURE = "failure"  # attempts of a handler fail by one bug
    DEAD = "dead"  # runs of a handler are dead
    QUARANTINE = "quarantine"  # deliveries cannot be read, for one reason
    WORKER = "worker"  # no worker has been seen for some time

    @property
    def runbook(self) -> str:
        """The section of the runbook that says what to do."""
        return f"deploy/RUNBOOK.md#{_SECTIONS[self]}"


_SECTIONS = {
    IssueKind.FAILURE: "runs-are-dead",
    IssueKind.DEAD: "runs-are-dead",
    IssueKind.QUARANTINE: "deliveries-are-quarantined",
    IssueKind.WORKER: "no-worker-is-alive",
}


class IssueState(StrEnum):
    """The state of an issue."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"  # it is worked on
    RESOLVED = "resolved"  # open again when it happens again
    IGNORED = "ignored"  # for a time


@dataclass(frozen=True, slots=True)
class Issue:
    """What is wrong: `subject` is the handler or the event type, `place` where the user's code failed.

    `count` is how many attempts failed, runs are dead or deliveries are quarantined, as far as they are
    stored; `deliveries` how many deliveries that concerns, with the newest as `examples`.
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
    ignored_until: datetime | None
    first_at: datetime | None = None
    last_at: datetime | None = None
    count: int = 0
    deliveries: int = 0
    examples: tuple[int, ...] = ()


class _Occurrence(NamedTuple):
    """Something that is wrong now, and when it happened last."""

    fingerprint: str
    kind: IssueKind
    subject: str
    title: str
    place: str | None
    last_at: datetime


# --- what is wrong now --------------------------------------------------------------------------------

# One look-up in the partial index for each group, however many failures each has.
_FAILING = text("""
    WITH RECURSIVE own (fingerprint) AS (
        SELECT (SELECT fingerprint FROM failure WHERE fingerprint IS NOT NULL ORDER BY fingerprint LIMIT 1)
        UNION ALL SELECT (
            SELECT fingerprint FROM failure
            WHERE fingerprint IS NOT NULL AND failure.fingerprint > own.fingerprint
            ORDER BY fingerprint LIMIT 1
        ) FROM own WHERE own.fingerprint IS NOT NULL
    )
    SELECT failure.fingerprint, run.handler, failure.error, failure.place, failure.failed_at
    FROM own
    JOIN failure ON failure.id = (
        SELECT id FROM failure AS its WHERE its.fingerprint = own.fingerprint ORDER BY id DESC LIMIT 1
    )
    JOIN run ON run.id = failure.run_id
    LIMIT :most
""").columns(
    column("fingerprint", Text), column("handler", Text), column("error", Text), column("place", Text),
    column("failed_at", UtcDateTime),
)  # fmt: skip
_DEAD = text("""
    WITH RECURSIVE own (handler) AS (
        SELECT (SELECT handler FROM run WHERE state IN ('dead') ORDER BY handler LIMIT 1)
        UNION ALL SELECT (
            SELECT handler FROM run WHERE state IN ('dead') AND run.handler > own.handler
            ORDER BY handler LIMIT 1
        ) FROM own WHERE own.handler IS NOT NULL
    )
    SELECT handler, (
        SELECT finished_at FROM run WHERE state IN ('dead') AND run.handler = own.handler
        AND finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 1
    ) FROM own WHERE handler IS NOT NULL
    LIMIT :most
""").columns(column("handler", Text), column("finished_at", UtcDateTime))
_IS_QUARANTINED = and_(
    in_states(delivery.c.state, DeliveryState.DEAD, DeliveryState.QUARANTINED),  # by these words, its index
    delivery.c.state == DeliveryState.QUARANTINED.value,
)
_QUARANTINED = (
    select(delivery.c.id, delivery.c.event_type, delivery.c.error, delivery.c.received_at)
    .where(_IS_QUARANTINED)
    .order_by(delivery.c.id.desc())
    .limit(bindparam("most"))
)


def _occurrences(connection: Connection, now: datetime) -> dict[str, _Occurrence]:
    """Return all that is wrong, by fingerprint."""
    most = {"most": _MOST}
    found = [
        _Occurrence(row[0], IssueKind.FAILURE, row.handler, without_ids(row.error), row.place, row.failed_at)
        for row in connection.execute(_FAILING, most)
    ]
    for handler, finished_at in connection.execute(_DEAD, most):
        its_id = fingerprint(handler, IssueKind.DEAD)
        found.append(_Occurrence(its_id, IssueKind.DEAD, handler, "runs are dead", None, finished_at or now))
    for row in reversed(connection.execute(_QUARANTINED, most).all()):  # the newest of a reason last
        reason = without_ids(_reason(row.error))
        its_id = _quarantine_id(row)
        found.append(_Occurrence(its_id, IssueKind.QUARANTINE, row.event_type, reason, None, row.received_at))
    seen_at = connection.execute(select(func.max(worker.c.seen_at))).scalar_one()
    if seen_at is not None and seen_at < now - WORKER_GONE_AFTER:
        its_id = fingerprint("", IssueKind.WORKER)
        found.append(_Occurrence(its_id, IssueKind.WORKER, "", "no worker is alive", None, seen_at))
    return {each.fingerprint: each for each in found}


def _reason(error: str | None) -> str:
    try:
        return str(json.loads(error or "")["error"])
    except (ValueError, KeyError, TypeError):
        return error or "quarantined"


def _quarantine_id(row: Any) -> str:
    return fingerprint(row.event_type, f"{IssueKind.QUARANTINE}\n{without_ids(_reason(row.error))}")


def update_issues(inbox: Inbox, now: datetime) -> int:
    """Open, reopen and resolve issues by what is stored; returns how many changed. Mostly it only reads."""
    with inbox.database.read() as connection:
        occurrences = _occurrences(connection, now)
        rows = {row.fingerprint: row for row in connection.execute(select(issue))}
        opened = [each for each in occurrences.values() if _opens(each, rows.get(each.fingerprint))]
        over = [row for row in rows.values() if _is_over(connection, row, occurrences, now)]
    if not (opened or over):
        return 0
    with inbox.database.write() as connection:
        for each in opened:
            _open(connection, each, now)
        resolving = update(issue).where(
            in_values(issue.c.fingerprint, [row.fingerprint for row in over]),
            in_values(issue.c.state, [IssueState.OPEN.value, IssueState.ACKNOWLEDGED.value]),
        )
        resolved = {"state": IssueState.RESOLVED.value, "who": None, "why": None, "changed_at": now}
        connection.execute(resolving.values(resolved))
        connection.execute(
            delete(issue).where(
                in_values(issue.c.fingerprint, [row.fingerprint for row in over]),
                issue.c.changed_at < now - KEPT_FOR,
            )
        )
    return len(opened) + len(over)


def _opens(occurrence: _Occurrence, row: Any) -> bool:
    """Return whether an issue is opened for something that happens, or is open again."""
    if row is None:
        return True
    if row.state == IssueState.RESOLVED:
        return bool(occurrence.last_at > row.changed_at)
    return bool(row.state == IssueState.IGNORED and occurrence.last_at > row.ignored_until)


def _open(connection: Connection, occurrence: _Occurrence, now: datetime) -> None:
    state = {"state": IssueState.OPEN.value, "opened_at": now, "changed_at": now, "notified": 0}
    no_one = {"who": None, "why": None, "ignored_until": None}
    own = issue.c.fingerprint == occurrence.fingerprint
    values = {**state, **no_one, "title": occurrence.title, "place": occurrence.place}
    # Of two processes that see it, one opens it; and what an operator says meanwhile stays.
    closed = in_values(issue.c.state, [IssueState.RESOLVED.value, IssueState.IGNORED.value])
    if connection.execute(update(issue).where(own, closed).values(values)).rowcount:
        return
    known = ("fingerprint", "kind", "subject")
    row = {**values, **{name: getattr(occurrence, name) for name in known}}
    new = select(*[bindparam(f"new_{name}", value, issue.c[name].type) for name, value in row.items()])
    missing = new.where(~exists().where(own))
    connection.execute(insert(issue).from_select(list(row), missing))


def _is_over(connection: Connection, row: Any, occurrences: dict[str, _Occurrence], now: datetime) -> bool:
    """Return whether nothing of an issue is left: it is resolved then, and forgotten some day."""
    if row.state == IssueState.RESOLVED:
        return row.fingerprint not in occurrences and bool(row.changed_at < now - KEPT_FOR)
    if row.state == IssueState.IGNORED:
        return False
    occurrence = occurrences.get(row.fingerprint)
    if row.kind != IssueKind.FAILURE:
        return occurrence is None
    if occurrence is None:
        return True
    if occurrence.last_at > now - QUIET:
        return False
    return not connection.execute(_unfinished_runs(row.fingerprint).limit(1)).first()


def _unfinished_runs(its_fingerprint: str) -> Any:
    """Select the runs that are dead, or wait for a retry, and have failed by an issue's bug."""
    unfinished = or_(
        run.c.state == RunState.DEAD.value,
        and_(run.c.state == RunState.DUE.value, run.c.attempts > 0),
    )
    query = select(run.c.id, run.c.delivery_id).join(failure, failure.c.run_id == run.c.id)
    return query.where(failure.c.fingerprint == its_fingerprint, unfinished).distinct()


# --- for operators ------------------------------------------------------------------------------------


def list_issues(inbox: Inbox, states: Sequence[IssueState] = ()) -> list[Issue]:
    """Return issues in these states (default: all), open ones first, then the latest."""
    with inbox.database.read() as connection:
        query = select(issue)
        if states:
            query = query.where(in_values(issue.c.state, [state.value for state in states]))
        found = [_issue(row) for row in connection.execute(query.limit(_MOST))]
        counted = [_counted(connection, each) for each in found]
    order = list(IssueState)
    return sorted(counted, key=lambda each: (order.index(each.state), -_latest(each), each.id))


def find_issue(inbox: Inbox, issue_id: str) -> Issue | None:
    """Return the issue with an id; None without one."""
    with inbox.database.read() as connection:
        row = connection.execute(select(issue).where(issue.c.fingerprint == issue_id)).first()
        return None if row is None else _counted(connection, _issue(row))


def change_issue(
    inbox: Inbox,
    issue_id: str,
    state: IssueState,
    now: datetime,
    *,
    who: str,
    why: str | None = None,
    until: datetime | None = None,
) -> bool:
    """Acknowledge, resolve, ignore or open an issue for an operator; False if there is no such issue."""
    values = {"state": state.value, "changed_at": now, "who": who, "why": why, "ignored_until": until}
    with inbox.database.write() as connection:
        changing = update(issue).where(issue.c.fingerprint == issue_id)
        return bool(connection.execute(changing.values(values)).rowcount)


def clear_texts(connection: Connection, delivery_ids: Sequence[int]) -> None:
    """Remove from the issues of deliveries that are erased all that may name a customer."""
    failed = select(failure.c.fingerprint).join(run, run.c.id == failure.c.run_id)
    ids = set(connection.execute(failed.where(in_values(run.c.delivery_id, delivery_ids))).scalars())
    quarantined = _QUARANTINED.where(in_values(delivery.c.id, delivery_ids))
    ids |= {_quarantine_id(row) for row in connection.execute(quarantined, {"most": len(delivery_ids)})}
    own = in_values(issue.c.fingerprint, sorted(filter(None, ids)))
    for row in connection.execute(select(issue.c.fingerprint, issue.c.title).where(own)).all():
        texts = {"title": row.title.partition(":")[0], "why": None}
        connection.execute(update(issue).where(issue.c.fingerprint == row.fingerprint).values(texts))


def newest_traceback(inbox: Inbox, issue_id: str) -> tuple[int, str] | None:
    """Return the newest failure's delivery, and its traceback or its error; None without a failure."""
    query = (
        select(run.c.delivery_id, func.coalesce(failure.c.traceback, failure.c.error))
        .join(run, run.c.id == failure.c.run_id)
        .where(failure.c.fingerprint == issue_id)
        .order_by(failure.c.id.desc())
    )
    with inbox.database.read() as connection:
        row = connection.execute(query.limit(1)).first()
        return None if row is None else (row[0], row[1])


def times_of(inbox: Inbox, issue_id: str, since: datetime) -> list[datetime]:
    """Return when the failures of an issue happened since a time, the newest 10,000 of them."""
    query = select(failure.c.failed_at).where(failure.c.fingerprint == issue_id, failure.c.failed_at >= since)
    with inbox.database.read() as connection:
        return list(connection.execute(query.order_by(failure.c.id.desc()).limit(10_000)).scalars())


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
        query = _QUARANTINED.with_only_columns(*_QUARANTINED.selected_columns)
        rows = connection.execute(query, {"most": _MOST}).all()
        return sorted(row.id for row in rows if _quarantine_id(row) == one.id and row.id > after)[:_BATCH]
    if one.kind is IssueKind.DEAD:
        found = select(run.c.delivery_id).where(
            in_states(run.c.state, RunState.DEAD), run.c.handler == one.subject
        )
    elif one.kind is IssueKind.FAILURE:
        found = select(_unfinished_runs(one.id).subquery().c.delivery_id)
    else:
        return []
    ids = found.distinct().subquery().c.delivery_id
    query = select(ids).where(ids > after).order_by(ids).limit(_BATCH)
    return list(connection.execute(query).scalars())


def _issue(row: Any) -> Issue:
    kind, state = IssueKind(row.kind), IssueState(row.state)
    return Issue(
        row.fingerprint, kind, row.subject, row.title, row.place, state, row.opened_at, row.changed_at,
        row.who, row.why, row.ignored_until,
    )  # fmt: skip


def _counted(connection: Connection, one: Issue) -> Issue:
    """Return an issue with its numbers."""
    if one.kind is IssueKind.WORKER:
        return replace(one, first_at=one.opened_at, last_at=one.opened_at, count=1)
    if one.kind is IssueKind.QUARANTINE:
        rows = [
            row for row in connection.execute(_QUARANTINED, {"most": _MOST}) if _quarantine_id(row) == one.id
        ]
        times, found = [row.received_at for row in rows], [row.id for row in rows]
        first_at, last_at = min(times, default=None), max(times, default=None)
        return replace(
            one, first_at=first_at, last_at=last_at, count=len(found), deliveries=len(found),
            examples=tuple(found[:_EXAMPLES]),
        )  # fmt: skip
    if one.kind is IssueKind.DEAD:
        at: Column[Any] = run.c.finished_at
        of_it = and_(in_states(run.c.state, RunState.DEAD), run.c.handler == one.subject)
        query, source = (
            select(func.count(), func.min(at), func.max(at), func.count()),
            select(run.c.delivery_id),
        )
        row = connection.execute(query.where(of_it)).one()
        examples = source.where(of_it).order_by(at.desc())
    else:
        at, of_it = failure.c.failed_at, failure.c.fingerprint == one.id
        numbers = select(
            func.count(), func.min(at), func.max(at), func.count(func.distinct(run.c.delivery_id))
        )
        joined = numbers.select_from(failure).join(run, run.c.id == failure.c.run_id)
        row = connection.execute(joined.where(of_it)).one()
        examples = select(run.c.delivery_id).join(failure, failure.c.run_id == run.c.id).where(of_it)
        examples = examples.order_by(failure.c.id.desc())
    count, first_at, last_at, deliveries = row
    ids = dict.fromkeys(connection.execute(examples.limit(_EXAMPLES * 4)).scalars())
    return replace(
        one, first_at=first_at, last_at=last_at, count=count, deliveries=deliveries,
        examples=tuple(ids)[:_EXAMPLES],
    )  # fmt: skip


def _latest(one: Issue) -> float:
    return (one.last_at or one.opened_at).timestamp()
