"""Find workers that died: which did not stop in order, whether they die again and again, and what ran.

A worker writes its row when it starts and every 20 s, and says so when it stops in order. One that did not,
and was not seen for a minute while another was, died:

    three or more, one after another, in five minutes    a crash loop; several at one moment are none
    and the same handler, alone, ran in each of them     workers die while it runs
    one, not seen for 110 s                              a lost worker

A loop in which several handlers ran is reported after 100 s: until then a run that was lost has mostly been
tried alone (see billhook.inbox.leases), and the handler that kills is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from billhook.inbox.leases import LOST
from billhook.inbox.schema import RUNNING_RUN, failure, run, worker
from billhook.inbox.sql import in_values
from billhook.inbox.workers import RUNS_OR_DIED, WORKER_SILENT_AFTER

LOOP_WITHIN = timedelta(minutes=5)
REPORTED_FOR = timedelta(minutes=15)
"""How long a worker that died is reported."""
_LOST_AFTER = timedelta(seconds=110)
_UNCLEAR_FOR = timedelta(seconds=100)
_LOOP_OF = 3
_FAILURES_READ = 200


class LostWorkers(NamedTuple):
    """How many workers died in five minutes, or else in fifteen; when the last did, and what it ran.

    `killer` is the only handler that ran in each worker of a loop.
    """

    number: int
    last_at: datetime
    handlers: tuple[str, ...]
    is_loop: bool
    killer: str | None = None

    @property
    def text(self) -> str:
        """What happened, as a part of a sentence."""
        times = "a worker died" if self.number == 1 else f"workers died {self.number} times"
        minutes = (LOOP_WITHIN if self.is_loop else REPORTED_FOR) // timedelta(minutes=1)
        which = "" if self.number == 1 else "the last "
        ran = f", {which}while {' or '.join(self.handlers)} ran" if self.handlers else ""
        return f"{times} in the last {minutes} minutes{ran}"


def read_lost_workers(connection: Connection, now: datetime) -> LostWorkers | None:
    """Return the workers that died lately; None if none did."""
    newest: datetime | None = connection.execute(select(func.max(worker.c.seen_at))).scalar()
    if newest is None:
        return None
    # Where none was seen lately, it is not known which died: the database may have been away.
    silent_since = min(now, newest) - WORKER_SILENT_AFTER
    query = select(worker.c.owner, worker.c.started_at, worker.c.seen_at).where(
        RUNS_OR_DIED, worker.c.seen_at < silent_since, worker.c.seen_at > now - REPORTED_FOR
    )
    lost = connection.execute(query.order_by(worker.c.seen_at, worker.c.owner)).all()
    if not lost:
        return None
    last = lost[-1]
    lately = [row for row in lost if row.seen_at > now - LOOP_WITHIN - WORKER_SILENT_AFTER]
    ran = _ran(connection, [row.owner for row in lately])
    if _one_after_another(lately) >= _LOOP_OF:
        handlers = set().union(*ran.values())
        killer = handlers.pop() if len(handlers) == 1 and len(ran) >= _LOOP_OF else None
        if killer is not None or now - lately[0].seen_at >= _UNCLEAR_FOR:
            return LostWorkers(len(lately), last.seen_at, tuple(sorted(ran[last.owner])), True, killer)
    elif last.seen_at < now - _LOST_AFTER:
        of_last = _ran(connection, [last.owner])[last.owner]
        return LostWorkers(len(lost), last.seen_at, tuple(sorted(of_last)), False)
    return None


def read_lost_beside(connection: Connection, killer: str) -> tuple[str, ...]:
    """Return the other handlers whose attempts were lost with the workers that one handler killed."""
    newest = select(failure.c.worker, run.c.handler).join(run, run.c.id == failure.c.run_id)
    newest = newest.where(failure.c.error == LOST).order_by(failure.c.id.desc()).limit(_FAILURES_READ)
    lost = connection.execute(newest).all()
    workers = {row.worker for row in lost if row.handler == killer}
    return tuple(sorted({row.handler for row in lost if row.worker in workers} - {killer}))


def _one_after_another(lost: Sequence[Any]) -> int:
    """Return how many of these workers lived one after another, the earliest end first."""
    number, ended_at = 0, None
    for row in lost:
        if ended_at is None or row.started_at >= ended_at:
            number, ended_at = number + 1, row.seen_at
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
