"""Find what has stalled without an error: calls of handlers that do not return, and workers that are held."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, and_, func, select

from billhook.basics.printable import counted, printable
from billhook.clock import format_duration
from billhook.inbox.counting.counts import ROWS_READ
from billhook.inbox.running.workers import IS_WORKER, WORKER_SILENT_AFTER
from billhook.inbox.tables.handler_names import present_names
from billhook.inbox.tables.schema import FINISHED_RUN, RUNNING_RUN, run, worker

_TIMES_LONGER = 3
"""A call hangs if it takes at least this multiple of the longest recent call of its handler."""


class HangingCalls(NamedTuple):
    """The calls of a handler that have not returned for long, the oldest since `since`."""

    handler: str
    number: int
    since: datetime

    def text(self, now: datetime) -> str:
        """How many and for how long, as a part of a sentence."""
        have = "has" if self.number == 1 else "have"
        age = format_duration((now - self.since).total_seconds())
        since = f" for {age}" if self.number == 1 else f", the oldest for {age}"
        return f"{counted(self.number, 'call')} of {printable(self.handler)} {have} not returned{since}"


class HeldWorkers(NamedTuple):
    """The workers that an operator holds, of those that are alive."""

    places: tuple[str, ...]
    alive: int

    @property
    def text(self) -> str:
        """How many are held, as a part of a sentence."""
        if len(self.places) == self.alive:
            which = "the only worker is" if self.alive == 1 else f"all {self.alive} workers are"
            return (
                f"{which} held, and starts no run" if self.alive == 1 else f"{which} held, and start no run"
            )
        return f"{len(self.places)} of {self.alive} workers {'is' if len(self.places) == 1 else 'are'} held"


def read_hanging(connection: Connection, now: datetime, after: timedelta) -> list[HangingCalls]:
    """Return the calls that have not returned after so long, while others of their handlers do.

    Calls of a handler that usually takes so long do not hang. A run in a worker's queue is no call.
    """
    renamed = present_names(connection)
    running = select(run.c.handler, run.c.started_at).where(
        RUNNING_RUN, run.c.queued == 0, run.c.started_at < now - after
    )
    began: dict[str, list[datetime]] = {}
    for handler, started_at in connection.execute(running):
        began.setdefault(renamed.get(handler, handler), []).append(started_at)
    longest = _longest_seconds(connection, renamed) if began else {}
    found = []
    for handler, times in sorted(began.items()):
        took = longest.get(handler, 0.0)
        hanging = [at for at in times if now - at > _TIMES_LONGER * timedelta(seconds=took)]
        if hanging:
            found.append(HangingCalls(handler, len(hanging), min(hanging)))
    return found


def _longest_seconds(connection: Connection, renamed: Mapping[str, str]) -> dict[str, float]:
    """Return how long the longest call of each handler took, of the runs that were finished last."""
    newest = select(run.c.handler, run.c.duration_seconds).where(FINISHED_RUN)
    its = newest.order_by(run.c.finished_at.desc()).limit(ROWS_READ).subquery().c
    longest = select(its.handler, func.max(its.duration_seconds)).where(its.duration_seconds.is_not(None))
    found: dict[str, float] = {}
    for stored, seconds in connection.execute(longest.group_by(its.handler)):
        name = renamed.get(stored, stored)
        found[name] = max(seconds, found.get(name, 0.0))
    return found


def read_held(connection: Connection, now: datetime) -> HeldWorkers | None:
    """Return the live workers that an operator holds; None without one."""
    alive = and_(
        IS_WORKER,
        worker.c.stopped_at.is_(None),
        worker.c.died_at.is_(None),
        worker.c.seen_at > now - WORKER_SILENT_AFTER,
    )
    query = select(worker.c.host, worker.c.pid, worker.c.owner, worker.c.held_at).where(alive)
    rows = connection.execute(query.order_by(worker.c.held_at, worker.c.owner)).all()
    places = tuple(
        f"{row.host}:{row.pid}" if row.host and row.pid is not None else row.owner
        for row in rows
        if row.held_at is not None
    )
    return HeldWorkers(places, len(rows)) if places else None
