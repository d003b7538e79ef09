"""`billhook deliveries replay`: read again, handle again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.faults import Fault
from billhook.cli.output import progress
from billhook.cli.params import DELIVERY_ID, NAME, Amount, as_json, delivery_filters
from billhook.cli.replayed import in_deliveries, nothing, report
from billhook.cli.where import open_inbox

if TYPE_CHECKING:
    from billhook.cli.output import Steps
    from billhook.inbox import Inbox
    from billhook.inbox.replay import Newcomer, Replayed

__all__ = ["replay"]


@click.command()
@click.argument("delivery_ids", type=DELIVERY_ID, nargs=-1, metavar="[ID]...")
@delivery_filters
@click.option(
    "--handler",
    type=NAME,
    metavar="NAME",
    help="Only the runs of this handler, however they ended; with ids or filters, also its first run of "
    "deliveries that came before it was there.",
)
@click.option("--all-handlers", is_flag=True, help="Every handler, those that succeeded included.")
@click.option("--rate", type=Amount(0.01, 100_000), metavar="N", help="At most N deliveries a second.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def replay(
    delivery_ids: tuple[int, ...],
    handler: str | None,
    all_handlers: bool,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **selected: Any,
) -> None:
    """Handle deliveries again: those named by ID, or those that the options select.

    Handlers that failed run again, with all their attempts before them; one that succeeded does not, unless
    --handler or --all-handlers says so. A quarantined delivery is read anew, as is one that nobody handled.
    To give deliveries to a handler that is newer than they are, name its module too (BILLHOOK_HANDLERS).

    \b
    Examples:
      billhook deliveries replay 42 43
      billhook deliveries replay --state dead --since 1d --dry-run
      billhook deliveries replay --state dead --rate 20 --yes
    """
    from billhook.inbox.admin import Selection

    selection = Selection(**selected, handler=handler)
    _check(delivery_ids, selection.is_everything, handler, all_handlers, selected)
    newcomer = None if handler is None else _newcomer(handler)
    if newcomer and not Selection(**selected).is_everything:
        selection = Selection(**selected)  # those without a run of it as well
    with open_inbox() as inbox:
        if delivery_ids and handler is not None and newcomer is None:
            _check_stored(inbox, handler)
        batches, total = _chosen(inbox, delivery_ids, selection)
        if not (total or as_json):
            click.echo(nothing(inbox, handler))
            return
        if not (yes or dry_run or as_json):
            click.confirm(f"Replay {in_deliveries(total)}?", abort=True, err=True)
        if rate is not None and not dry_run:
            batches = _paced(batches, rate)
        how = {"handler": handler, "newcomer": newcomer, "all_handlers": all_handlers, "dry_run": dry_run}
        with progress("replaying", total) as steps:
            done = _replay(inbox, batches, steps, how)
    everything = all_handlers or handler is not None
    report(total, done, dry_run=dry_run, as_json=as_json, everything=everything)


def _replay(inbox: Inbox, batches: Iterable[list[int]], steps: Steps, how: dict[str, Any]) -> Replayed:
    from billhook.inbox.replay import Replayed, replay

    now = datetime.now(UTC)
    done = Replayed()
    for batch in batches:
        done += replay(inbox, batch, now, **how)
        steps.advance(len(batch))
        if not how["dry_run"]:
            inbox.bell.ring()
    return done


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


def _newcomer(handler: str) -> Newcomer | None:
    """What gives deliveries a run of a handler that they had none of; None if it is not registered here."""
    from billhook.cli.handlers import find_subscribers
    from billhook.engines.terms import newcomer

    return newcomer(find_subscribers(), handler)


def _check_stored(inbox: Inbox, handler: str) -> None:
    from billhook.inbox.admin import Selection, count

    if not count(inbox, Selection(handler=handler)):
        raise Fault(nothing(inbox, handler))


def _chosen(inbox: Inbox, delivery_ids: tuple[int, ...], selection: Any) -> tuple[Iterable[list[int]], int]:
    from billhook.inbox import DeliveryState, admin

    if not delivery_ids:
        return admin.ids(inbox, selection), admin.count(inbox, selection)
    wanted = sorted(set(delivery_ids))
    states = {one.summary.id: one.summary.state for one in admin.details(inbox, wanted)}
    for delivery_id in wanted:
        if delivery_id not in states:
            raise Fault(f"there is no delivery {delivery_id} in this inbox; nothing was replayed")
        if states[delivery_id] == DeliveryState.PRUNED.value:
            raise Fault(
                f"of delivery {delivery_id}, past its retention, only the key is left; nothing was replayed"
            )
    return _in_batches(wanted, admin.BATCH), len(wanted)


def _in_batches(wanted: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]


def _paced(batches: Iterable[list[int]], rate: float) -> Iterator[list[int]]:
    """The same in smaller batches, each when its time has come: `rate` ids a second."""
    size, given, started = max(1, int(rate / 4)), 0, time.monotonic()
    for batch in batches:
        for part in _in_batches(batch, size):
            time.sleep(max(0.0, started + given / rate - time.monotonic()))
            yield part
            given += len(part)
