"""`billhook deliveries discard`: give up deliveries that can never succeed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.context import open_inbox
from billhook.cli.errors import UsageConfigError
from billhook.cli.output import print_json, progress
from billhook.cli.params import DELIVERY_ID, TEXT, as_json, delivery_filters
from billhook.cli.selection import (
    confirm,
    delivery_count,
    filters_set,
    no_match_message,
    require_selection,
    select_ids,
)

if TYPE_CHECKING:
    from billhook.inbox.discard import DiscardResult

__all__ = ["discard"]

_LONGEST_REASON = 500


@click.command()
@click.argument("delivery_ids", type=DELIVERY_ID, nargs=-1, metavar="[ID]...")
@delivery_filters
@click.option("--handler", type=TEXT, metavar="NAME", help="With a run of this handler.")
@click.option(
    "--conflicts", is_flag=True, help="Deliveries with the key of another delivery but other content."
)
@click.option(
    "--reason", type=TEXT, required=True, metavar="TEXT", help="The reason; it is stored as the last error."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done without doing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@as_json
def discard(
    delivery_ids: tuple[int, ...], reason: str, dry_run: bool, yes: bool, as_json: bool, **selected: Any
) -> None:
    """Discard deliveries: those given by ID, or those that the options select.

    Handlers that have not succeeded are not called again, and the deliveries are done, with the reason as
    their last error. Quarantined deliveries and those not yet parsed can be discarded, too. A handler that is
    running continues, but its result is ignored. `replay` undoes a discard.

    \b
    Examples:
      billhook deliveries discard 42 --reason 'the customer is gone'
      billhook deliveries discard --state dead --handler shop.chase --reason 'done by hand' --dry-run
    """
    from billhook.inbox.admin import DeliveryFilter
    from billhook.inbox.discard import DiscardResult
    from billhook.inbox.discard import discard as discard_these

    reason = " ".join(reason.split())[:_LONGEST_REASON]
    if not reason:
        raise UsageConfigError("--reason is empty: give a reason, which is stored with the delivery")
    selected = filters_set(selected)
    selection = DeliveryFilter(**selected)
    require_selection("discard", delivery_ids, selection.is_everything, selected)
    with open_inbox() as inbox:
        batches, total = select_ids(inbox, delivery_ids, selection, "discarded")
        if not (total or as_json):
            click.echo(no_match_message(inbox, selection.handler))
            return
        if not (yes or dry_run or as_json):
            confirm(f"Discard {delivery_count(total)}?")
        done, now = DiscardResult(), datetime.now(UTC)
        with progress("discarding", total) as steps:
            for batch in batches:
                done += discard_these(inbox, batch, reason, now, dry_run=dry_run)
                steps.advance(len(batch))
                if not dry_run:
                    inbox.notifier.notify()
    _report(total, done, reason, dry_run=dry_run, as_json=as_json)


def _report(total: int, done: DiscardResult, reason: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        facts = {"selected": total, "discarded": done.deliveries, "runs": done.runs}
        print_json({**facts, "reason": reason, "dry_run": dry_run})
        return
    would = "would be " if dry_run else ""
    runs = "1 run" if done.runs == 1 else f"{done.runs} runs"
    click.echo(f"{done.deliveries} of {delivery_count(total)} {would}discarded, with {runs}")
    if not done.deliveries:
        click.echo("Nothing to do: they are already done, or past their retention.")
