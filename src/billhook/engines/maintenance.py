"""Maintain the inbox in small steps between polls: prune, count what happened, register the worker."""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from billhook.clock import format_ago
from billhook.engines.watch import Watch
from billhook.errors import BillhookError
from billhook.inbox import Inbox, WorkerRecord
from billhook.inbox.actions import prune_actions
from billhook.inbox.retention import Cutoffs
from billhook.inbox.worker_list import list_workers
from billhook.logs import LimitedLog, fields
from billhook.printable import first_line, printable

logger = logging.getLogger("billhook.engines")

REGISTRATION_SECONDS = 20.0
PREDECESSOR_WITHIN = timedelta(minutes=10)
"""A worker that was last seen before is no news."""
FIRST_SECONDS = 60.0
EVERY_SECONDS = 3600.0
RESTART_SECONDS = 86_400.0
"""Between two passes over all deliveries; passes between them skip what was unfinished at the last one."""
FAILED_SECONDS = 300.0
"""After a pass over deliveries that failed; the quick duties are repeated as often as ever."""
FAILED_LOG_SECONDS = 60.0
"""Between two lines on a duty that fails."""
COUNT_SECONDS = 3.0
"""Between two steps that add what has happened to the counts: what is not added is read from its rows."""
PAUSE_FACTOR = 9
"""Sleep nine times as long as a step took, so that it uses at most 10 % of the database's time."""
QUICK_SECONDS = 0.05
QUICK_PAUSE_FACTOR = 3
"""The same after a batch of pruning that took no longer than QUICK_SECONDS: receivers do not notice it."""
MIN_PAUSE_SECONDS = 0.02


@dataclass(eq=False, repr=False)
class WorkerRegistration:
    """This engine's row in the inbox's table of workers, which only operators read.

    `owner` is the name of this process, `handlers` returns how many handlers it has now, and `threads` is how
    many runs it executes at once, if known. Its methods never raise.
    """

    inbox: Inbox
    owner: str
    engine: str
    handlers: Callable[[], int]
    monotonic: Callable[[], float] = time.monotonic
    threads: int | None = None
    _started_at: datetime | None = None
    _next_at: float = -1.0

    def refresh(self, now: datetime) -> float:
        """Write the row if that is due; return the seconds until it is due again."""
        if self._started_at is None or self.monotonic() >= self._next_at:
            try:
                if self._started_at is None:
                    self._started_at = now
                    self._log_predecessor(now)
                record = WorkerRecord(
                    *(self.owner, self.engine, self.handlers(), self._started_at),
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    threads=self.threads,
                )
                self.inbox.record_worker(record, now)
            except Exception as error:  # noqa: BLE001 - for information only, and the next poll logs the cause
                text = "could not register this worker, retrying in %.0f s: %s"
                cause = first_line(str(error))
                logger.warning(text, REGISTRATION_SECONDS, cause, extra=fields(cause=error))
            self._next_at = self.monotonic() + REGISTRATION_SECONDS
        return max(0.0, self._next_at - self.monotonic())

    def _log_predecessor(self, now: datetime) -> None:
        """Log that the last worker of this machine has died: it did not stop in order."""
        for one in list_workers(self.inbox, now):
            is_here = one.host == socket.gethostname() and one.seen_at >= now - PREDECESSOR_WITHIN
            is_other = one.owner != self.owner and one.stopped_at is None
            if is_here and is_other and not _is_running(one.pid):
                text = "worker %s is gone: started %s, last seen %s, it did not stop in order"
                times = (format_ago(at, now) for at in (one.started_at, one.seen_at))
                logger.warning(text, one.owner, *times, extra=fields(cause="worker-gone"))
                return

    def stop(self) -> None:
        """Write that this engine stopped in order."""
        if self._started_at is not None:
            self._started_at = None
            try:
                self.inbox.record_stop(self.owner)
            except Exception as error:  # noqa: BLE001 - it counts as lost then, and its row is deleted later
                text = "could not record that this worker stopped: %s"
                logger.warning(text, first_line(str(error)), extra=fields(cause=error))


def _is_running(pid: int | None) -> bool:
    """Return whether the process of a worker of this machine runs; its id may be this process's now."""
    if pid is None or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """How long an app's engine keeps deliveries and keys, and what looks for issues beside it."""

    retention_days: float = 30.0
    key_days: float | None = None
    watch: Watch | None = None


AS_SHIPPED = MaintenanceOptions()


@dataclass(eq=False, repr=False)
class Maintenance:
    """Call `run_if_due` whenever there is time; it does little at a time and never raises.

    Several processes may do it side by side: none waits for another's rows.
    """

    inbox: Inbox
    options: MaintenanceOptions
    registration: WorkerRegistration | None = None
    monotonic: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        # At random, so that processes which started together do not prune together.
        later = FIRST_SECONDS * (1 + random.random())  # noqa: S311 - not for secrecy
        self._next_at, self._count_at = self.monotonic() + later, self.monotonic() + COUNT_SECONDS
        self._restart_at = 0.0
        self._failures = LimitedLog(logger, interval_seconds=FAILED_LOG_SECONDS)
        self._after = 0
        self._pruned = 0

    def start(self) -> None:
        """Look for issues from now on, also while no poll succeeds."""
        if self.options.watch is not None:
            self.options.watch.start()

    def run_if_due(self, now: datetime) -> float:
        """Do the next small step if it is due; return the seconds until one is due again."""
        started = self.monotonic()
        if started >= self._count_at:
            self._count_at = self._safely("counting", self._advance_watermark, now, COUNT_SECONDS)
        elif started >= self._next_at:
            self._next_at = self._safely("retention pass", self._prune, now, FAILED_SECONDS)
        pause = max(0.0, min(self._count_at, self._next_at) - self.monotonic())
        return pause if self.registration is None else min(pause, self.registration.refresh(now))

    def close(self) -> None:
        """Record that this worker stopped, and end its watch."""
        if self.options.watch is not None:
            self.options.watch.stop()
        if self.registration is not None:
            self.registration.stop()

    def _safely(
        self, what: str, step: Callable[[datetime], float], now: datetime, again_seconds: float
    ) -> float:
        """Do a step; return when the next one is due, `again_seconds` from now if it failed."""
        try:
            again_seconds = step(now)
        except BillhookError as error:
            text = f"{what} failed, retrying in {again_seconds:.0f} s: {printable(str(error))}"
            self._failures.log(what, logging.WARNING, text, cause=error)
        except Exception as error:
            again_seconds = FAILED_SECONDS
            text = "%s failed, retrying in %.0f s"
            logger.exception(text, what, again_seconds, extra=fields(cause=error))
        return again_seconds + self.monotonic()

    def _advance_watermark(self, now: datetime) -> float:
        started = self.monotonic()
        least = MIN_PAUSE_SECONDS if self.inbox.advance_watermark(now) else COUNT_SECONDS
        return max(least, PAUSE_FACTOR * (self.monotonic() - started))

    def _prune(self, now: datetime) -> float:
        """Prune one batch and return the pause after it. A pass skips what earlier ones of the day saw."""
        started = self.monotonic()
        if started >= self._restart_at:
            self._after, self._restart_at = 0, started + RESTART_SECONDS
        cutoffs = Cutoffs.of(now, self.options.retention_days, self.options.key_days)
        result = self.inbox.prune(cutoffs, self._after, self.inbox.database.prune_rows)
        self._after = result.after
        self._pruned += result.total
        if not result.over or self.inbox.compact_counts(now):
            took = self.monotonic() - started
            factor = QUICK_PAUSE_FACTOR if took <= QUICK_SECONDS else PAUSE_FACTOR
            return max(MIN_PAUSE_SECONDS, factor * took)
        prune_actions(self.inbox, now)
        if self._pruned:
            text = "pruned %d deliveries past their retention"
            logger.info(text, self._pruned, extra=fields(count=self._pruned))
            self._pruned = 0
        return EVERY_SECONDS
