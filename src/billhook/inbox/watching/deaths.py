"""Record which workers have died, where that is certain and need not wait until they are silent for a minute.

    another process of the same machine     their process id is that of no process, or of another one
    the parent of a worker                  it exited, also one that died before it wrote a row

A worker wrote its row every 20 s while it lived, so it died 20 s after it was seen at the latest.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import and_, delete, or_, select, update

from billhook.basics.engine_kinds import WORKER
from billhook.basics.process_identity import ProcessIdentity, own_process
from billhook.inbox.inbox import Inbox
from billhook.inbox.running.lost_workers import REPORTED_FOR
from billhook.inbox.running.workers import RUNS_OR_DIED, WORKER_SEEN_EVERY
from billhook.inbox.tables.records import WorkerRecord
from billhook.inbox.tables.schema import worker

_KEPT = 500
"""How many rows of workers that died are kept: a crash loop leaves one every few seconds."""


class DeadWorker(NamedTuple):
    """A worker that was found dead just now."""

    owner: str
    started_at: datetime
    seen_at: datetime


def record_deaths(inbox: Inbox, at: datetime) -> Sequence[DeadWorker]:
    """Record the workers of this machine that ended without a stop in order; return them by last seen."""
    space = own_process().pid_space
    if space is None:
        return []
    query = select(worker.c.owner, worker.c.started_at, worker.c.seen_at, worker.c.pid, worker.c.pid_ticks)
    known = and_(RUNS_OR_DIED, worker.c.died_at.is_(None))
    query = query.where(known, worker.c.pid_space == space).order_by(worker.c.owner)
    ended = [row for row in inbox.fetch(query) if ProcessIdentity(row.pid, space, row.pid_ticks).has_ended()]
    if not ended:
        return []
    too_many = select(worker.c.owner).where(worker.c.died_at.is_not(None)).order_by(worker.c.seen_at.desc())
    too_many = too_many.offset(_KEPT).with_for_update(skip_locked=True)
    with inbox.database.write() as connection:
        for row in ended:  # by owner, as other processes do it: none waits for a row in a circle
            died = update(worker).where(worker.c.owner == row.owner, known)
            connection.execute(died.values(died_at=min(at, row.seen_at + WORKER_SEEN_EVERY)))
        connection.execute(delete(worker).where(worker.c.owner.in_(too_many)))
    return sorted((DeadWorker(*row[:3]) for row in ended), key=lambda one: one.seen_at)


def record_death_of_child(inbox: Inbox, pid: int, started_at: datetime, at: datetime) -> None:
    """Record that a worker, a child of this process, died; in a new row if it had written none."""
    space = own_process().pid_space
    host = socket.gethostname()
    place = worker.c.host == host if space is None else worker.c.pid_space == space
    own = (place, worker.c.pid == pid, worker.c.seen_at >= started_at)
    if not inbox.fetch(select(worker.c.owner).where(*own)):
        owner = f"{host}:{pid}:{secrets.token_hex(3)}"
        record = WorkerRecord(owner, WORKER.name, None, started_at, host=host, pid=pid, pid_space=space)
        inbox.record_worker(record, started_at)
    known = (RUNS_OR_DIED, worker.c.died_at.is_(None))
    inbox.apply(update(worker).where(*own, *known).values(died_at=at))


def lost_before(inbox: Inbox, owner: str, now: datetime) -> bool:
    """Return whether workers died lately, or may have died where this one starts."""
    here = worker.c.host == socket.gethostname()
    elsewhere = worker.c.pid_space.is_distinct_from(own_process().pid_space)
    unknown = and_(here, or_(elsewhere, worker.c.pid_space.is_(None)))
    lost = and_(RUNS_OR_DIED, or_(worker.c.died_at.is_not(None), unknown))
    query = select(worker.c.owner).where(lost, worker.c.owner != owner, worker.c.seen_at > now - REPORTED_FOR)
    return bool(inbox.fetch(query.limit(1)))
