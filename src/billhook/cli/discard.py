"""`billhook deliveries discard`: giving up what can never succeed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.choosing import check_choice, chosen, confirm, given, in_deliveries
from billhook.cli.faults import SetupFault
from billhook.cli.output import print_json, progress
from billhook.cli.params import DELIVERY_ID, NAME, as_json, delivery_filters
from billhook.cli.replayed import nothing
from billhook.cli.where import open_inbox

if TYPE_CHECKING:
    from billhook.inbox.discard import Discarded

__all__ = ["discard"]

_LONGEST_REASON = 500


@click.command()
@click.argument("delivery_ids", type=DELIVERY_ID, nargs=-1, metavar="[ID]...")
@delivery_filters
@click.option("--handler", type=NAME, metavar="NAME", help="With a run of this handler.")
@click.option("--conflicts", is_flag=True, help="Those that came under another's key, not being the same.")
@click.option("--reason", type=NAME, required=True, metavar="TEXT", help="Why; it is kept and shown.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def discard(
    delivery_ids: tuple[int, ...], reason: str, dry_run: bool, yes: bool, as_json: bool, **selected: Any
) -> None:
    """Give deliveries up: those named by ID, or those that the options select.

    Their handlers that have not succeeded are called no more, and the deliveries are done, with the reason
    as their last error; so are quarantined ones, and those that nobody has read yet. A handler that is at
    work goes on, but how it ends changes nothing. `replay` undoes it.

    \b
    Examples:
      billhook deliveries discard 42 --reason 'the customer is gone'
      billhook deliveries discard --state dead --handler shop.chase --reason 'done by hand' --dry-run
    """
    from billhook.inbox.admin import Selection
    from billhook.inbox.discard import Discarded
    from billhook.inbox.discard import discard as discard_these

    reason = " ".join(reason.split())[:_LONGEST_REASON]
    if not reason:
        raise SetupFault("--reason is empty: say why, for whoever looks at the delivery later")
    selected = given(selected)
    selection = Selection(**selected)
    check_choice("discard", delivery_ids, selection.is_everything, selected)
    with open_inbox() as inbox:
        batches, total = chosen(inbox, delivery_ids, selection, "discarded")
        if not (total or as_json):
            click.echo(nothing(inbox, selection.handler))
            return
        if not (yes or dry_run or as_json):
            confirm(f"Discard {in_deliveries(total)}?")
        done, now = Discarded(), datetime.now(UTC)
        with progress("discarding", total) as steps:
            for batch in batches:
                done += discard_these(inbox, batch, reason, now, dry_run=dry_run)
                steps.advance(len(batch))
                if not dry_run:
                    inbox.bell.ring()
    _report(total, done, reason, dry_run=dry_run, as_json=as_json)


def _report(total: int, done: Discarded, reason: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        facts = {"selected": total, "discarded": done.deliveries, "runs": done.runs}
        print_json({**facts, "reason": reason, "dry_run": dry_run})
        return
    would = "would be " if dry_run else ""
    runs = "1 run" if done.runs == 1 else f"{done.runs} runs"
    click.echo(f"{done.deliveries} of {in_deliveries(total)} {would}discarded, with {runs}")
    if not done.deliveries:
        click.echo("Nothing was to be done: they are done already, or past their retention.")
