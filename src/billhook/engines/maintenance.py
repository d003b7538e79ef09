"""Maintain the inbox in small steps between polls: prune deliveries, close counts, register the worker."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from billhook.concurrency import reset_in_child, start_thread
from billhook.engines.reporting import log_row_security
from billhook.errors import BillhookError
from billhook.inbox import Inbox, WorkerRecord
from billhook.inbox.issues import update_issues
from billhook.inbox.occurrences import workers_gone_since
from billhook.inbox.retention import Cutoffs
from billhook.logs import LimitedLog, fields
from billhook.notify import Notifier
from billhook.printable import first_line, printable

logger = logging.getLogger("billhook.engines")

REGISTRATION_SECONDS = 20.0
FIRST_SECONDS = 60.0
EVERY_SECONDS = 3600.0
RESTART_SECONDS = 86_400.0
"""Between two passes over all deliveries; passes between them skip what was unfinished at the last one."""
FAILED_SECONDS = 300.0
"""After a pass over deliveries that failed; the quick duties are repeated as often as ever."""
FAILED_LOG_SECONDS = 60.0
"""Between two lines on a duty that fails."""
CLOSE_SECONDS = 3.0
"""Between two steps that add what has happened to the counts: what is not added is read from its rows."""
ISSUES_SECONDS = 5.0
"""Between two looks at what is wrong: see billhook.inbox.issues."""
BATCH_ROWS = 150
"""Deliveries pruned in one transaction. Few: SQLite has one writer, and receivers wait for it."""
SERVER_BATCH_ROWS = 500
PAUSE_FACTOR = 9
"""Sleep nine times as long as a step took, so that it uses at most 10 % of the database's time."""
QUICK_SECONDS = 0.05
QUICK_PAUSE_FACTOR = 3
"""The same after a batch of pruning that took no longer than QUICK_SECONDS: receivers do not notice it."""
FIGURES_SECONDS = 60.0
"""Between two looks for silence and refusals, which are read from the figures."""
MIN_PAUSE_SECONDS = 0.02


class WorkerRegistration:
    """This engine's row in the inbox's table of workers, which only operators read.

    Its methods never raise.
    """

    def __init__(
        self,
        inbox: Inbox,
        owner: str,
        engine: str,
        handlers: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        threads: int | None = None,
    ) -> None:
        """`owner` is the name of this process, `handlers` returns how many handlers it has now.

        `threads` is how many runs it executes at once, if known.
        """
        self._inbox = inbox
        self._owner = owner
        self._engine = engine
        self._handlers = handlers
        self._threads = threads
        self._monotonic = monotonic
        self._started_at: datetime | None = None
        self._next_at = -1.0

    def refresh(self, now: datetime) -> float:
        """Write the row if that is due; return the seconds until it is due again."""
        if self._started_at is None or self._monotonic() >= self._next_at:
            self._started_at = self._started_at or now
            try:
                record = WorkerRecord(
                    *(self._owner, self._engine, self._handlers(), self._started_at),
                    host=socket.gethostname(),
                    pid=os.getpid(),
                    threads=self._threads,
                )
                self._inbox.record_worker(record, now)
            except Exception as error:  # noqa: BLE001 - for information only, and the next poll logs the cause
                text = "could not register this worker, retrying in %.0f s: %s"
                cause = first_line(str(error))
                logger.warning(text, REGISTRATION_SECONDS, cause, extra=fields(cause=error))
            self._next_at = self._monotonic() + REGISTRATION_SECONDS
        return max(0.0, self._next_at - self._monotonic())

    def stop(self) -> None:
        """Write that this engine stopped in order."""
        if self._started_at is not None:
            self._started_at = None
            try:
                self._inbox.record_stop(self._owner)
            except Exception as error:  # noqa: BLE001 - it counts as lost then, and its row is deleted later
                text = "could not record that this worker stopped: %s"
                logger.warning(text, first_line(str(error)), extra=fields(cause=error))


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """How long an app's engine keeps deliveries and keys, and who is notified of issues."""

    retention_days: float = 30.0
    key_days: float | None = None
    notifier: Notifier | None = None


AS_SHIPPED = MaintenanceOptions()


class Maintenance:
    """Call `run_if_due` whenever there is time; it does little at a time and never raises.

    Several processes may do it side by side: none waits for another's rows.
    """

    def __init__(
        self,
        inbox: Inbox,
        options: MaintenanceOptions,
        *,
        registration: WorkerRegistration | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inbox = inbox
        self._options = options
        self._registration = registration
        self._monotonic = monotonic
        # At random, so that processes which started together do not prune together.
        self._next_at = monotonic() + FIRST_SECONDS * (1 + random.random())  # noqa: S311 - not for secrecy
        self._close_at = monotonic() + CLOSE_SECONDS
        self._issues_at = monotonic() + ISSUES_SECONDS
        self._figures_at = 0.0
        self._restart_at = 0.0
        self._failures = LimitedLog(logger, interval_seconds=FAILED_LOG_SECONDS)
        self._after = 0
        self._pruned = 0

    def run_if_due(self, now: datetime) -> float:
        """Do the next small step if it is due; return the seconds until one is due again."""
        started = self._monotonic()
        if started >= self._close_at:
            self._close_at = self._safely(
                "closing of counts", self._close_counts, now, started, again_seconds=CLOSE_SECONDS
            )
        elif started >= self._issues_at:
            self._issues_at = self._safely(
                "update of issues", self._update_issues, now, started, again_seconds=ISSUES_SECONDS
            )
        elif started >= self._next_at:
            self._next_at = self._safely(
                "retention pass", self._prune, now, started, again_seconds=FAILED_SECONDS
            )
        pause = max(0.0, min(self._close_at, self._issues_at, self._next_at) - self._monotonic())
        return pause if self._registration is None else min(pause, self._registration.refresh(now))

    def close(self) -> None:
        """Record that this worker stopped, and end the notifier."""
        if self._options.notifier is not None:
            self._options.notifier.stop()
        if self._registration is not None:
            self._registration.stop()

    def _safely(
        self,
        what: str,
        step: Callable[[datetime, float], float],
        now: datetime,
        started: float,
        *,
        again_seconds: float,
    ) -> float:
        """Do a step; return when the next one is due, `again_seconds` from now if it failed."""
        try:
            return step(now, started) + self._monotonic()
        except BillhookError as error:
            text = f"{what} failed, retrying in {again_seconds:.0f} s: {printable(str(error))}"
            self._failures.log(what, logging.WARNING, text, cause=error)
        except Exception as error:
            text = "%s failed, retrying in %.0f s"
            logger.exception(text, what, FAILED_SECONDS, extra=fields(cause=error))
            again_seconds = FAILED_SECONDS
        return again_seconds + self._monotonic()

    def _close_counts(self, now: datetime, started: float) -> float:
        least = MIN_PAUSE_SECONDS if self._inbox.close_counts(now) else CLOSE_SECONDS
        return max(least, PAUSE_FACTOR * (self._monotonic() - started))

    def _update_issues(self, now: datetime, started: float) -> float:
        if self._options.notifier is not None:
            self._options.notifier.ensure_started()
        with_figures = started >= self._figures_at
        if with_figures:
            self._figures_at = started + FIGURES_SECONDS
            log_row_security(self._inbox)
        update_issues(self._inbox, now, with_figures=with_figures)
        return max(ISSUES_SECONDS, PAUSE_FACTOR * (self._monotonic() - started))

    def _prune(self, now: datetime, started: float) -> float:
        """Prune one batch and return the pause after it. A pass skips what earlier ones of the day saw."""
        if started >= self._restart_at:
            self._after, self._restart_at = 0, started + RESTART_SECONDS
        cutoffs = Cutoffs.of(now, self._options.retention_days, self._options.key_days)
        batch = SERVER_BATCH_ROWS if self._inbox.database.is_remote else BATCH_ROWS
        result = self._inbox.prune(cutoffs, self._after, batch)
        self._after = result.after
        self._pruned += result.total
        if not result.over or self._inbox.compact_counts(now):
            took = self._monotonic() - started
            factor = QUICK_PAUSE_FACTOR if took <= QUICK_SECONDS else PAUSE_FACTOR
            return max(MIN_PAUSE_SECONDS, factor * took)
        self._inbox.prune_actions(now)
        if self._pruned:
            text = "pruned %d deliveries past their retention"
            logger.info(text, self._pruned, extra=fields(count=self._pruned))
            self._pruned = 0
        return EVERY_SECONDS


# --- in a web process ---------------------------------------------------------------------------------

LOOK_SECONDS = 30.0


class WorkerWatch:
    """Looks for workers from a thread; while none is alive, it opens the issue and notifies people.

    In a web process: a worker that is gone cannot report that itself.
    """

    def __init__(self, inbox: Inbox, now: Callable[[], datetime], notifier: Notifier | None) -> None:
        self._inbox = inbox
        self._now = now
        self._notifier = notifier
        self._reset()
        reset_in_child(self._reset)

    def _reset(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the thread in this process, unless it runs. Raises OutOfResources."""
        if self._thread is None or not self._thread.is_alive():
            self._stopping.clear()
            self._thread = start_thread(self._work, "billhook-worker-watch")

    def stop(self) -> None:
        """End the thread; a look is not waited for."""
        self._stopping.set()
        if self._notifier is not None:
            self._notifier.stop()

    def _work(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self.look(self._now())
            except BillhookError as error:
                logger.warning("could not look for workers: %s", error, extra=fields(cause=error))
            except Exception as error:
                logger.exception("could not look for workers", extra=fields(cause=error))

    def look(self, now: datetime) -> None:
        """Update the issues if no worker is alive to do it."""
        with self._inbox.database.read() as connection:
            gone = workers_gone_since(connection, now) is not None
        if gone:
            if self._notifier is not None:
                self._notifier.ensure_started()
            update_issues(self._inbox, now, with_figures=False)
