"""Maintain the inbox in small steps between polls: prune, count what happened, register the worker."""

from __future__ import annotations

import logging
import random
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from billhook.basics.printable import first_line, printable
from billhook.basics.process_identity import own_process
from billhook.clock import format_ago
from billhook.engines.newest_list import NewestList
from billhook.engines.watch import Watch
from billhook.errors import BillhookError
from billhook.inbox import Inbox, WorkerRecord
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.operating.actions import prune_actions
from billhook.inbox.running.workers import WORKER_SEEN_EVERY
from billhook.inbox.watching.deaths import DeadWorker, lost_before, record_deaths
from billhook.logs import LimitedLog, fields

logger = logging.getLogger("billhook.engines")

REGISTRATION_SECONDS = WORKER_SEEN_EVERY.total_seconds()
PREDECESSOR_WITHIN = timedelta(minutes=10)
"""The death of a worker that was last seen longer ago is not logged."""
FIRST_LOOK_SECONDS = 10.0
"""How long a worker that starts where others have died delays its first run, until people are notified."""
FIRST_SECONDS = 60.0
EVERY_SECONDS = 3600.0
RESTART_SECONDS = 86_400.0
"""The time between two passes over all deliveries. Others skip what was unfinished at the last of these."""
FAILED_SECONDS = 300.0
"""The pause after a pass over deliveries that failed. The quick duties are repeated as often as ever."""
FAILED_LOG_SECONDS = 60.0
"""The shortest time between two log lines about a duty that fails."""
COUNT_SECONDS = 3.0
"""The pause between two steps that add new rows to the hourly counts; until then they are counted as rows."""
PAUSE_FACTOR = 9
"""Sleep nine times as long as a step took, so that it uses at most 10 % of the database's time."""
QUICK_SECONDS = 0.05
QUICK_PAUSE_FACTOR = 3
"""The same after a batch of pruning that took no longer than QUICK_SECONDS: receivers do not notice it."""
MIN_PAUSE_SECONDS = 0.02


@dataclass(eq=False, repr=False)
class WorkerRegistration:
    """This engine's row in the inbox's table of workers, with its list of handlers.

    `owner` is the name of this process, and `threads` is how many runs it executes at once, if known.
    """

    inbox: Inbox
    owner: str
    engine: str
    lists: NewestList
    monotonic: Callable[[], float] = time.monotonic
    threads: int | None = None
    started_at: datetime | None = None
    """Since when the inbox knows this worker; None until then."""
    _next_at: float = -1.0
    lost_before: bool = False
    """Whether workers died, or may have, before this one started."""

    def write(self, now: datetime) -> None:
        """Write the row, and the list of handlers as it is now. Raises InboxUnavailable."""
        own, process = self.lists.read(), own_process()
        record = WorkerRecord(
            *(self.owner, self.engine, len(own.names), self.started_at or now),
            host=socket.gethostname(),
            pid=process.pid,
            pid_space=process.pid_space,
            pid_ticks=process.pid_ticks,
            threads=self.threads,
        )
        number = self.inbox.record_worker(record, now, own, read_at=self.lists.read_at)
        self.lists.record(own, number)
        self._next_at = self.monotonic() + REGISTRATION_SECONDS
        if self.started_at is None:
            self.started_at = now
            self._log_predecessor(record_deaths(self.inbox, now), now)
            self.lost_before = lost_before(self.inbox, self.owner, now)

    def refresh(self, now: datetime) -> float:
        """Write the row if that is due; return the seconds until it is due again. Never raises."""
        if self.monotonic() >= self._next_at:
            try:
                self.write(now)
            except Exception as error:  # noqa: BLE001 - the next poll logs the cause
                text = "could not register this worker, retrying in %.0f s: %s"
                cause = first_line(str(error))
                logger.warning(text, REGISTRATION_SECONDS, cause, extra=fields(cause=error))
                self._next_at = self.monotonic() + REGISTRATION_SECONDS
        return max(0.0, self._next_at - self.monotonic())

    def _log_predecessor(self, dead: Sequence[DeadWorker], now: datetime) -> None:
        """Log that the last worker of this machine has died: it did not stop in order."""
        if dead and dead[-1].seen_at >= now - PREDECESSOR_WITHIN:
            text = "worker %s is gone: started %s, last seen %s, it did not stop in order"
            times = (format_ago(at, now) for at in (dead[-1].started_at, dead[-1].seen_at))
            logger.warning(text, dead[-1].owner, *times, extra=fields(cause="worker-gone"))

    def stopping(self) -> None:
        """Write that this engine plans nothing more. Never raises."""
        if self.started_at is not None:
            with suppress(Exception):  # its row says so when it has stopped, or in a minute
                self.inbox.record_stopping(self.owner)

    def stop(self) -> None:
        """Write that this engine stopped in order. Never raises."""
        if self.started_at is not None:
            self.started_at = None
            try:
                self.inbox.record_stop(self.owner)
            except Exception as error:  # noqa: BLE001 - it counts as lost then, and its row is deleted later
                text = "could not record that this worker stopped: %s"
                logger.warning(text, first_line(str(error)), extra=fields(cause=error))


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """How long an app's engine keeps deliveries and keys, and what looks for issues beside it."""

    retention_days: float = 30.0
    key_days: float | None = None
    watch: Watch | None = None


DEFAULT_MAINTENANCE = MaintenanceOptions()


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

    def start(self, now: datetime, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Register this worker, and look for issues from now on, also while no poll succeeds.

        Where workers have died before, it returns when people have been notified of that, or after
        FIRST_LOOK_SECONDS: the first run may end this worker too.
        """
        if self.registration is not None:
            self.registration.refresh(now)
        watch, lost_before = (
            self.options.watch,
            self.registration is not None and self.registration.lost_before,
        )
        if watch is None:
            return
        watch.start(hurry=lost_before)
        end = self.monotonic() + FIRST_LOOK_SECONDS
        while lost_before and not (watch.is_first_look_over or is_stopping()) and self.monotonic() < end:
            time.sleep(MIN_PAUSE_SECONDS)

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
