"""`billhook serve`: gunicorn and workers, with nothing else to set up; `billhook worker`: those alone.

A worker is a process, or the parent of several. It shuts down gracefully: the first SIGTERM drains, the
second exits at once, the grace period is a hard limit.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import signal
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import NoReturn

import click
from flask import Flask

from billhook.basics.concurrency import start_thread
from billhook.basics.engine_kinds import DRAIN, WORKER
from billhook.basics.printable import counted
from billhook.cli.context import flask_arguments, handlers_argument, load_app, user_app, worker_environment
from billhook.cli.deaths import DeathRecorder
from billhook.cli.handlers import require_all_handled
from billhook.cli.params import (
    BIND,
    DEFAULT_BIND,
    FiniteNumber,
    check_bindable,
    flag,
    integer,
    is_local,
    option,
    require_all,
    take_passed_sockets,
)
from billhook.clock import format_time
from billhook.engines.worker import MAX_ABANDONED_THREADS
from billhook.errors import BillhookError, ConfigError
from billhook.extension import get_state
from billhook.extension.state import BillhookState
from billhook.inbox.reading.deliveries import is_busy
from billhook.inbox.running.due import next_times
from billhook.inbox.running.handler_lists import EVERY_TYPE, count_left_out
from billhook.inbox.watching.overview import read_state
from billhook.logs import fields, set_up_logging
from billhook.supervising.heartbeat import HeartbeatSender, start_watchdog
from billhook.supervising.processes import Child, Process, Supervisor, spawn

_logger = logging.getLogger("billhook.serve")
_worker_logger = logging.getLogger("billhook.worker")

_WORKER_THREADS = 8
_WORKER_GRACE_SECONDS = 25.0
# Loads the handlers, and exits with 0 if it can; it builds no inbox and starts no thread.
_TRIAL_COMMAND = [sys.executable, "-P", "-m", "billhook", "handlers", "--json"]
# Longer than gunicorn_conf.graceful_timeout, after which gunicorn ends its own workers.
_WEB_GRACE_SECONDS = 25.0
_POLL_SECONDS = 0.2
_RELEASE_SECONDS = 3.0
"""After the grace period, to release leases: the storage may be slow or unavailable."""
_EXIT_SECONDS = 1.0


@click.command()
@handlers_argument
@option("--bind", "HOST:PORT or unix:PATH.", BIND, default=DEFAULT_BIND)
@integer("--workers", 1, 64, 2, "Web server processes.")
@integer("--threads", 1, 256, 16, "With gthread: threads of each web server process.")
@option(
    "--worker-class",
    "How a web server process takes requests: on an event loop, or each in a thread.",
    click.Choice(["asgi", "gthread"]),
    default="asgi",
)
@integer("--worker-processes", 1, 256, 1, "Processes that call the handlers.")
@require_all
@flag("--reload", "Load the handlers anew when their files change.")
def serve(
    handlers: Sequence[str],
    bind: str,
    workers: int,
    threads: int,
    worker_class: str,
    worker_processes: int,
    require_all: bool,
    reload: bool,
) -> None:
    """Receive and handle deliveries: gunicorn, a worker process, and an inbox in ./billhook.db.

    HANDLERS are modules or .py files that define a billhook.Handlers or connect receivers to its signals;
    the default is BILLHOOK_HANDLERS. SIGTERM or SIGINT stops it gracefully, a second signal immediately.
    SIGHUP reloads the handlers without refusing a connection; if they cannot be loaded, the running
    processes continue with the old ones. With --reload a changed file does the same, for development: it
    watches the .py files beside the handlers and beside all that they import, except installed packages.
    Under a socket unit of systemd it listens on the sockets that systemd passes (LISTEN_FDS), not on --bind.

    \b
    Examples:
      BILLHOOK_SECRETS_FILE=secret.txt billhook serve myshop/billing.py
      billhook serve myshop/billing.py --reload
      billhook serve myshop.billing myshop.audit --bind 127.0.0.1:8080 --workers 4
    """
    open_standard_streams()
    heartbeat = HeartbeatSender(os.environ)
    sockets = take_passed_sockets(os.environ)
    binds = list(sockets.values()) or [bind]
    web_threads = threads if worker_class == "gthread" else None
    web = web_command(binds[0], workers, web_threads)
    # Unbuffered, so that the output of a handler appears immediately.
    environ = {**worker_environment(handlers), "PYTHONUNBUFFERED": "1"}
    # Built here once: a wrong configuration is reported before any process starts.
    app = load_app(environ)
    state = get_state(app)
    if require_all:
        require_all_handled(state.handlers)
    if sockets and bind != DEFAULT_BIND:
        _logger.warning("--bind %s is not used: systemd passes the sockets to listen on", bind)
    _announce(app, binds, workers, web_threads, check=not sockets)
    own = list(sockets) or ([int(bind.removeprefix("fd://"))] if bind.startswith("fd://") else [])
    passed = {"LISTEN_FDS": str(len(sockets))} if sockets else {}

    def start_web(descriptor: int) -> Process:
        told = {**environ, **passed, "SERVE_READY_FD": str(descriptor)}  # see billhook.gunicorn_conf
        return spawn(web, told, pass_fds=[descriptor, *own])

    command = worker_command(_WORKER_THREADS, _WORKER_GRACE_SECONDS)
    supervisor = Supervisor(
        children=[
            Child("the web server", start_web, _WEB_GRACE_SECONDS, is_web_server=True),
            *worker_children(worker_processes, command, environ, _WORKER_GRACE_SECONDS),
        ],
        heartbeat=heartbeat,
        lease_seconds=state.settings.lease_seconds,
        log=_logger.warning,
        lock_holder=state.inbox.database.write_lock_holder,
        record_death=DeathRecorder(state.inbox, state.watch).record,
        start_trial=partial(spawn, _TRIAL_COMMAND, environ, stdout=subprocess.DEVNULL),
        is_changed=SourceFiles().is_changed if reload else lambda: False,
    )
    sys.exit(supervisor.run())


class SourceFiles:
    """The Python files beside the modules that this process has loaded, but not of installed packages."""

    def __init__(self) -> None:
        installed = [*site.getsitepackages(), site.getusersitepackages(), sysconfig.get_path("stdlib")]
        installed.append(str(Path(__file__).parents[1]))  # billhook, which may be in a checkout
        excluded = tuple(folder + os.sep for folder in installed)
        files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
        self._folders = {Path(file).parent for file in files if file and not file.startswith(excluded)}
        self._times = self._read()
        self._next_at = 0.0

    def is_changed(self) -> bool:
        """Return whether a file is new, gone or another since the last look; look once a second."""
        now = time.monotonic()
        if now < self._next_at:
            return False
        self._next_at = now + 1.0
        before, self._times = self._times, self._read()
        return before != self._times

    def _read(self) -> dict[Path, int]:
        times = {}
        for folder in self._folders:
            for file in folder.glob("*.py"):
                with suppress(OSError):  # it is gone since
                    times[file] = file.stat().st_mtime_ns
        return times


def web_command(bind: str, workers: int, threads: int | None = None) -> list[str]:
    """Return the command of gunicorn with the settings that the package ships.

    Each of `threads` takes one request at a time; without it, an event loop takes them all, and another
    gunicorn than it is made for raises ConfigError.
    """
    # The gunicorn of this interpreter, not one that PATH finds; -P keeps the current folder off sys.path,
    # where a file of the user's named gunicorn.py would be imported instead.
    command = [sys.executable, "-P", "-m", "gunicorn", "--config", "python:billhook.gunicorn_conf"]
    command += ["--bind", bind, "--workers", str(workers)]
    from billhook.servers.gunicorn_compat import check_gunicorn, check_threads

    if threads is None:
        check_gunicorn()
        return [*command, "billhook.standalone:create_asgi_app()"]
    check_threads()
    # Fewer connections than the configuration allows: gthread ends a process that runs out of files.
    command += ["--worker-class", "gthread", "--threads", str(threads), "--worker-connections", "1000"]
    return [*command, "billhook.standalone:create_app()"]


def _announce(
    app: Flask, binds: Sequence[str], workers: int, web_threads: int | None, *, check: bool
) -> None:
    """Print what is served where; `check`: raise an error for an address that cannot be bound."""
    state = get_state(app)
    handlers = state.handlers.count()
    # The children open connections of their own; this process only watches them.
    state.inbox.close()
    at, *others = [f"{bind} " if bind.startswith(("unix:", "fd:")) else f"http://{bind}" for bind in binds]
    lines = [
        f"Deliveries: POST {at}{state.mounts[0]}",
        *(f"            POST {other}{state.mounts[0]}" for other in others),
        f"Inbox:      {state.inbox.database.display_url}",
        f"Handlers:   {handlers}",
    ]
    if state.settings.dashboard is not None:
        lines.append(f"Dashboard:  {at}/billhook/")
    if state.settings.metrics_token_file is not None:
        lines.append(f"Metrics:    {at}/metrics")
    if not handlers:
        lines.append("No handler is registered: deliveries are stored, but not handled.")
    if open_to_others := [bind for bind in binds if not is_local(bind)]:
        risk = "deliveries are not encrypted"
        if web_threads is not None:
            risk += f", and {workers * web_threads} clients that send their headers slowly block the server"
        proxy = "put a proxy such as nginx in front (see deploy/)"
        reachable = " and ".join(open_to_others)
        lines.append(f"Other machines can reach {reachable}: {proxy}. Without it, {risk}.")
    for bind in binds if check else ():
        check_bindable(bind)
    try:
        click.echo("\n".join(lines))
    except OSError as error:  # a full disk: what comes in later is stored, or refused for its own reason
        _logger.warning("cannot write to standard output: %s", error.strerror, extra=fields(cause=error))
        sys.stdout = None  # Python would fail to write it out at the end, too


@click.command()
@handlers_argument
@integer("--threads", 1, 1_000, 8, "Handlers that run at the same time in each process.")
@integer("--processes", 1, 256, 1, "With two or more, a parent restarts those that die or hang.")
@option(
    "--grace",
    "Seconds that running handlers get to finish after SIGTERM.",
    FiniteNumber(0, 3_600),
    default=25.0,
)
@flag("--drain", "Exit when nothing is due: for cron and for tests.")
@option(
    "--health-file PATH",
    "Touch this file each second while it works: for probes of containers.",
    click.Path(dir_okay=False, path_type=Path),
)
@require_all
@flag("--watched", "A parent process restarts this one.", hidden=True)
@option("--heartbeats", "The file descriptor of the pipe to that parent.", int, hidden=True)
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
    handler still running when the grace period ends is run again elsewhere after BILLHOOK_LEASE_SECONDS. A
    handler that kills its process also ends the others in it; with --processes the other processes continue.

    \b
    Examples:
      billhook worker myshop/billing.py --threads 16
      billhook worker myshop/billing.py --processes 4
      flask --app myshop billhook worker
      billhook worker myshop/billing.py --drain
      billhook worker myshop/billing.py --health-file /tmp/billhook.alive
    """
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
        _work(state, heartbeat, threads, grace, drain=drain, watched=watched)
    # New interpreters, not forks of this one: an app may have started threads when it was built.
    state.inbox.close()
    command = worker_command(threads, grace, flask=flask_arguments())
    supervisor = Supervisor(
        children=worker_children(processes, command, {**environ, "PYTHONUNBUFFERED": "1"}, grace),
        heartbeat=heartbeat,
        lease_seconds=state.settings.lease_seconds,
        log=_worker_logger.warning,
        lock_holder=state.inbox.database.write_lock_holder,
        record_death=DeathRecorder(state.inbox, state.watch).record,
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

    def start(descriptor: int) -> Process:
        return spawn([*command, "--heartbeats", str(descriptor)], environ, pass_fds=(descriptor,))

    names = ["the worker"] if processes == 1 else [f"worker {number + 1}" for number in range(processes)]
    # A worker keeps to its grace period by itself, so this one is longer.
    return [Child(name, start, grace_seconds + 5) for name in names]


def _work(
    state: BillhookState,
    heartbeat: HeartbeatSender,
    threads: int,
    grace: float,
    *,
    drain: bool,
    watched: bool,
) -> NoReturn:
    """Work until a signal, and exit."""
    worker = state.worker(threads, DRAIN if drain else WORKER)

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
    _worker_logger.info("worker started with %d threads", threads)
    # What is imported lives until the process ends, and a full collection of garbage would walk it.
    gc.collect()
    gc.freeze()
    # Only a process that is restarted may give up on its abandoned threads: unwatched, nothing replaces it.
    worker.run(grace_seconds=grace, max_abandoned_threads=MAX_ABANDONED_THREADS if watched else math.inf)
    if drain:
        _log_waiting(state)
    state.close()
    heartbeat.close()
    _worker_logger.info("worker stopped")
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
            lists, now = state.dispatcher.lists, state.dispatcher.clock.now()
            if not is_busy(state.inbox, now, state.dispatcher.limits, lists.types, lists.may_claim):
                break
        time.sleep(_POLL_SECONDS)
    end()


def _log_waiting(state: BillhookState) -> None:
    """Log how many runs are left for later, by a rate or as a retry, and when the first may start."""
    with suppress(BillhookError):
        types = state.dispatcher.lists.types
        with state.inbox.database.read() as connection:
            next_at = next_times(connection, state.dispatcher.limits).due_at
            left = 0 if types == EVERY_TYPE else count_left_out(connection, types)
        if left:
            text = "left to processes with the newest handlers: %s"
            _worker_logger.info(text, counted(left, "delivery"), extra=fields(count=left))
        backlogs = read_state(state.inbox, state.dispatcher.clock.now()).handler_backlogs
        for one in backlogs:
            if one.paused:
                _worker_logger.info("left, as %s is paused: %s", one.name, counted(one.paused, "run"))
        waiting = sum(one.unfinished - one.paused for one in backlogs)
        if waiting and next_at is not None:
            text = "left for later: %s, the first until %s UTC"
            runs = counted(waiting, "run")
            _worker_logger.info(text, runs, format_time(next_at), extra=fields(count=waiting))


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
