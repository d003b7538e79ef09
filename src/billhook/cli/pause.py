"""`billhook handlers pause | resume`, and what every command says of handlers that are paused."""

from __future__ import annotations

from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from billhook.cli.context import open_inbox
from billhook.cli.errors import CliError
from billhook.cli.output import printable
from billhook.cli.params import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from billhook.inbox import Inbox, PausedHandler

__all__ = ["pause", "resume", "say_paused"]


@click.command(short_help="Have the deliveries of a handler wait.")
@click.argument("name", type=TEXT, metavar="NAME")
@click.option("--why", type=TEXT, metavar="TEXT", help="The reason, shown wherever the handler is.")
def pause(name: str, why: str | None) -> None:
    """Pause the handler NAME in all workers: its deliveries wait, and lose no attempt.

    What it has begun goes on to its end. Deliveries are received and its other handlers are called as before.

    \b
    Example:
      billhook handlers pause myshop.billing.book --why "the ledger is closed until Monday"
    """
    with open_inbox() as inbox:
        _require_known(name, inbox)
        if inbox.pause_handler(name, why, datetime.now(UTC)):
            click.echo(f"{printable(name)} is PAUSED: its deliveries wait until you resume it")
        else:
            click.echo(f"{printable(name)} was paused already; the reason is the new one")


@click.command(short_help="Have a paused handler go on.")
@click.argument("name", type=TEXT, metavar="NAME")
def resume(name: str) -> None:
    """Have the paused handler NAME go on with the deliveries that waited, the oldest first.

    \b
    Example:
      billhook handlers resume myshop.billing.book
    """
    with open_inbox() as inbox:
        if inbox.resume_handler(name, datetime.now(UTC)):
            click.echo(f"{printable(name)} goes on")
            return
        paused = ", ".join(printable(one.name) for one in inbox.paused_handlers())
    raise CliError(f"{printable(name)} is not paused; paused handlers: {paused or 'none'}")


def _require_known(name: str, inbox: Inbox) -> None:
    """Raise CliError for a name that no handler has: pausing it would do nothing."""
    from billhook.cli.handlers import handler_names, load_subscribers
    from billhook.inbox.admin import handler_names as stored_names

    known = handler_names(load_subscribers()) or set(stored_names(inbox))
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known)) or 'none'}"
        raise CliError(f"no handler is named {printable(name)}: {printable(hint)}")


def say_paused(paused: Iterable[PausedHandler]) -> None:
    """Print a line for each paused handler, on stderr."""
    for one in paused:
        why = f" ({printable(one.why)})" if one.why else ""
        since = one.since.strftime("%Y-%m-%d %H:%M:%S UTC")
        click.echo(
            f"PAUSED: {printable(one.name)} since {since}{why}: its deliveries wait; "
            f"to go on: billhook handlers resume {printable(one.name)}",
            err=True,
        )
