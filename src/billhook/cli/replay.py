"""`billhook deliveries replay`: read again, handle again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.choosing import check_choice, chosen, confirm, given, in_batches, in_deliveries
from billhook.cli.faults import Fault
from billhook.cli.output import progress
from billhook.cli.params import DELIVERY_ID, NAME, Amount, as_json, delivery_filters
from billhook.cli.replayed import nothing, report
from billhook.cli.where import open_inbox

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.admin import Selection
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
@click.option("--as", "as_type", type=NAME, metavar="TYPE", help="As this type; for what no handler has had.")
@click.option("--conflicts", is_flag=True, help="Those that came under another's key, not being the same.")
@click.option("--all-handlers", is_flag=True, help="Every handler, those that succeeded included.")
@click.option("--rate", type=Amount(0.01, 100_000), metavar="N", help="At most N deliveries a second.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def replay(
    delivery_ids: tuple[int, ...],
    handler: str | None,
    as_type: str | None,
    all_handlers: bool,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **selected: Any,
) -> None:
    """Handle deliveries again: those named by ID, or those that the options select.

    Handlers that failed or wait for another attempt run again, with all their attempts before them; one that
    succeeded does not, unless --handler or --all-handlers says so. A quarantined delivery is read anew, as is
    one that nobody handled. To give deliveries to a handler that is newer than they are, name its
    module too (BILLHOOK_HANDLERS). One in conflict with another of its key is only taken by its id, by
    --conflicts, or with --as; what came without a type, only with --as.

    \b
    Examples:
      billhook deliveries replay --state dead --since 1d --dry-run
      billhook deliveries replay 44 --as PaymentFailed
    """
    selected = given(selected)
    check_choice("replay", delivery_ids, not (selected or handler), selected)
    if as_type is not None:
        _check_type(as_type, alone=handler is None and not all_handlers)
    newcomer = None if handler is None else _newcomer(handler, all_handlers=all_handlers)
    selection = _selection(selected, None if newcomer and selected else handler, as_type)
    with open_inbox() as inbox:
        if delivery_ids and handler is not None and newcomer is None:
            _check_stored(inbox, handler)
        batches, total = chosen(inbox, delivery_ids, selection, "replayed")
        _check_ids(inbox, delivery_ids, as_type)
        if not (total or as_json):
            click.echo(nothing(inbox, handler))
            return
        if not (yes or dry_run or as_json):
            confirm(f"Replay {in_deliveries(total)}?")
        if rate is not None and not dry_run:
            batches = _paced(batches, rate)
        how = {"handler": handler, "newcomer": newcomer, "all_handlers": all_handlers, "as_type": as_type}
        done = _replay(inbox, batches, total, how | {"dry_run": dry_run})
        report(inbox, total, done, how, dry_run=dry_run, as_json=as_json)


def _replay(inbox: Inbox, batches: Iterable[list[int]], total: int, how: dict[str, Any]) -> Replayed:
    from billhook.inbox.replay import Replayed, replay

    now = datetime.now(UTC)
    done = Replayed()
    with progress("replaying", total) as steps:
        for batch in batches:
            done += replay(inbox, batch, now, **how)
            steps.advance(len(batch))
            if not how["dry_run"]:
                inbox.bell.ring()
    return done


def _selection(selected: dict[str, Any], handler: str | None, as_type: str | None) -> Selection:
    """What is selected; what waits for an operator's word only if this is it."""
    from billhook.inbox.admin import Selection

    decided = as_type is None and "conflicts" not in selected
    return Selection(**selected, handler=handler, decided=decided)


def _check_type(as_type: str, *, alone: bool) -> None:
    """Raise ConfigError, with the nearest names, for a type that is neither listed nor the user's own."""
    from billhook.cli.handlers import find_subscribers
    from billhook.cli.wanted import event_class
    from billhook.events import EVENT_TYPES

    if not alone:
        raise click.UsageError("--as is for what no handler has had: leave --handler and --all-handlers out")
    if as_type not in EVENT_TYPES:
        find_subscribers()  # which brings in the event types of the user's modules
        event_class(as_type)


def _check_ids(inbox: Inbox, delivery_ids: tuple[int, ...], as_type: str | None) -> None:
    from billhook.inbox.admin import details

    for one in details(inbox, delivery_ids):
        if as_type is None and not one.summary.event_type:
            raise Fault(f"delivery {one.summary.id} names no event type: say which with --as TYPE")
        if as_type is not None and one.runs:
            raise Fault(
                f"delivery {one.summary.id} was handled as {one.summary.event_type} already: --as is for "
                "what no handler has had; nothing was replayed"
            )


def _newcomer(handler: str, *, all_handlers: bool) -> Newcomer | None:
    """What gives deliveries a run of a handler that they had none of; None if it is not registered here."""
    if all_handlers:
        raise click.UsageError("choose one of --handler and --all-handlers")
    from billhook.cli.handlers import find_subscribers
    from billhook.engines.terms import newcomer

    return newcomer(find_subscribers(), handler)


def _check_stored(inbox: Inbox, handler: str) -> None:
    from billhook.inbox.admin import Selection, count

    if not count(inbox, Selection(handler=handler)):
        raise Fault(nothing(inbox, handler))


def _paced(batches: Iterable[list[int]], rate: float) -> Iterator[list[int]]:
    """The same in smaller batches, each when its time has come: `rate` ids a second."""
    size, given, started = max(1, int(rate / 4)), 0, time.monotonic()
    for batch in batches:
        for part in in_batches(batch, size):
            time.sleep(max(0.0, started + given / rate - time.monotonic()))
            yield part
            given += len(part)
