"""The scheduler: runs scheduled jobs as the clock runs, and when it is moved."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from billhook.sandbox.billing import scheduled_jobs
from billhook.sandbox.service import Service
from billhook.sandbox.storage import key_value
from billhook.sandbox.storage.transaction import Transaction

_OFFSET_KEY = "clock_ahead_microseconds"
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 10.0

logger = logging.getLogger("billhook.sandbox")


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

    def restore(self, connection: Connection) -> None:
        """Set the clock to the offset that the database has."""
        stored = key_value.get(connection, _OFFSET_KEY)
        self._service.clock.set_ahead(timedelta(microseconds=int(stored or 0)))

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

        Returns the time reached and the number of jobs run. Concurrent moves run one after the other. If a
        job fails, its exception is raised, the job is removed so that it does not block later ones, and the
        clock stands at the last job before it.
        """
        # Inside the lock, so that `target` is applied to the time that a previous move has reached.
        with self._move_lock:
            goal = target(self._service.clock.now())
            count = self._run_jobs(goal)
            return self._service.clock.now(), count

    def _run_jobs(self, goal: datetime) -> int:
        count = 0
        while not self._stopped.is_set() and self._run_job(goal):
            count += 1
        return count

    def _run_job(self, goal: datetime) -> bool:
        job, clock = None, self._service.clock
        try:
            with self._service.transaction(writes=True) as tx:
                job = scheduled_jobs.pop_due(tx, goal)
                if job is not None:
                    # All changes of a job happen at its due time, also if it runs later.
                    tx.now = job.due_at
                    tx.cause = f"{job.kind} {job.subject_id}".rstrip()
                    self._jobs[job.kind](tx, job.subject_id)
                # Within the transaction, so that the next one that writes has the new time.
                if (moment := goal if job is None else job.due_at) > clock.now():
                    clock.set_to(moment)
                offset = clock.ahead // timedelta(microseconds=1)
                key_value.put(tx.connection, _OFFSET_KEY, str(offset))
        except Exception as error:
            # An error of the database may be transient: then the job stays scheduled.
            if job is not None and not isinstance(error, DBAPIError):
                # Its transaction was rolled back, so it is still scheduled and would fail again.
                error.add_note(f"the job {job.kind} of {job.subject_id!r}, due {job.due_at}, is removed")
                with self._service.transaction(writes=True) as tx:
                    scheduled_jobs.discard(tx, job)
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
                first = scheduled_jobs.next_due_at(tx)
            if first is not None and first <= clock.now():
                self._run_jobs(clock.now())
                return 0
        if first is None:
            return _POLL_SECONDS
        # Polled as well: the machine's clock may be set ahead.
        return min((first - clock.now()).total_seconds(), _POLL_SECONDS)
