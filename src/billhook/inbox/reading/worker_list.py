"""List the processes that claim runs, as operators are shown them: also those that stopped or were lost.

Their rows are kept for a day: see billhook.inbox.running.workers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import select

from billhook.basics.printable import printable
from billhook.inbox.inbox import Inbox
from billhook.inbox.running.workers import is_alive, worker_rows
from billhook.inbox.tables.schema import RUNNING_RUN, run

_MOST_RUNS = 10_000
_SHOWN_RUNS = 20
_NOT_SHOWN = ("pid_space", "pid_ticks", "release")


class WorkerState(StrEnum):
    """The state of a worker."""

    RUNNING = "running"
    HELD = "held"  # it runs, and an operator has it start no run
    LOST = "lost"  # it was killed, crashed, or its machine was lost
    STOPPED = "stopped"  # in order


class WorkerRun(NamedTuple):
    """A run that a worker has claimed, since `started_at`."""

    delivery_id: int
    handler: str
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedWorker:
    """A process that claims runs. `restarts` are those before it in its place that were lost in the last day.

    `claimed` is how many runs it has claimed; at most `threads` of them run at once, if that is known. The
    oldest are `runs`.
    """

    owner: str
    state: WorkerState
    engine: str
    host: str
    pid: int | None
    release: str
    handlers: int | None
    threads: int | None
    started_at: datetime
    seen_at: datetime
    stopped_at: datetime | None
    died_at: datetime | None
    held_at: datetime | None
    held_why: str | None
    restarts: int
    claimed: int
    runs: tuple[WorkerRun, ...]

    @property
    def ended_at(self) -> datetime | None:
        """When it stopped, or was seen last before it was lost; None while it runs."""
        alive = self.state in (WorkerState.RUNNING, WorkerState.HELD)
        return None if alive else self.stopped_at or self.died_at or self.seen_at

    @property
    def since(self) -> datetime | None:
        """Since when it has ended or is held; None while it runs."""
        return self.held_at if self.state is WorkerState.HELD else self.ended_at

    @property
    def place(self) -> str:
        """Where it runs, `HOST:PID`; its owner where that is not known."""
        return printable(f"{self.host}:{self.pid}" if self.host and self.pid is not None else self.owner)

    def is_named(self, name: str) -> bool:
        """Return whether a name is its own: its owner, `HOST:PID`, or the process id alone."""
        return name in (self.owner, self.place, str(self.pid))

    @property
    def running(self) -> int:
        """How many runs it executes: the others that it has claimed wait for a thread."""
        return self.claimed if self.threads is None else min(self.claimed, self.threads)


def list_workers(inbox: Inbox, now: datetime) -> list[ListedWorker]:
    """Return the workers of the last day: those that run, then the lost, then the stopped; newest first."""
    claimed = select(run.c.worker, run.c.delivery_id, run.c.handler, run.c.started_at).where(RUNNING_RUN)
    runs: defaultdict[str, list[WorkerRun]] = defaultdict(list)
    with inbox.database.read() as connection:
        found = worker_rows(connection)
        for owner, *values in connection.execute(claimed.order_by(run.c.id).limit(_MOST_RUNS)):
            runs[owner].append(WorkerRun(*values))
    restarts = _restarts(found)
    listed = [
        ListedWorker(
            **{name: row[name] for name in row if name not in _NOT_SHOWN},
            release=row["release"] or "",
            state=_state(row, now),
            restarts=restarts[row["owner"]],
            claimed=len(runs[row["owner"]]),
            runs=tuple(runs[row["owner"]][:_SHOWN_RUNS]),
        )
        for row in reversed(found)
    ]
    order = list(WorkerState)
    return sorted(listed, key=lambda one: order.index(one.state))


def _state(row: Any, now: datetime) -> WorkerState:
    if row["stopped_at"] is not None:
        return WorkerState.STOPPED
    if not is_alive(row, now):
        return WorkerState.LOST
    return WorkerState.RUNNING if row["held_at"] is None else WorkerState.HELD


def _restarts(rows: Sequence[Any]) -> Counter[str]:
    """Return how many lost processes were before each in its place, by its owner; `rows` by their start.

    A process takes the place of one of its engine on its host that ended last before it started.
    """
    number = Counter[str]()
    free: list[Any] = []
    for row in rows:
        before = [
            one
            for one in free
            if (one["host"], one["engine"]) == (row["host"], row["engine"])
            and (one["stopped_at"] or one["seen_at"]) <= row["started_at"]
        ]
        if before:
            last = max(before, key=lambda one: one["stopped_at"] or one["seen_at"])
            free.remove(last)
            # One that stopped in order was no accident: an operator started the next, or a deployment did.
            number[row["owner"]] = number[last["owner"]] + (last["stopped_at"] is None)
        free.append(row)
    return number
