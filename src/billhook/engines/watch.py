"""Look for issues and have people told, from a thread: in workers, in web processes, or once for a timer.

    a worker            at its start, then every 5 s
    a web process       while no other process has looked for 30 s: workers may have died
    `notify send`       once

Each of them sends what is due if it has addresses. No request and no handler waits for it; but a worker that
starts where others have died looks and sends before it takes a run, which may be the one that ends it too.
The look of a worker counts for web processes once it has lived for 30 s: those of workers that die again and
again are over before they have told anybody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from billhook.basics.concurrency import reset_in_child, start_thread
from billhook.basics.printable import printable
from billhook.engines.reporting import log_row_security
from billhook.errors import BillhookError, ConfigError, OutOfResources
from billhook.inbox import Inbox
from billhook.inbox.watching.deaths import record_deaths
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.notifications import looked_at, record_look
from billhook.logs import LimitedLog, fields
from billhook.notify import Notifier, OutageNotifier, Writer, read_addresses, state_folders
from billhook.notify.outage import is_outage
from billhook.settings import Settings

logger = logging.getLogger("billhook.engines")

LOOK_SECONDS = 5.0
"""The pause between two looks. One that failed is repeated as soon: its cause may be the issue."""
WEB_PATIENCE = timedelta(seconds=30)
COUNTS_AFTER_SECONDS = 30.0
"""How long a worker must have lived for web processes to leave looking to it."""
WEB_SECONDS = 10.0
"""How often a web process checks whether another process looks."""
FIGURES_SECONDS = 60.0
"""The pause between two looks for silence and refusals, which are read from the figures."""
PAUSE_FACTOR = 9
"""Sleep nine times as long as a look took, so that it uses at most 10 % of the database's time."""
STOP_SECONDS = 1.0
FAILED_LOG_SECONDS = 60.0


@dataclass(eq=False, repr=False)
class Watch:
    """Looks and has people told, until it is stopped."""

    inbox: Inbox
    now: Callable[[], datetime]
    notifier: Notifier | None = None
    outage: OutageNotifier | None = None

    def __post_init__(self) -> None:
        self._failures = LimitedLog(logger, interval_seconds=FAILED_LOG_SECONDS)
        self._reset()
        reset_in_child(self._reset)

    @classmethod
    def of(cls, inbox: Inbox, settings: Settings, now: Callable[[], datetime]) -> Watch:
        """Return the watch of a process with these options. Wrong addresses are logged, others are used."""
        path = settings.notify_file
        try:
            addresses, errors = ([], []) if path is None else read_addresses(path)
        except ConfigError as error:
            addresses, errors = [], [error]
        for wrong in errors:
            text = "addresses that are notified of issues: %d; %s"
            logger.error(text, len(addresses), wrong, extra=fields(cause="notify"))
        if path is None or not addresses:
            return cls(inbox, now)
        writer = Writer(settings.dashboard_url, settings.environment)
        shown = inbox.database.display_url
        outage = OutageNotifier(addresses, writer, shown, state_folders(shown, path))
        return cls(inbox, now, Notifier(inbox, addresses, now, writer), outage)

    def _reset(self) -> None:
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()  # with the engine `thread` both it and the web process start it
        self._stopping = False
        self._woken = threading.Event()
        self._patience: timedelta | None = None
        self._figures_at = self._counts_at = 0.0
        self._first_look = self._first_look_over = False
        self._recorded_at: datetime | None = None
        """When this process last recorded a look: it goes on until another process looks."""
        self.failed = False
        """Whether the last look failed."""

    def start(self, patience: timedelta | None = None, *, hurry: bool = False) -> None:
        """Start the thread in this process, unless it runs. It leaves looking to others for `patience`.

        Without it, it looks at once; in a `hurry` at what costs least. See `is_first_look_over`.
        """
        with self._starting:
            is_running = self._thread is not None and self._thread.is_alive()
            if patience is None or not is_running:
                self._patience = patience
            if patience is None:
                now = time.monotonic()
                self._counts_at = now + COUNTS_AFTER_SECONDS
                self._figures_at = now + LOOK_SECONDS if hurry else 0.0
                self._first_look, self._first_look_over = True, False
                self._woken.set()
            if not is_running:
                self._stopping = False
                try:
                    self._thread = start_thread(self._work, "billhook-watch")
                except OutOfResources as error:
                    self._failures.log("thread", logging.WARNING, str(error), cause=error)

    @property
    def is_first_look_over(self) -> bool:
        """Whether it has looked and sent since `start` without patience, or cannot."""
        return self._first_look_over or self._thread is None or not self._thread.is_alive()

    def stop(self) -> None:
        """End the thread; a message that is being sent is not waited for."""
        self._stopping = True
        self._woken.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(STOP_SECONDS)
            if not thread.is_alive():
                self.close()

    def close(self) -> None:
        """Let another process send."""
        if self.notifier is not None:
            self.notifier.stop()

    def _work(self) -> None:
        pause = 0.0 if self._patience is None else WEB_SECONDS
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self._stopping:
                return
            is_first, self._first_look = self._first_look, False
            pause = self.look_and_send()
            self._first_look_over |= is_first

    def look_and_send(self) -> float:
        """Do it once; return the seconds until the next time. It logs what fails, and does not raise."""
        started = time.monotonic()
        took = 0.0
        self.failed = True
        try:
            self._look(started)
            took = time.monotonic() - started
            if self.outage is not None:
                self.outage.readable()
            if self.notifier is not None:
                self.notifier.send_due()
            self.failed = False
        except BillhookError as error:
            text = f"could not look for issues, retrying in {LOOK_SECONDS:.0f} s: {printable(str(error))}"
            self._failures.log("look", logging.WARNING, text, cause=error)
            if self.outage is not None and is_outage(error):
                try:
                    self.outage.unreadable(error)
                except Exception as failure:
                    text = "could not tell that the inbox cannot be read"
                    logger.exception(text, extra=fields(cause=failure))
        except Exception as error:
            logger.exception("could not look for issues", extra=fields(cause=error))
        return max(LOOK_SECONDS if self._patience is None else WEB_SECONDS, PAUSE_FACTOR * took)

    def _look(self, started: float) -> None:
        now = self.now()
        if self._patience is not None:
            others_at = looked_at(self.inbox)
            if others_at != self._recorded_at and now - others_at < self._patience:
                return
        record_deaths(self.inbox, now)
        with_figures = started >= self._figures_at
        if with_figures:
            self._figures_at = started + FIGURES_SECONDS
            log_row_security(self.inbox)
        update_issues(self.inbox, now, with_figures=with_figures)
        if started >= self._counts_at:
            self._recorded_at = record_look(self.inbox, now)
