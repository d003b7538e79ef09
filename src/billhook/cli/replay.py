"""`billhook deliveries replay`: read deliveries again and call their handlers again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.context import load_settings, open_inbox, user_app
from billhook.cli.errors import CliError
from billhook.cli.output import print_json, progress, say_paused
from billhook.cli.params import DELIVERY_ID, TEXT, FiniteNumber, as_json, delivery_filters
from billhook.cli.selection import (
    confirm,
    delivery_count,
    filters_set,
    no_match_message,
    paced,
    require_selection,
    select_ids,
    take_search_limit,
)

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.admin import DeliveryFilter
    from billhook.inbox.replay import Backfill, ReplayResult

__all__ = ["missing_worker", "replay"]


@click.command(
    epilog="For delivery.once() a replayed run is a new time, so its effect is made again; a run that only "
    "waited for a retry is the same time."
)
@click.argument("delivery_ids", type=DELIVERY_ID, nargs=-1, metavar="[ID]...")
@delivery_filters
@click.option(
    "--handler",
    type=TEXT,
    metavar="NAME",
    help="Only this handler's runs, with any result; with ids or filters also its first run for "
    "deliveries received before the handler existed.",
)
@click.option(
    "--as",
    "as_type",
    type=TEXT,
    metavar="TYPE",
    help="Read the delivery as this type; only before any handler has run.",
)
@click.option(
    "--conflicts", is_flag=True, help="Deliveries with the key of another delivery but other content."
)
@click.option("--all-handlers", is_flag=True, help="Every handler, including those that succeeded.")
@click.option(
    "--rate", type=FiniteNumber(0.01, 100_000), metavar="N", help="At most N deliveries per second."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done without doing it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
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
    """Handle deliveries again: those given by ID, or those that the options select.

    Handlers that failed or wait for a retry run again with all their attempts; one that succeeded runs again
    only with --handler or --all-handlers. A quarantined delivery is parsed again, as is one without runs. To
    give deliveries to a handler that is newer than they are, name its module too (BILLHOOK_HANDLERS). A
    delivery in conflict is selected only by its id, --conflicts or --as; one without a type only by --as.

    \b
    Examples:
      billhook deliveries replay --state dead --since 1d --dry-run
      billhook deliveries replay 44 --as PaymentFailed
    """
    search_limit = take_search_limit(selected)
    selected = filters_set(selected)
    require_selection("replay", delivery_ids, not (selected or handler), selected)
    if as_type is not None:
        _check_type(as_type, alone=handler is None and not all_handlers)
    backfill = None if handler is None else _backfill(handler, all_handlers=all_handlers)
    # With filters, a new handler is to get deliveries without a run of it: those must not be filtered out.
    selection = _selection(selected, None if backfill and selected else handler, as_type)
    with open_inbox() as inbox:
        if delivery_ids and handler is not None and backfill is None:
            _check_stored(inbox, handler)
        batches, total = select_ids(inbox, delivery_ids, selection, "replayed", search_limit)
        _check_ids(inbox, delivery_ids, as_type)
        if not (total or as_json):
            click.echo(no_match_message(inbox, handler))
            return
        if not (yes or dry_run or as_json):
            confirm(f"Replay {delivery_count(total)}?")
        batches = batches if rate is None or dry_run else paced(batches, rate)
        how = {"handler": handler, "backfill": backfill, "all_handlers": all_handlers, "as_type": as_type}
        done = _replay(inbox, batches, total, how | {"dry_run": dry_run})
        _report(inbox, total, done, how, dry_run=dry_run, as_json=as_json)


def _replay(inbox: Inbox, batches: Iterable[list[int]], total: int, how: dict[str, Any]) -> ReplayResult:
    from billhook.inbox.replay import ReplayResult, replay

    now = datetime.now(UTC)
    done = ReplayResult()
    with progress("replaying", total) as steps:
        for batch in batches:
            done += replay(inbox, batch, now, **how)
            steps.advance(len(batch))
            # After each batch, so that workers begin while the command goes on with thousands of others.
            if not how["dry_run"]:
                inbox.notifier.notify()
    return done


def _selection(selected: dict[str, Any], handler: str | None, as_type: str | None) -> DeliveryFilter:
    """Return the filter; it includes deliveries that await an operator's decision only if asked for."""
    from billhook.inbox.admin import DeliveryFilter

    decided = as_type is None and "conflicts" not in selected
    return DeliveryFilter(**selected, handler=handler, decided=decided)


def _check_type(as_type: str, *, alone: bool) -> None:
    """Raise ConfigError, with the closest names, for a type that is neither built in nor the user's own."""
    from billhook.cli.events import event_class
    from billhook.cli.handlers import load_subscribers
    from billhook.events import EVENT_TYPES

    if not alone:
        raise click.UsageError(
            "--as applies only before any handler has run: leave out --handler and --all-handlers"
        )
    if as_type not in EVENT_TYPES:
        load_subscribers()  # importing the user's modules registers their event types
        event_class(as_type)


def _check_ids(inbox: Inbox, delivery_ids: tuple[int, ...], as_type: str | None) -> None:
    from billhook.inbox.admin import details

    # All ids are checked before the first is replayed: the command does all of it, or nothing.
    for one in details(inbox, delivery_ids):
        if as_type is None and not one.summary.event_type:
            raise CliError(f"delivery {one.summary.id} has no event type: give one with --as TYPE")
        if as_type is not None and one.runs:
            raise CliError(
                f"delivery {one.summary.id} was already handled as {one.summary.event_type}: --as applies "
                "only before any handler has run; nothing was replayed"
            )


def _backfill(handler: str, *, all_handlers: bool) -> Backfill | None:
    """Return what adds a run of `handler` to deliveries without one; None if it is not registered here."""
    if all_handlers:
        raise click.UsageError("choose one of --handler and --all-handlers")
    from billhook.cli.handlers import load_subscribers
    from billhook.engines.dispatcher import backfill

    return backfill(load_subscribers(), handler)


def _check_stored(inbox: Inbox, handler: str) -> None:
    from billhook.inbox.admin import DeliveryFilter, count

    if not count(inbox, DeliveryFilter(handler=handler)):
        raise CliError(no_match_message(inbox, handler))


_SEEN_WITHIN = timedelta(minutes=1)
"""Three times the interval at which a worker renews its row in the inbox."""


def _report(
    inbox: Inbox, total: int, done: ReplayResult, how: Mapping[str, Any], *, dry_run: bool, as_json: bool
) -> None:
    """Print the result for `total` deliveries and, on stderr, a hint if no worker is running."""
    if as_json:
        counts = {"selected": total, "replayed": done.deliveries, "reread": done.requeued, "runs": done.runs}
        print_json({**counts, "added": done.added, "dry_run": dry_run})
    else:
        # Whether the user asked for succeeded runs as well.
        everything = how["all_handlers"] or how["handler"] is not None
        _print(total, done, dry_run=dry_run, everything=everything)
    if not as_json:
        say_paused(inbox.paused_handlers())
    missing = missing_worker(inbox) if done.deliveries and not dry_run else None
    if missing is not None:
        click.echo(missing, err=True)


def _print(total: int, done: ReplayResult, *, dry_run: bool, everything: bool) -> None:
    would = "would be " if dry_run else ""
    runs = "1 run" if done.runs == 1 else f"{done.runs} runs"
    click.echo(
        f"{done.deliveries} of {delivery_count(total)} {would}replayed: "
        f"{runs} {would}due again, {delivery_count(done.requeued)} {would}parsed again"
        + (f", {delivery_count(done.added)} {would}handled for the first time" if done.added else "")
    )
    if not done.deliveries:
        click.echo(_why_nothing(everything))


def _why_nothing(everything: bool) -> str:
    if everything:
        return "Nothing to do: no such run is finished or waits for a retry."
    return (
        "Nothing to do: no handler failed. Use --all-handlers to run the succeeded handlers again, or "
        "--handler NAME for one of them."
    )


def missing_worker(inbox: Inbox) -> str | None:
    """Return a hint for the user if no worker seems to serve the inbox; else None."""
    engine = load_settings().engine
    if engine == "inline":  # handlers run in the app's own requests, without a worker
        return None
    seen_at = inbox.worker_seen_at()
    age = None if seen_at is None else datetime.now(UTC) - seen_at
    if age is not None and age <= _SEEN_WITHIN:
        return None
    what = "No worker is running" if age is None else f"No worker has been seen for {_duration(age)}"
    return f"{what}; {_how_to_start(engine)}"


def _duration(age: timedelta) -> str:
    minutes = int(age.total_seconds() // 60)
    count, unit = next(
        (minutes // size, unit)
        for size, unit in ((1440, "day"), (60, "hour"), (1, "minute"))
        if minutes >= size
    )
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"


def _how_to_start(engine: str) -> str:
    own_app = user_app() is not None
    if engine == "celery":
        name = "MODULE:NAME" if own_app else "billhook.standalone:celery"
        return f"start one: celery -A {name} worker"
    if own_app and engine == "thread":
        return "start the app: its threads start with the first request"
    return f"start one: {'flask --app … ' if own_app else ''}billhook worker"
