"""Scheduled jobs, stored in the database; and the scheduler, which runs them as the clock runs or moves."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, func, insert, select
from sqlalchemy.exc import DBAPIError

from billhook.sandbox.clock import add_months
from billhook.sandbox.errors import error
from billhook.sandbox.storage.database import Service, Transaction
from billhook.sandbox.storage.tables import scheduled_job

# Month-end runs last of all jobs due at the same time: its report includes the billing cycles that end then.
_ORDER = (scheduled_job.c.due_at, scheduled_job.c.kind == "month_end", scheduled_job.c.seq)
_OFFSET_KEY = "clock_ahead_microseconds"
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 10.0
_TURN_SECONDS = 1.0
"""How long a move waits for the one before it, until it is refused."""
logger = logging.getLogger("billhook.sandbox")


def schedule(tx: Transaction, due_at: datetime, kind: str, subject_id: str) -> None:
    """Schedule the job `kind` for `subject_id` at `due_at`.

    A moment that is past means now. The kinds are the keys of `sandbox.JOB_HANDLERS`.
    """
    # A job runs with tx.now set to its due time: one in the past would turn the time back.
    due_at = max(due_at, tx.now)
    tx.execute(insert(scheduled_job).values(due_at=due_at, kind=kind, subject_id=subject_id))
    # After the commit this wakes the scheduler, which may sleep until a later job.
    tx.scheduled = True


def cancel(tx: Transaction, subject_id: str, kind: str | None = None) -> None:
    """Cancel the jobs of `subject_id`: all of them, or those of one kind."""
    which = scheduled_job.c.subject_id == subject_id
    if kind is not None:
        which &= scheduled_job.c.kind == kind
    tx.execute(delete(scheduled_job).where(which))


def schedule_first_month_end(tx: Transaction) -> None:
    """Schedule the first end of a month, once for each database. Each end schedules the next one."""
    # A database that is opened again has it already.
    if not tx.any(scheduled_job, scheduled_job.c.kind == "month_end"):
        schedule(tx, next_month_start(tx.now), "month_end", "")


def next_month_start(moment: datetime) -> datetime:
    """Return the first midnight of the month after `moment`."""
    return add_months(moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0), 1)


def next_due_at(tx: Transaction) -> datetime | None:
    """Return when the next job is due, or None without one."""
    return tx.execute(select(func.min(scheduled_job.c.due_at))).scalar()


def pop_due(tx: Transaction, until: datetime) -> Row[Any] | None:
    """Delete and return the first job that is due by `until`, or None.

    Jobs run in the order of their due times; of those due at the same time, the one that was scheduled first.
    """
    first = select(scheduled_job.c.seq).where(scheduled_job.c.due_at <= until).order_by(*_ORDER).limit(1)
    popped = delete(scheduled_job).where(scheduled_job.c.seq == first.scalar_subquery())
    return tx.execute(popped.returning(scheduled_job)).first()


def upcoming(tx: Transaction, limit: int) -> Sequence[Row[Any]]:
    """Return the first `limit` jobs, in the order in which they will run."""
    return tx.execute(select(scheduled_job).order_by(*_ORDER).limit(limit)).all()


def discard(tx: Transaction, item: Row[Any]) -> None:
    """Delete this job."""
    tx.execute(delete(scheduled_job).where(scheduled_job.c.seq == item.seq))


class Scheduler:
    """Runs scheduled jobs one after the other, in the order of time, until it is stopped.

    Each job runs in a transaction of its own, which also moves the clock to the job's time. So a process that
    dies leaves the clock at the last finished job: none is skipped and none runs twice.
    """

    def __init__(self, service: Service, jobs: Mapping[str, Callable[[Transaction, str], None]]) -> None:
        self._service = service
        self._jobs = jobs
        self._move_lock = threading.Lock()
        self._wake_up = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def restore(self) -> None:
        """Set the clock to the offset that the database has."""
        with self._service.transaction(writes=False) as tx:
            self._service.clock.set_ahead(timedelta(microseconds=tx.setting(_OFFSET_KEY) or 0))

    def start(self) -> None:
        """Run the jobs that fell due while the sandbox was down, then follow the clock."""
        self._thread = threading.Thread(target=self._run, name="sandbox-scheduler", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for due jobs now: one was scheduled."""
        self._wake_up.set()

    def stop(self) -> None:
        """Finish the running job and start no other."""
        self._stopped.set()
        self._wake_up.set()
        with self._move_lock:  # held while jobs run
            pass
        if self._thread is not None:
            self._thread.join()

    def move(self, target: Callable[[datetime], datetime]) -> tuple[datetime, int]:
        """Move the clock to `target` of its time, running all jobs that fall due up to then.

        Returns the time reached and the number of jobs run. Concurrent moves run one after the other; one
        whose turn does not come soon is refused with 503, so that it keeps no thread of the server waiting.
        If a job fails, its exception is raised, the job is removed so that it does not block later ones, and
        the clock stands at the last job before it.
        """
        if not self._move_lock.acquire(timeout=_TURN_SECONDS):
            text = "the clock is being moved by another request: try again"
            raise error(503, "busy", text, math.ceil(_TURN_SECONDS))
        try:
            # Inside the lock, so that `target` is applied to the time that a previous move has reached.
            goal = target(self._service.clock.now())
            count = self._run_jobs(goal)
            return self._service.clock.now(), count
        finally:
            self._move_lock.release()

    def _run_jobs(self, goal: datetime) -> int:
        count = 0
        while not self._stopped.is_set() and self._run_job(goal):
            count += 1
        return count

    def _run_job(self, goal: datetime) -> bool:
        job, clock = None, self._service.clock
        try:
            with self._service.transaction(writes=True) as tx:
                job = pop_due(tx, goal)
                if job is not None:
                    # All changes of a job happen at its due time, also if it runs later.
                    tx.now = job.due_at
                    tx.cause = f"{job.kind} {job.subject_id}".rstrip()
                    self._jobs[job.kind](tx, job.subject_id)
                # Within the transaction, so that the next one that writes has the new time.
                if (moment := goal if job is None else job.due_at) > clock.now():
                    clock.set_ahead(moment - clock.real.now())
                offset = clock.ahead // timedelta(microseconds=1)
                tx.store_setting(_OFFSET_KEY, offset)
        except Exception as failure:
            # An error of the database may be transient: then the job stays scheduled.
            if job is not None and not isinstance(failure, DBAPIError):
                # Its transaction was rolled back, so it is still scheduled and would fail again.
                failure.add_note(f"the job {job.kind} of {job.subject_id!r}, due {job.due_at}, is removed")
                with self._service.transaction(writes=True) as tx:
                    discard(tx, job)
            raise
        return job is not None

    def _run(self) -> None:
        while not self._stopped.is_set():
            # Cleared before looking: a job that is scheduled meanwhile sets it again.
            self._wake_up.clear()
            try:
                wait = self._run_due()
            except Exception:
                logger.exception("scheduled job failed, trying the others in %g s", _RETRY_SECONDS)
                wait = _RETRY_SECONDS
            self._wake_up.wait(wait)

    def _run_due(self) -> float:
        """Run the due jobs; return the seconds until the next poll."""
        with self._move_lock:
            if self._stopped.is_set():
                return 0
            clock = self._service.clock
            with self._service.transaction(writes=False) as tx:
                first = next_due_at(tx)
            if first is not None and first <= clock.now():
                self._run_jobs(clock.now())
                return 0
        if first is None:
            return _POLL_SECONDS
        # Polled as well: the machine's clock may be set ahead.
        return min((first - clock.now()).total_seconds(), _POLL_SECONDS)
