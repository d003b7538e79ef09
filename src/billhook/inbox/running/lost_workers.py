"""Find workers that died: which did not stop in order, whether they die again and again, and what ran.

A worker writes its row before its first run and every 20 s, and says so when it stops in order. One that
did not has died if that is recorded (see inbox.watching.deaths), or once it is not seen for a minute while
another is:

    three or more, one after another, in five minutes    a crash loop; several at one moment are none
    and the same handler, alone, ran in each of them     workers die while it runs
    one, not seen for 110 s                              a lost worker

A worker of a loop is missed after 30 s. A loop in which several handlers ran is reported 30 s after its first
death: until then a run that was lost has mostly been tried alone (see inbox.running.leases), and the handler
that kills is known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, func, or_, select

from billhook.basics.type_names import is_reading
from billhook.inbox.running.leases import LOST
from billhook.inbox.running.workers import RUNS_OR_DIED, WORKER_SEEN_EVERY, WORKER_SILENT_AFTER
from billhook.inbox.tables.schema import RUNNING_RUN, failure, run, worker
from billhook.inbox.tables.sql import in_values

LOOP_WITHIN = timedelta(minutes=5)
REPORTED_FOR = timedelta(minutes=15)
"""How long a worker that died is reported."""
_MISSED_AFTER = WORKER_SEEN_EVERY + timedelta(seconds=10)
"""How long a worker that may be one of a loop is not seen before it counts as missed."""
_LOST_AFTER = timedelta(seconds=110)
_UNCLEAR_FOR = timedelta(seconds=30)
_SHORT_LIFE = timedelta(seconds=10)
_LOOP_OF = 3
_FAILURES_READ = 200
_MINUTE = timedelta(minutes=1)


class LostWorkers(NamedTuple):
    """Workers that died: how many, of a loop in five minutes, else in fifteen; when the last did.

    `killer` is the only handler that ran in each worker of a loop; `text` says all of it, as a part of a
    sentence.
    """

    number: int
    last_at: datetime
    is_loop: bool
    killer: str | None
    text: str


class _Lost(NamedTuple):
    """A worker that died, or is missed. Without a number of `handlers` it died before it had any."""

    owner: str
    host: str
    handlers: int | None
    started_at: datetime
    seen_at: datetime
    died_at: datetime | None

    @property
    def ended_at(self) -> datetime:
        """When it had died at the latest: else it would have been seen again."""
        return self.died_at or self.seen_at + WORKER_SEEN_EVERY

    def ended_before(self, other: _Lost) -> bool:
        """Return whether another one can have taken its place."""
        if self.died_at is None and self.host == other.host:
            return self.seen_at <= other.started_at
        return self.ended_at <= other.started_at


def read_lost_workers(connection: Connection, now: datetime) -> LostWorkers | None:
    """Return the workers that died lately; None if none did."""
    newest: datetime | None = connection.execute(select(func.max(worker.c.seen_at))).scalar()
    if newest is None:
        return None
    # Where none was seen lately, it is not known which died: the database may have been away.
    seen = min(now, newest)
    columns = (getattr(worker.c, name) for name in _Lost._fields)
    query = select(*columns).where(
        *(RUNS_OR_DIED, worker.c.seen_at > now - REPORTED_FOR),
        or_(worker.c.died_at.is_not(None), worker.c.seen_at < seen - _MISSED_AFTER),
    )
    missed = sorted((_Lost(*row) for row in connection.execute(query)), key=lambda one: one.ended_at)
    lately = [one for one in missed if one.ended_at > now - LOOP_WITHIN]
    if _one_after_another(lately) >= _LOOP_OF:
        return _loop(connection, lately, now)
    lost = [one for one in missed if one.died_at or one.seen_at < seen - WORKER_SILENT_AFTER]
    if lost and lost[-1].seen_at < now - _LOST_AFTER:
        number, last = len(lost), lost[-1]
        ran = _ran(connection, [last.owner])[last.owner]
        text = "a worker died" if number == 1 else f"workers died {number} times"
        text += f" in the last {REPORTED_FOR // _MINUTE} minutes"
        if ran:
            text += f", {'' if number == 1 else 'the last '}{while_running(ran, '{} ran')}"
        return LostWorkers(number, last.seen_at, False, None, text)
    return None


def _loop(connection: Connection, lost: Sequence[_Lost], now: datetime) -> LostWorkers | None:
    """Return workers that die again and again; None as long as it is not clear by which handler."""
    ran = _ran(connection, [one.owner for one in lost])
    handlers = set[str]().union(*ran.values())
    killer = min(handlers) if len(handlers) == 1 and len(ran) >= _LOOP_OF else None
    if len(handlers) > 1 and now - lost[0].ended_at < _UNCLEAR_FOR:
        return None
    minutes = max(1, math.ceil((now - lost[0].ended_at) / _MINUTE))
    # What ran in all that ran anything, or else in the last.
    blamed = set.intersection(*ran.values()) if len(ran) >= _LOOP_OF else set[str]()
    blamed = blamed or next((ran[one.owner] for one in reversed(lost) if one.owner in ran), set())
    text = f"workers die again and again: {len(lost):,} in {minutes} min, "
    if blamed:
        text += while_running(blamed, "they run {}")
    elif all(one.handlers is None for one in lost):
        text += "before they have loaded the handlers"
    elif all(one.seen_at - one.started_at < _SHORT_LIFE for one in lost):
        text += "soon after their start, while no handler runs"
    else:
        text += "while no handler runs"
    return LostWorkers(len(lost), lost[-1].ended_at, True, killer, text)


def while_running(handlers: Collection[str], running: str) -> str:
    """Return what went on, such as "while they run a or b" where `running` is "they run {}"."""
    called = sorted(one for one in handlers if not is_reading(one))
    doing = [running.format(" or ".join(called))] if called else []
    return "while " + " or ".join([*doing, *sorted(filter(is_reading, handlers))])


def read_lost_beside(connection: Connection, killer: str) -> tuple[str, ...]:
    """Return the other handlers whose attempts were lost with the workers that one handler killed."""
    newest = select(failure.c.worker, run.c.handler).join(run, run.c.id == failure.c.run_id)
    newest = newest.where(failure.c.error == LOST).order_by(failure.c.id.desc()).limit(_FAILURES_READ)
    lost = connection.execute(newest).all()
    workers = {row.worker for row in lost if row.handler == killer}
    return tuple(sorted({row.handler for row in lost if row.worker in workers} - {killer}))


def _one_after_another(lost: Sequence[_Lost]) -> int:
    """Return how many of these workers lived one after another, the earliest end first."""
    number, last = 0, None
    for one in lost:
        if last is None or last.ended_before(one):
            number, last = number + 1, one
    return number


def _ran(connection: Connection, owners: Collection[str]) -> Mapping[str, set[str]]:
    """Return the handlers that each worker ran when it died: their leases run out, or have run out."""
    running = select(run.c.worker, run.c.handler).where(
        RUNNING_RUN, run.c.queued == 0, in_values(run.c.worker, owners)
    )
    newest = select(failure).order_by(failure.c.id.desc()).limit(_FAILURES_READ).subquery().c
    expired = select(newest.worker, run.c.handler).join(run, newest.run_id == run.c.id)
    expired = expired.where(newest.error == LOST, in_values(newest.worker, owners))
    found: defaultdict[str, set[str]] = defaultdict(set)
    for query in (running, expired):
        for owner, handler in connection.execute(query):
            found[owner].add(handler)
    return found
