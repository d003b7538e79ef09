"""`billhook serve`: gunicorn and one worker, nothing else to set up."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from billhook.cli.binding import BIND, DEFAULT_BIND, check_free, is_local
from billhook.cli.handlers import handler_names, refuse_unhandled
from billhook.cli.params import handlers_argument, require_all
from billhook.cli.where import the_app, worker_environment

if TYPE_CHECKING:
    from billhook.assembly import Assembly

__all__ = ["serve"]

logger = logging.getLogger("billhook.serve")

_WORKER_THREADS = 8
_WORKER_GRACE_SECONDS = 25.0
# As long as gunicorn_conf.graceful_timeout, and a little for the master itself.
_WEB_GRACE_SECONDS = 25.0


@click.command(short_help="Receive and handle: gunicorn and a worker.")
@handlers_argument
@click.option("--bind", type=BIND, default=DEFAULT_BIND, show_default=True, help="HOST:PORT, or unix:PATH.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Web processes.")
@click.option(
    "--threads", type=click.IntRange(1, 256), default=16, show_default=True, help="Of each of them."
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
    worker_processes: int,
    require_all: bool,
) -> None:
    """Receive and handle: gunicorn, one worker process, and an inbox in ./billhook.db.

    HANDLERS are modules or .py files that hold a billhook.Handlers, or connect subscribers to its signals;
    without any, those of BILLHOOK_HANDLERS.
    Ends in order at SIGTERM or SIGINT, at once at a second one. SIGHUP has it load the handlers anew: no
    connection is refused meanwhile, and where they cannot be loaded what runs goes on.

    \b
    Examples:
      BILLHOOK_SECRETS_FILE=secret.txt billhook serve myshop/billing.py
      billhook serve myshop.billing myshop.audit --bind 127.0.0.1:8080 --workers 4
    """
    from billhook.cli.processes import spawn, spawn_worker, trial_command, web_command, worker_command
    from billhook.cli.supervisor import Role, Supervisor, worker_roles
    from billhook.extension import assembly_of

    # What a handler prints is seen when it prints it.
    environ = {**worker_environment(handlers), "PYTHONUNBUFFERED": "1"}
    # The app is built here once, to refuse what cannot work before any process is started.
    assembly = assembly_of(the_app(environ))
    if require_all:
        refuse_unhandled(assembly.subscribers)
    lines = _announcement(assembly, bind, workers * threads)
    check_free(bind)
    click.echo("\n".join(lines))
    sys.stdout.flush()
    start_web = partial(spawn, web_command(bind, workers, threads), environ, pass_fds=_descriptors(bind))
    start_worker = partial(spawn_worker, worker_command(_WORKER_THREADS, _WORKER_GRACE_SECONDS), environ)
    # The web server first: what it still accepts rings in a worker that is there to hear it.
    with Supervisor(
        [Role("the web server", start_web, _WEB_GRACE_SECONDS, vital=True, reload=signal.SIGHUP)],
        worker_roles(worker_processes, start_worker, _WORKER_GRACE_SECONDS, assembly.settings.lease_seconds),
        tell=logger.warning,
        trial=partial(spawn, trial_command(), environ, silent=True),
    ) as supervisor:
        code = supervisor.run()
    sys.exit(code)


def _announcement(assembly: Assembly, bind: str, clients: int) -> list[str]:
    handlers = handler_names(assembly.subscribers)
    assembly.inbox.close()
    at = f"http://{bind}" if not bind.startswith(("unix:", "fd:")) else f"{bind} "
    lines = [
        f"Deliveries: POST {at}{assembly.mounts[0]}",
        f"Inbox:      {assembly.inbox.database.place}",
        f"Handlers:   {len(handlers)}",
    ]
    if not handlers:
        lines.append("No handler is registered: what comes is stored, and nothing is done with it.")
    if not is_local(bind):
        lines.append(
            f"Other machines can reach {bind}: put a proxy such as nginx in front (see deploy/): {clients} "
            "clients that send their headers slowly would stop it."
        )
    return lines


def _descriptors(bind: str) -> tuple[int, ...]:
    return (int(bind.removeprefix("fd://")),) if bind.startswith("fd://") else ()
