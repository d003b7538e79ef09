"""`billhook worker`: the process that calls the handlers, or the parent of several.

It shuts down gracefully: the first SIGTERM drains, the second exits at once, the grace period is a hard
limit.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import NoReturn

import click

from billhook.cli.context import (
    flask_arguments,
    load_app,
    reject_handlers_argument,
    user_app,
    worker_environment,
)
from billhook.cli.handlers import require_all_handled
from billhook.cli.params import FiniteNumber, handlers_argument, integer, require_all
from billhook.cli.processes import Child, HeartbeatSender, Supervisor, spawn, start_watchdog
from billhook.engines.worker import MAX_ABANDONED_THREADS
from billhook.errors import BillhookError, ConfigError
from billhook.extension import get_state
from billhook.inbox.deliveries import is_busy
from billhook.logs import set_up_logging
from billhook.state import BillhookState
from billhook.threads import start_thread

logger = logging.getLogger("billhook.worker")
_POLL_SECONDS = 0.2
_RELEASE_SECONDS = 3.0
"""After the grace period, to release leases: the storage may be slow or unavailable."""
_EXIT_SECONDS = 1.0


@click.command()
@handlers_argument
@integer("--threads", 1, 1_000, 8, "Handlers that run at the same time in each process.")
@integer("--processes", 1, 256, 1, "With two or more, a parent restarts those that die or hang.")
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
    reject_handlers_argument(handlers)
    if drain and processes > 1:
        raise click.UsageError("--drain works in one process: leave out --processes")
    open_standard_streams()
    heartbeat = HeartbeatSender(os.environ, health_file, heartbeats)
    environ = worker_environment(handlers)
    if user_app() is None:
        set_up_logging(environ.get("BILLHOOK_LOG_FORMAT"), show_process=True)
    # Built in the parent, too: a wrong configuration is reported before any process starts.
    state = get_state(load_app(environ))
    set_up_logging(state.settings.log_format, show_process=True)  # unless the user's app has done it
    if not state.handlers.count():
        raise ConfigError(
            "no handler is registered, and a worker without handlers would mark every delivery as done: name "
            "your modules or files as arguments or in BILLHOOK_HANDLERS"
        )
    state.require_schema()
    if require_all:
        require_all_handled(state.handlers)
    if processes == 1:
        _work(state, threads, grace, heartbeat, drain=drain, watched=watched)
    # New interpreters, not forks of this one: an app may have started threads when it was built.
    state.inbox.close()
    command = worker_command(threads, grace, flask=flask_arguments())
    supervisor = Supervisor(
        children=worker_children(processes, command, {**environ, "PYTHONUNBUFFERED": "1"}, grace),
        heartbeat=heartbeat,
        lease_seconds=state.settings.lease_seconds,
        log=logger.warning,
        lock_holder=state.inbox.database.write_lock_holder,
    )
    sys.exit(supervisor.run())


def worker_command(threads: int, grace_seconds: float, *, flask: Sequence[str] | None = None) -> list[str]:
    """Return the command of a supervised worker; its handlers come from the environment.

    `flask` has the arguments between `flask` and `billhook`, for a worker of the user's own app.
    """
    program = ["billhook"] if flask is None else ["flask", *flask, "billhook"]
    # -P keeps the current folder off sys.path, where a file of the user's named flask.py would be imported.
    command = [sys.executable, "-P", "-m", *program, "worker", "--watched"]
    return [*command, "--threads", str(threads), "--grace", f"{grace_seconds:g}"]


def worker_children(
    processes: int, command: Sequence[str], environ: Mapping[str, str], grace_seconds: float
) -> list[Child]:
    """Return `processes` workers for a supervisor."""

    def start(descriptor: int) -> subprocess.Popen[bytes]:
        return spawn([*command, "--heartbeats", str(descriptor)], environ, pass_fds=(descriptor,))

    names = ["the worker"] if processes == 1 else [f"worker {number + 1}" for number in range(processes)]
    # A worker keeps to its grace period by itself, so this one is longer.
    return [Child(name, start, grace_seconds + 5) for name in names]


def _work(
    state: BillhookState,
    threads: int,
    grace: float,
    heartbeat: HeartbeatSender,
    *,
    drain: bool,
    watched: bool,
) -> NoReturn:
    """Work until a signal, and exit."""
    worker = state.worker(threads)

    def stop() -> None:
        worker.stop()
        heartbeat.stopping()

    # Before the first claim: a signal that comes in between would end the process with its leases held.
    shutdown = GracefulShutdown(stop, grace, exit_on_second=not watched)
    if watched or heartbeat.is_external:
        # A parent ends a process whose handler keeps the interpreter; systemd and a platform have limits of
        # their own for that. A process whose loop stands still has a thread that could report otherwise.
        hang_seconds = state.settings.lease_seconds if watched else math.inf
        start_watchdog(heartbeat, hang_seconds, lambda: worker.is_stalled, worker.stop)
    if drain:
        start_thread(_end_when_idle, "billhook-drain", state, shutdown.request)
    logger.info("worker started with %d threads", threads)
    # Only a process that is restarted may give up on its abandoned threads: unwatched, nothing replaces it.
    worker.run(grace_seconds=grace, max_abandoned_threads=MAX_ABANDONED_THREADS if watched else math.inf)
    state.close()
    heartbeat.close()
    logger.info("worker stopped")
    shutdown.complete()
    sys.exit(shutdown.exit_code)


def open_standard_streams() -> None:
    """Open what is closed of the descriptors 0 to 2, or a file that is opened later would get the output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free


def _end_when_idle(state: BillhookState, end: Callable[[], None]) -> None:
    """Call `end` as soon as nothing is due; wait for an inbox that is unavailable."""
    while True:
        with suppress(BillhookError):
            if not is_busy(state.inbox, state.dispatcher.clock.now(), state.dispatcher.limits):
                break
        time.sleep(_POLL_SECONDS)
    end()


class GracefulShutdown:
    """Handles SIGTERM and SIGINT from its creation on. Create it in the main thread."""

    def __init__(self, stop: Callable[[], None], grace_seconds: float, *, exit_on_second: bool) -> None:
        """Call `stop` on the first signal; `exit_on_second`: exit on the second. Raises OutOfResources.

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
        start_thread(self._enforce_deadlines, "billhook-shutdown")
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
        self._deadlines.put(_EXIT_SECONDS)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # os._exit: sys.exit would run exit handlers and wait for threads, and this is for those that hang.
        if self._requested and self._exit_on_second:
            os._exit(1)
        if not self._requested:
            self._requested = True
            self._deadlines.put(self._grace_seconds + _RELEASE_SECONDS)
            self._stop()

    def _enforce_deadlines(self) -> None:
        """Exit when the latest deadline is over."""
        seconds: float | None = None
        with suppress(Empty):
            while True:
                seconds = self._deadlines.get(timeout=seconds)
        # os._exit writes out no buffers: without this, a handler's last output would be lost.
        for output in (sys.stdout, sys.stderr, *logging.getLogger().handlers):
            with suppress(Exception):
                output.flush()
        os._exit(self.exit_code)
