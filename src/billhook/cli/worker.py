"""`billhook worker`: the process that calls the handlers, or the parent of several.

It shuts down gracefully: the first SIGTERM drains, the second exits at once, the grace period is a hard
limit.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

import click

from billhook.cli.context import (
    flask_arguments,
    load_app,
    reject_handlers_argument,
    user_app,
    worker_environment,
)
from billhook.cli.handlers import handler_names, require_all_handled
from billhook.cli.liveness import LOCK_HOLDER_SECONDS, interval_seconds
from billhook.cli.params import FiniteNumber, handlers_argument, require_all
from billhook.errors import BillhookError, ConfigError
from billhook.logs import set_up_logging

if TYPE_CHECKING:
    from billhook.cli.liveness import Liveness
    from billhook.state import BillhookState

__all__ = ["worker"]

logger = logging.getLogger("billhook.worker")
_POLL_SECONDS = 0.2
_RELEASE_SECONDS = 3.0
"""After the grace period, to release leases: the storage may be slow or unavailable."""
_EXIT_SECONDS = 1.0
_MIN_SILENCE_SECONDS = 5.0


@click.command(short_help="Call the handlers of received deliveries.")
@handlers_argument
@click.option(
    "--threads",
    type=click.IntRange(1, 1_000),
    default=8,
    show_default=True,
    help="Handlers that run at the same time in each process.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="With two or more, a parent restarts those that die or hang.",
)
@click.option(
    "--grace", type=FiniteNumber(0, 3_600), default=25.0, show_default=True,
    help="Seconds that running handlers get to finish after SIGTERM.",
)  # fmt: skip
@click.option("--drain", is_flag=True, help="Exit when nothing is due: for cron and for tests.")
@click.option(
    "--health-file", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH",
    help="Touch this file each second while it works: for probes of containers.",
)  # fmt: skip
@require_all
@click.option("--watched", is_flag=True, hidden=True, help="A parent process restarts this one.")
@click.option("--heartbeats", type=int, hidden=True, help="The file descriptor of the pipe to that parent.")
def worker(
    handlers: Sequence[str],
    threads: int,
    processes: int,
    grace: float,
    drain: bool,
    health_file: Path | None,
    require_all: bool,
    watched: bool,
    heartbeats: int | None,
) -> None:
    """Call the handlers of received deliveries until SIGTERM or SIGINT; a second signal exits immediately.

    Start any number of workers with the same handlers: no two of them execute the same run at a time. A
    handler still running when the grace period ends is run again elsewhere once its lease expires. A handler
    that kills its process also ends the others in it; with --processes the other processes continue.

    \b
    Examples:
      billhook worker myshop/billing.py --threads 16
      billhook worker myshop/billing.py --processes 4
      flask --app myshop billhook worker
      billhook worker myshop/billing.py --drain
      billhook worker myshop/billing.py --health-file /tmp/billhook.alive
    """
    from billhook.cli.liveness import Liveness
    from billhook.extension import get_state

    _check(handlers, processes, drain=drain)
    liveness = Liveness(os.environ, health_file)
    environ = worker_environment(handlers)
    if user_app() is None:
        set_up_logging(environ.get("BILLHOOK_LOG_FORMAT"), show_process=True)
    # Built in the parent, too: a wrong configuration is reported before any process starts.
    state = get_state(load_app(environ))
    set_up_logging(state.settings.log_format, show_process=True)  # unless the user's app has done it
    _require_handlers(state)
    state.require_schema()
    if require_all:
        require_all_handled(state.handlers)
    if processes > 1:
        # New interpreters, not forks of this one: an app may have started threads when it was built.
        state.inbox.close()
        sys.exit(_supervise(state, processes, threads, grace, environ, liveness))
    _work(state, threads, grace, liveness, drain=drain, watched=watched, heartbeats=heartbeats)


def _check(handlers: Sequence[str], processes: int, *, drain: bool) -> None:
    reject_handlers_argument(handlers)
    if drain and processes > 1:
        raise click.UsageError("--drain works in one process: leave out --processes")


def _require_handlers(state: BillhookState) -> None:
    if not handler_names(state.handlers):
        raise ConfigError(
            "no handler is registered, and a worker without handlers would mark every delivery as done: name "
            "your modules or files as arguments or in BILLHOOK_HANDLERS"
        )


def _supervise(
    state: BillhookState,
    processes: int,
    threads: int,
    grace: float,
    environ: dict[str, str],
    liveness: Liveness,
) -> int:
    """Supervise `processes` workers; return the exit code."""
    from billhook.cli.processes import spawn_worker, worker_command
    from billhook.cli.supervisor import Supervisor, worker_roles

    command = worker_command(threads, grace, flask=flask_arguments())
    start = partial(spawn_worker, command, {**environ, "PYTHONUNBUFFERED": "1"})
    lock_holder = state.inbox.database.write_lock_holder
    roles = worker_roles(processes, start, grace, state.settings.lease_seconds, lock_holder)
    with Supervisor(roles, log=logger.warning, beat=liveness.beat, on_stop=liveness.stopping) as supervisor:
        code = supervisor.run()
    liveness.close()
    return code


def _work(
    state: BillhookState,
    threads: int,
    grace: float,
    liveness: Liveness,
    *,
    drain: bool,
    watched: bool,
    heartbeats: int | None,
) -> None:
    from billhook.cli.liveness import HeartbeatSender
    from billhook.engines.worker import MAX_ABANDONED_THREADS

    worker = state.worker(threads)

    def stop() -> None:
        worker.stop()
        liveness.stopping()

    # Before the first claim: a signal that comes in between would end the process with its leases held.
    shutdown = GracefulShutdown(stop, grace, exit_on_second=not watched)
    if watched:
        start_watchdog(
            state.settings.lease_seconds,
            _no_heartbeat if heartbeats is None else HeartbeatSender(heartbeats).beat,
        )
    elif liveness.is_used:
        # systemd or the platform starts it again; their own limits say how long a handler may keep the
        # interpreter otherwise.
        start_watchdog(math.inf, _no_heartbeat)
    if liveness.is_used:
        # A process whose loop hangs has a thread that could go on telling that all is well.
        start_heartbeat(lambda: None if worker.is_stalled else liveness.beat(), liveness.interval_seconds)
    if drain:
        threading.Thread(target=_end_when_idle, args=(state, shutdown.request), daemon=True).start()
    logger.info("worker started with %d threads", threads)
    # Only a process that is restarted may give up on its abandoned threads: unwatched, nothing replaces it.
    worker.run(grace_seconds=grace, max_abandoned_threads=MAX_ABANDONED_THREADS if watched else math.inf)
    state.close()
    liveness.close()
    logger.info("worker stopped")
    shutdown.complete()
    sys.exit(shutdown.exit_code)


def _no_heartbeat() -> None:
    """Send no heartbeat: there is no pipe to a parent."""


def _end_when_idle(state: BillhookState, end: Callable[[], None]) -> None:
    """Call `end` as soon as nothing is due; wait for an inbox that is unavailable."""
    from billhook.inbox.admin import is_busy

    while True:
        with suppress(BillhookError):
            if not is_busy(state.inbox, state.dispatcher.clock.now()):
                break
        time.sleep(_POLL_SECONDS)
    end()


class GracefulShutdown:
    """Handles SIGTERM and SIGINT from its creation on. Create it in the main thread."""

    def __init__(self, stop: Callable[[], None], grace_seconds: float, *, exit_on_second: bool) -> None:
        """Call `stop` on the first signal. `exit_on_second`: exit at once on the second.

        A supervised process ignores the second signal: systemd and terminals signal parent and child alike,
        and the parent kills when it wants an immediate end.
        """
        self._stop = stop
        self._grace_seconds = grace_seconds
        self._exit_on_second = exit_on_second
        self._requested = False
        self._done = False
        # The only queue that is safe in a signal handler, which can interrupt any code.
        self._deadlines: SimpleQueue[float] = SimpleQueue()
        threading.Thread(target=self._enforce_deadline, name="billhook-shutdown", daemon=True).start()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    @property
    def exit_code(self) -> int:
        """0 if the shutdown was requested and completed."""
        return 0 if self._requested and self._done else 1

    def request(self) -> None:
        """Shut down as on a first signal, without its time limit. Call it from any thread."""
        self._requested = True
        self._stop()

    def complete(self) -> None:
        """Note that the work is done; exit soon even if threads of the user's code still run."""
        self._done = True
        # Python waits for threads that are no daemons before it exits; a handler's may never end.
        threading.Thread(target=self._exit_after, args=(_EXIT_SECONDS,), daemon=True).start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # os._exit: sys.exit would run exit handlers and wait for threads, and this is for those that hang.
        if self._requested and self._exit_on_second:
            os._exit(1)
        if not self._requested:
            self._requested = True
            self._deadlines.put(self._grace_seconds + _RELEASE_SECONDS)
            self._stop()

    def _enforce_deadline(self) -> None:
        self._exit_after(self._deadlines.get())

    def _exit_after(self, seconds: float) -> None:
        time.sleep(seconds)
        # os._exit writes out no buffers: without this, a handler's last output would be lost.
        for output in (sys.stdout, sys.stderr, *logging.getLogger().handlers):
            with suppress(Exception):
                output.flush()
        os._exit(self.exit_code)


def start_watchdog(lease_seconds: float, beat: Callable[[], None]) -> None:
    """Exit with a traceback of every thread if no Python code has run for a lease's length.

    A handler can hang while it holds the interpreter lock, for example in a regular expression: then no
    thread can time it out or renew a lease. faulthandler's timer is written in C and needs no lock. `beat`
    tells the parent that this process runs, because a stopped process cannot watch itself. While it holds the
    write lock of an inbox in SQLite the limit is LOCK_HOLDER_SECONDS; a slow disk is no silence.
    """
    from billhook.inbox.sqlite.locks import HOLDING

    seconds = max(_MIN_SILENCE_SECONDS, lease_seconds)
    pause = min(seconds / 8, interval_seconds(lease_seconds))

    # Not sys.stderr, which a handler may replace by what has no descriptor, or close.
    output = _kept_error_output()

    def renew() -> None:
        # Each call replaces the timer before: it fires only if no thread comes back in time.
        with suppress(Exception):  # no thread can be started now: the next call tries again
            limit = min(seconds, LOCK_HOLDER_SECONDS) if HOLDING.now else seconds
            if limit < math.inf:
                faulthandler.dump_traceback_later(limit, exit=True, file=output)
            else:
                faulthandler.cancel_dump_traceback_later()

    def keep_alive() -> None:
        renew()
        beat()

    # While this process holds SQLite's write lock no other can write, and the receiver refuses everything.
    HOLDING.changed = renew
    start_heartbeat(keep_alive, pause)


def _kept_error_output() -> int:
    """Return a descriptor that leads to standard error for as long as this process lives."""
    try:
        return os.dup(2)
    except OSError:  # it is closed
        return os.open(os.devnull, os.O_WRONLY)


def start_heartbeat(beat: Callable[[], None], pause_seconds: float) -> None:
    """Call `beat` from a thread of its own, again and again, for as long as Python code runs here."""

    def keep_alive() -> None:
        # If the parent is gone, `beat` must get an error, also if the user's code has changed SIGPIPE.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
        while True:
            beat()
            time.sleep(pause_seconds)

    threading.Thread(target=keep_alive, name="billhook-watch", daemon=True).start()
