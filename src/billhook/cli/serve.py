"""`billhook serve`: gunicorn and workers, with nothing else to set up."""

from __future__ import annotations

import logging
import os
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
from flask import Flask

from billhook.cli.context import load_app, worker_environment
from billhook.cli.handlers import require_all_handled
from billhook.cli.params import (
    BIND,
    DEFAULT_BIND,
    check_bindable,
    handlers_argument,
    integer,
    is_local,
    require_all,
)
from billhook.cli.processes import Child, HeartbeatSender, Supervisor, spawn
from billhook.cli.worker import open_standard_streams, worker_children, worker_command
from billhook.extension import get_state
from billhook.gunicorn_compat import check_gunicorn
from billhook.logs import fields

logger = logging.getLogger("billhook.serve")

_WORKER_THREADS = 8
_WORKER_GRACE_SECONDS = 25.0
# Loads the handlers, and exits with 0 if it can; it builds no inbox and starts no thread.
_TRIAL_COMMAND = [sys.executable, "-P", "-m", "billhook", "handlers", "--json"]
# Longer than gunicorn_conf.graceful_timeout, after which gunicorn ends its own workers.
_WEB_GRACE_SECONDS = 25.0


@click.command()
@handlers_argument
@click.option("--bind", type=BIND, default=DEFAULT_BIND, show_default=True, help="HOST:PORT or unix:PATH.")
@integer("--workers", 1, 64, 2, "Web server processes.")
@integer("--threads", 1, 256, 16, "With gthread: threads of each web server process.")
@click.option(
    "--worker-class",
    type=click.Choice(["asgi", "gthread"]),
    default="asgi",
    show_default=True,
    help="How a web server process takes requests: on an event loop, or each in a thread.",
)
@integer("--worker-processes", 1, 256, 1, "Processes that call the handlers.")
@require_all
@click.option("--reload", is_flag=True, help="Load the handlers anew when their files change.")
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

    \b
    Examples:
      BILLHOOK_SECRETS_FILE=secret.txt billhook serve myshop/billing.py
      billhook serve myshop/billing.py --reload
      billhook serve myshop.billing myshop.audit --bind 127.0.0.1:8080 --workers 4
    """
    open_standard_streams()
    if worker_class != "gthread":
        check_gunicorn()
    heartbeat = HeartbeatSender(os.environ)
    # Unbuffered, so that the output of a handler appears immediately.
    environ = {**worker_environment(handlers), "PYTHONUNBUFFERED": "1"}
    # Built here once: a wrong configuration is reported before any process starts.
    app = load_app(environ)
    state = get_state(app)
    if require_all:
        require_all_handled(state.handlers)
    web_threads = threads if worker_class == "gthread" else None
    _announce(app, bind, workers, web_threads)

    own = [int(bind.removeprefix("fd://"))] if bind.startswith("fd://") else []

    def start_web(descriptor: int) -> subprocess.Popen[bytes]:
        return spawn(web_command(bind, workers, web_threads), environ, pass_fds=own)

    command = worker_command(_WORKER_THREADS, _WORKER_GRACE_SECONDS)
    supervisor = Supervisor(
        children=[
            Child("the web server", start_web, _WEB_GRACE_SECONDS, is_web_server=True),
            *worker_children(worker_processes, command, environ, _WORKER_GRACE_SECONDS),
        ],
        heartbeat=heartbeat,
        lease_seconds=state.settings.lease_seconds,
        log=logger.warning,
        lock_holder=state.inbox.database.write_lock_holder,
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

    Each of `threads` takes one request at a time; without it, an event loop takes them all.
    """
    # The gunicorn of this interpreter, not one that PATH finds; -P keeps the current folder off sys.path,
    # where a file of the user's named gunicorn.py would be imported instead.
    command = [sys.executable, "-P", "-m", "gunicorn", "--config", "python:billhook.gunicorn_conf"]
    command += ["--bind", bind, "--workers", str(workers)]
    if threads is None:
        return [*command, "billhook.standalone:create_asgi_app()"]
    # Fewer connections than the configuration allows: gthread ends a process that runs out of files.
    command += ["--worker-class", "gthread", "--threads", str(threads), "--worker-connections", "1000"]
    return [*command, "billhook.standalone:create_app()"]


def _announce(app: Flask, bind: str, workers: int, web_threads: int | None) -> None:
    """Print what is served where. Raises an error for an address that cannot be bound."""
    state = get_state(app)
    handlers = state.handlers.count()
    # The children open connections of their own; this process only watches them.
    state.inbox.close()
    at = f"http://{bind}" if not bind.startswith(("unix:", "fd:")) else f"{bind} "
    lines = [
        f"Deliveries: POST {at}{state.mounts[0]}",
        f"Inbox:      {state.inbox.database.display_url}",
        f"Handlers:   {handlers}",
    ]
    if state.settings.dashboard is not None:
        lines.append(f"Dashboard:  {at}/billhook/")
    if state.settings.metrics_token_file is not None:
        lines.append(f"Metrics:    {at}/metrics")
    if not handlers:
        lines.append("No handler is registered: deliveries are stored, but not handled.")
    if not is_local(bind):
        risk = "deliveries are not encrypted"
        if web_threads is not None:
            risk += f", and {workers * web_threads} clients that send their headers slowly block the server"
        proxy = "put a proxy such as nginx in front (see deploy/)"
        lines.append(f"Other machines can reach {bind}: {proxy}. Without it, {risk}.")
    check_bindable(bind)
    try:
        click.echo("\n".join(lines))
    except OSError as error:  # a full disk: what comes in later is stored, or refused for its own reason
        logger.warning("cannot write to standard output: %s", error.strerror, extra=fields(cause=error))
        sys.stdout = None  # Python would fail to write it out at the end, too
