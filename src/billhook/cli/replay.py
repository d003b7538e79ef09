"""`billhook deliveries replay`: read again, handle again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.faults import Fault
from billhook.cli.output import print_json, printable, progress
from billhook.cli.params import DELIVERY_ID, NAME, as_json, delivery_filters
from billhook.cli.where import open_inbox

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.replay import Replayed

__all__ = ["replay"]

_LOOKED_AT = 50


@click.command()
@click.argument("delivery_ids", type=DELIVERY_ID, nargs=-1, metavar="[ID]...")
@delivery_filters
@click.option(
    "--handler", type=NAME, metavar="NAME", help="Only the runs of this handler, however they ended."
)
@click.option("--all-handlers", is_flag=True, help="Every handler, those that succeeded included.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def replay(
    delivery_ids: tuple[int, ...],
    handler: str | None,
    all_handlers: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **selected: Any,
) -> None:
    """Handle deliveries again: those named by ID, or those that the options select.

    Handlers that failed run again, with all their attempts before them; one that succeeded does not, unless
    --handler or --all-handlers says so. A quarantined delivery is read anew, as is one that nobody handled.

    \b
    Examples:
      billhook deliveries replay 42 43
      billhook deliveries replay --state dead --since 1d --dry-run
      billhook deliveries replay --state quarantined --yes
    """
    from billhook.inbox import replay as again
    from billhook.inbox.admin import Selection

    selection = Selection(**selected, handler=handler)
    _check(delivery_ids, selection.is_everything, handler, all_handlers, selected)
    with open_inbox() as inbox:
        batches, total = _chosen(inbox, delivery_ids, selection)
        if not (total or as_json):
            click.echo(_nothing(inbox, handler))
            return
        if not (yes or dry_run or as_json):
            click.confirm(f"Replay {_deliveries(total)}?", abort=True, err=True)
        now = datetime.now(UTC)
        done = again.Replayed()
        with progress("replaying", total) as steps:
            for batch in batches:
                done += again.replay(
                    inbox, batch, now, handler=handler, all_handlers=all_handlers, dry_run=dry_run
                )
                steps.advance(len(batch))
        if not dry_run:
            inbox.bell.ring()
    _report(total, done, dry_run, as_json)
    if not (done.deliveries or as_json):
        click.echo(_why_nothing(everything=all_handlers or handler is not None))


def _check(
    delivery_ids: tuple[int, ...],
    everything: bool,
    handler: str | None,
    all_handlers: bool,
    selected: dict[str, Any],
) -> None:
    if not delivery_ids and everything:
        raise click.UsageError(
            "say what to replay: ids, or one of --type --state --source --since --until --handler"
        )
    if delivery_ids and any(each is not None for each in selected.values()):
        raise click.UsageError("give ids or filters, not both")
    if handler is not None and all_handlers:
        raise click.UsageError("choose one of --handler and --all-handlers")


def _chosen(inbox: Inbox, delivery_ids: tuple[int, ...], selection: Any) -> tuple[Iterable[list[int]], int]:
    from billhook.inbox import admin

    if not delivery_ids:
        return admin.ids(inbox, selection), admin.count(inbox, selection)
    wanted = sorted(set(delivery_ids))
    known = {one.summary.id for one in admin.details(inbox, wanted)}
    for missing in wanted:
        if missing not in known:
            raise Fault(f"there is no delivery {missing} in this inbox; nothing was replayed")
    return _in_batches(wanted, admin.BATCH), len(wanted)


def _in_batches(wanted: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]


def _report(total: int, done: Replayed, dry_run: bool, as_json: bool) -> None:
    if as_json:
        facts = {"selected": total, "replayed": done.deliveries, "reread": done.reread, "runs": done.runs}
        print_json({**facts, "dry_run": dry_run})
        return
    would = "would be " if dry_run else ""
    runs = "1 run" if done.runs == 1 else f"{done.runs} runs"
    click.echo(
        f"{done.deliveries} of {_deliveries(total)} {would}replayed: "
        f"{runs} {would}due again, {_deliveries(done.reread)} {would}read anew"
    )


def _deliveries(number: int) -> str:
    return "1 delivery" if number == 1 else f"{number} deliveries"


def _nothing(inbox: Inbox, handler: str | None) -> str:
    """Nothing is selected; if it may be for the handler's name, those that newer deliveries have are told."""
    from billhook.inbox.admin import Selection, count, details, page

    told = "nothing matches"
    if handler is None or count(inbox, Selection(handler=handler)):
        return told
    newest = [one.id for one in page(inbox, Selection(), _LOOKED_AT)]
    names = sorted({run.handler for one in details(inbox, newest) for run in one.runs})
    known = f"; there are {printable(', '.join(names))}" if names else ""
    return f"{told}: no delivery has a run of {printable(handler)}{known}"


def _why_nothing(*, everything: bool) -> str:
    if everything:
        return "Nothing was to be done: no such run is finished, or waits for another attempt."
    return (
        "Nothing was to be done, for no handler failed: --all-handlers runs those that succeeded again, "
        "and --handler NAME one of them."
    )
