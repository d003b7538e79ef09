"""`billhook serve`: gunicorn and workers, with nothing else to set up."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from billhook.cli.context import load_app, worker_environment
from billhook.cli.handlers import handler_names, require_all_handled
from billhook.cli.params import BIND, DEFAULT_BIND, check_bindable, handlers_argument, is_local, require_all
from billhook.logs import fields

if TYPE_CHECKING:
    from flask import Flask

__all__ = ["serve"]

logger = logging.getLogger("billhook.serve")

_WORKER_THREADS = 8
_WORKER_GRACE_SECONDS = 25.0
# Longer than gunicorn_conf.graceful_timeout, after which gunicorn ends its own workers.
_WEB_GRACE_SECONDS = 25.0


@click.command(short_help="Receive and handle deliveries: gunicorn and a worker.")
@handlers_argument
@click.option("--bind", type=BIND, default=DEFAULT_BIND, show_default=True, help="HOST:PORT or unix:PATH.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Web server processes."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=16,
    show_default=True,
    help="With gthread: threads of each web server process.",
)
@click.option(
    "--worker-class",
    type=click.Choice(["asgi", "gthread"]),
    default="asgi",
    show_default=True,
    help="How a web server process takes requests: on an event loop, or each in a thread.",
)
@click.option(
    "--worker-processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Processes that call the handlers.",
)
@require_all
def serve(
    handlers: Sequence[str],
    bind: str,
    workers: int,
    threads: int,
    worker_class: str,
    worker_processes: int,
    require_all: bool,
) -> None:
    """Receive and handle deliveries: gunicorn, a worker process, and an inbox in ./billhook.db.

    HANDLERS are modules or .py files that define a billhook.Handlers or connect receivers to its signals;
    the default is BILLHOOK_HANDLERS. SIGTERM or SIGINT stops it gracefully, a second signal immediately.
    SIGHUP reloads the handlers without refusing a connection; if they cannot be loaded, the running
    processes continue with the old ones.

    \b
    Examples:
      BILLHOOK_SECRETS_FILE=secret.txt billhook serve myshop/billing.py
      billhook serve myshop.billing myshop.audit --bind 127.0.0.1:8080 --workers 4
    """
    from billhook.cli.processes import spawn, spawn_worker, trial_command, web_command, worker_command
    from billhook.cli.supervisor import Role, Supervisor, worker_roles
    from billhook.extension import get_state

    _open_standard_streams()
    if worker_class != "gthread":
        from billhook.gunicorn_compat import check_gunicorn

        check_gunicorn()
    # Unbuffered, so that the output of a handler appears immediately.
    environ = {**worker_environment(handlers), "PYTHONUNBUFFERED": "1"}
    # Built here once: a wrong configuration is reported before any process starts.
    app = load_app(environ)
    state = get_state(app)
    if require_all:
        require_all_handled(state.handlers)
    web_threads = threads if worker_class == "gthread" else None
    _announce(app, bind, workers, web_threads)
    start_web = partial(spawn, web_command(bind, workers, web_threads), environ, pass_fds=_descriptors(bind))
    start_worker = partial(spawn_worker, worker_command(_WORKER_THREADS, _WORKER_GRACE_SECONDS), environ)
    with Supervisor(
        [
            Role("the web server", start_web, _WEB_GRACE_SECONDS, vital=True, reload=signal.SIGHUP),
            *worker_roles(
                worker_processes,
                start_worker,
                _WORKER_GRACE_SECONDS,
                state.settings.lease_seconds,
                state.inbox.database.write_lock_holder,
            ),
        ],
        log=logger.warning,
        trial=partial(spawn, trial_command(), environ, silent=True),
    ) as supervisor:
        code = supervisor.run()
    sys.exit(code)


def _announce(app: Flask, bind: str, workers: int, web_threads: int | None) -> None:
    """Print what is served where. Raises an error for an address that cannot be bound."""
    from billhook.extension import get_state

    state = get_state(app)
    handlers = handler_names(state.handlers)
    # The children open connections of their own; this process only watches them.
    state.inbox.close()
    at = f"http://{bind}" if not bind.startswith(("unix:", "fd:")) else f"{bind} "
    lines = [
        f"Deliveries: POST {at}{state.mounts[0]}",
        f"Inbox:      {state.inbox.database.display_url}",
        f"Handlers:   {len(handlers)}",
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


def _open_standard_streams() -> None:
    """Open what is closed of the descriptors 0 to 2, or a file that is opened later would get the output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free


def _descriptors(bind: str) -> tuple[int, ...]:
    return (int(bind.removeprefix("fd://")),) if bind.startswith("fd://") else ()
