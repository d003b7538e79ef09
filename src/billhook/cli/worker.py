"""`billhook worker`: calls the handlers, in a process of its own."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

import click

from billhook.cli.output import printable
from billhook.cli.params import handlers_argument
from billhook.cli.where import the_app, users_app, worker_environment

if TYPE_CHECKING:
    from billhook.engines import Loop

__all__ = ["worker"]

logger = logging.getLogger("billhook.worker")


@click.command()
@handlers_argument
@click.option(
    "--threads",
    type=click.IntRange(1, 1_000),
    default=8,
    show_default=True,
    help="Handlers at the same time.",
)
@click.option(
    "--grace", type=click.FloatRange(0, 3_600), default=25.0, show_default=True,
    help="Seconds that running handlers are given at the end.",
)  # fmt: skip
def worker(handlers: Sequence[str], threads: int, grace: float) -> None:
    """Call the handlers of what was received, until SIGTERM or SIGINT; a second one ends it at once.

    Start as many as you like: no run is done by two of them at the same time. Handlers still running when
    the grace is over run again elsewhere, when their lease ends.

    \b
    Examples:
      billhook worker myshop/billing.py --threads 16
      flask --app myshop billhook worker
    """
    from billhook.extension import assembly_of

    if handlers and users_app() is not None:
        raise click.UsageError("the app has its own handlers: leave HANDLERS out")
    app = the_app(worker_environment(handlers))
    assembly = assembly_of(app)
    if not logging.getLogger().handlers:  # an app that set up its log keeps it
        _set_up_log()
    loop = assembly.loop(threads)
    stopping = _Stopping(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stopping)
    logger.info("working with %d threads", threads)
    loop.run(grace_seconds=grace)
    assembly.close()
    logger.info("ended")


class _Printable(logging.Formatter):
    """A handler's error may quote what came from outside, and the log may be read on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


def _set_up_log() -> None:
    output = logging.StreamHandler()
    output.setFormatter(_Printable("%(asctime)s [%(process)d] %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[output])
    logging.getLogger("alembic").setLevel(logging.WARNING)  # a new inbox is no news


class _Stopping:
    """What a signal does: the first time in order, the second time at once."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            os._exit(1)
        self._asked = True
        self._loop.stop()
