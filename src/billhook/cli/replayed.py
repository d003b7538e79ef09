"""What `billhook deliveries replay` says when it is done, or when there was nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from billhook.cli.choosing import in_deliveries
from billhook.cli.output import print_json, printable

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.replay import Replayed

__all__ = ["nothing", "report"]


def report(total: int, done: Replayed, *, dry_run: bool, as_json: bool, everything: bool) -> None:
    """What was done, of `total` deliveries; `everything` says that succeeded runs were asked for too."""
    if as_json:
        facts = {"selected": total, "replayed": done.deliveries, "reread": done.reread, "runs": done.runs}
        print_json({**facts, "added": done.added, "dry_run": dry_run})
        return
    would = "would be " if dry_run else ""
    runs = "1 run" if done.runs == 1 else f"{done.runs} runs"
    click.echo(
        f"{done.deliveries} of {in_deliveries(total)} {would}replayed: "
        f"{runs} {would}due again, {in_deliveries(done.reread)} {would}read anew"
        + (f", {in_deliveries(done.added)} {would}handled for the first time" if done.added else "")
    )
    if not done.deliveries:
        click.echo(_why_nothing(everything))


def nothing(inbox: Inbox, handler: str | None) -> str:
    """Nothing is selected; if it may be for the handler's name, those that newer deliveries have are told."""
    from billhook.inbox.admin import Selection, count, handler_names

    told = "nothing matches"
    if handler is None or count(inbox, Selection(handler=handler)):
        return told
    names = handler_names(inbox)
    known = f"; there are {printable(', '.join(names))}" if names else ""
    return f"{told}: no delivery has a run of {printable(handler)}{known}"


def _why_nothing(everything: bool) -> str:
    if everything:
        return "Nothing was to be done: no such run is finished, or waits for another attempt."
    return (
        "Nothing was to be done, for no handler failed: --all-handlers runs those that succeeded again, "
        "and --handler NAME one of them."
    )
