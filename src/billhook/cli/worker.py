"""`billhook worker`: calls the handlers, in a process of its own or in several."""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from billhook.cli.handlers import handler_names, refuse_unhandled
from billhook.cli.params import Amount, handlers_argument, require_all
from billhook.cli.where import flask_arguments, the_app, users_app, worker_environment
from billhook.errors import BillhookError, ConfigError
from billhook.printable import PrintableFormatter

if TYPE_CHECKING:
    from billhook.assembly import Assembly

__all__ = ["worker"]

logger = logging.getLogger("billhook.worker")

_LOOK_SECONDS = 0.2


@click.command(short_help="Call the handlers of what was received.")
@handlers_argument
@click.option(
    "--threads",
    type=click.IntRange(1, 1_000),
    default=8,
    show_default=True,
    help="Handlers at the same time, in each process.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="With two or more, a parent starts those again that die or hang.",
)
@click.option(
    "--grace", type=Amount(0, 3_600), default=25.0, show_default=True,
    help="Seconds that running handlers are given at the end.",
)  # fmt: skip
@click.option("--drain", is_flag=True, help="End when nothing is due now: for cron and for tests.")
@require_all
@click.option("--watched", is_flag=True, hidden=True, help="There is a parent that starts it again.")
@click.option("--heartbeats", type=int, hidden=True, help="The descriptor of the pipe to that parent.")
def worker(
    handlers: Sequence[str],
    threads: int,
    processes: int,
    grace: float,
    drain: bool,
    require_all: bool,
    watched: bool,
    heartbeats: int | None,
) -> None:
    """Call the handlers of what was received, until SIGTERM or SIGINT; a second one ends it at once.

    Start as many as you like, all with the same handlers: no run is done by two of them at the same time.
    Handlers still running when the grace is over run again elsewhere, when their lease ends. A handler that
    kills its process takes the others in it along: with --processes the rest goes on meanwhile.

    \b
    Examples:
      billhook worker myshop/billing.py --threads 16
      billhook worker myshop/billing.py --processes 4
      flask --app myshop billhook worker
      billhook worker myshop/billing.py --drain
    """
    from billhook.extension import assembly_of

    _check(handlers, processes, drain=drain)
    environ = worker_environment(handlers)
    if users_app() is None:
        _set_up_log()
    # Built in the parent too, to refuse what cannot work before any process is started.
    assembly = assembly_of(the_app(environ))
    if not handler_names(assembly.subscribers):
        raise ConfigError(
            "no handler is registered: a worker without any would take every delivery for done; name the "
            "modules or files of yours, as arguments or in BILLHOOK_HANDLERS"
        )
    if require_all:
        refuse_unhandled(assembly.subscribers)
    if processes > 1:
        assembly.inbox.close()
        sys.exit(_keep(processes, threads, grace, environ, assembly.settings.lease_seconds))
    _work(assembly, threads, grace, drain=drain, watched=watched, heartbeats=heartbeats)


def _check(handlers: Sequence[str], processes: int, *, drain: bool) -> None:
    if handlers and users_app() is not None:
        raise click.UsageError("the app has its own handlers: leave HANDLERS out")
    if drain and processes > 1:
        raise click.UsageError("--drain works in one process: leave --processes out")


def _keep(processes: int, threads: int, grace: float, environ: dict[str, str], lease_seconds: float) -> int:
    """Be the parent of so many workers; the exit code."""
    from billhook.cli.processes import spawn_worker, worker_command
    from billhook.cli.supervisor import Supervisor, worker_roles

    _set_up_log()
    command = worker_command(threads, grace, flask=flask_arguments())
    start = partial(spawn_worker, command, {**environ, "PYTHONUNBUFFERED": "1"})
    roles = worker_roles(processes, start, grace, lease_seconds)
    with Supervisor(roles, tell=logger.warning) as supervisor:
        return supervisor.run()


def _work(
    assembly: Assembly, threads: int, grace: float, *, drain: bool, watched: bool, heartbeats: int | None
) -> None:
    from billhook.cli.ending import Ending, watch
    from billhook.cli.heartbeats import Sender
    from billhook.engines.loop import LEFT_BEHIND_LIMIT

    _set_up_log()
    loop = assembly.loop(threads)
    ending = Ending(loop.stop, grace, at_once=not watched)
    if watched:
        watch(assembly.settings.lease_seconds, _silent if heartbeats is None else Sender(heartbeats).beat)
    if drain:
        threading.Thread(target=_end_when_idle, args=(assembly, ending.drained), daemon=True).start()
    logger.info("working with %d threads", threads)
    loop.run(grace_seconds=grace, left_behind_limit=LEFT_BEHIND_LIMIT if watched else math.inf)
    assembly.close()
    logger.info("ended")
    ending.soon()
    sys.exit(ending.code)


def _silent() -> None:
    """Nobody listens."""


def _end_when_idle(assembly: Assembly, end: Callable[[], None]) -> None:
    """Look whether anything is to be done now, until nothing is; an inbox that is away is waited for."""
    from billhook.inbox.admin import is_busy

    while True:
        with suppress(BillhookError):
            if not is_busy(assembly.inbox, assembly.cycle.clock.now()):
                break
        time.sleep(_LOOK_SECONDS)
    end()


def _set_up_log() -> None:
    if logging.getLogger().handlers:  # an app that set up its log keeps it
        return
    output = logging.StreamHandler()
    output.setFormatter(PrintableFormatter("%(asctime)s [%(process)d] %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[output])
    logging.getLogger("alembic").setLevel(logging.WARNING)  # a new inbox is no news
