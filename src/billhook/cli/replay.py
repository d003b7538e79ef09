"""`billhook deliveries replay`: read deliveries again and call their handlers again."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.context import open_inbox, worker_hint
from billhook.cli.output import CliError, print_json, printable, say_paused
from billhook.cli.params import DELIVERY_ID, TEXT, FiniteNumber, as_json, delivery_filters
from billhook.cli.selection import (
    Flags,
    SelectedDeliveries,
    apply_in_batches,
    delivery_count,
    no_match_message,
    paced,
    parse_selection,
    select,
)

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.replay import Backfill, ReplayResult

__all__ = ["replay"]

_MOST_TOLD = 20
"""Runs that succeeded which the question names."""


@click.command(
    epilog="For delivery.once() a replayed run counts as a new occurrence, so its effect is made again; a "
    "run that only waited for a retry does not."
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
    filters, limit = parse_selection("replay", delivery_ids, selected, other_filter=handler is not None)
    if as_type is not None:
        _check_type(as_type, alone=handler is None and not all_handlers)
    backfill = None if handler is None else _backfill(handler, all_handlers=all_handlers)
    # With filters, a new handler is to get deliveries without a run of it: those must not be filtered out.
    wanted = None if backfill and not filters.is_everything else handler
    # Deliveries that await an operator's decision are selected only if asked for.
    decided = as_type is None and not filters.conflicts
    filters = dataclasses.replace(filters, handler=wanted, decided=decided)
    with open_inbox() as inbox:
        if delivery_ids and handler is not None and backfill is None:
            _check_stored(inbox, handler)
        _check_ids(inbox, delivery_ids, as_type)
        question = _question(inbox, delivery_ids, handler, all_handlers)
        chosen = select(
            inbox, delivery_ids, filters, limit, question=question,
            past_participle="replayed", flags=(flags := Flags(dry_run, yes, as_json)),
        )  # fmt: skip
        if chosen is None:
            return
        if rate is not None and not dry_run:
            chosen = chosen._replace(batches=paced(chosen.batches, rate))
        _replay(inbox, chosen, _ReplayOptions(handler, backfill, all_handlers, as_type), flags)


def _question(inbox: Inbox, delivery_ids: tuple[int, ...], handler: str | None, all_handlers: bool) -> str:
    """Return the question before a replay, which names the handlers that succeeded and run again."""
    if handler is None and not all_handlers:
        return "Replay {}?"
    from billhook.inbox.admin import details

    told = [
        f"delivery {one.summary.id}: {printable(run.handler)} succeeded ({run.finished_at:%Y-%m-%d %H:%M})\n"
        for one in details(inbox, delivery_ids)
        for run in one.runs
        if run.state == "succeeded" and handler in (None, run.handler)
    ]
    if delivery_ids and not told:
        return "Replay {}?"
    left_out = f"… and {len(told) - _MOST_TOLD} more\n" if len(told) > _MOST_TOLD else ""
    return (
        "".join(told[:_MOST_TOLD]).replace("{", "{{").replace("}", "}}")
        + left_out
        + "Effects of handlers that succeeded are made again, also with delivery.once(). Replay {}?"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _ReplayOptions:
    """Which runs of the selected deliveries a replay makes due again."""

    handler: str | None
    backfill: Backfill | None
    all_handlers: bool
    as_type: str | None

    @property
    def includes_succeeded(self) -> bool:
        """Whether runs that succeeded are replayed as well."""
        return self.all_handlers or self.handler is not None


def _replay(inbox: Inbox, chosen: SelectedDeliveries, options: _ReplayOptions, flags: Flags) -> None:
    from billhook.inbox.replay import ReplayResult, replay

    now = datetime.now(UTC)
    done = ReplayResult()

    def change(batch: list[int]) -> int:
        nonlocal done
        changed = replay(
            inbox,
            batch,
            now,
            handler=options.handler,
            backfill=options.backfill,
            all_handlers=options.all_handlers,
            as_type=options.as_type,
            dry_run=flags.dry_run,
        )
        done += changed
        return changed.deliveries

    apply_in_batches(inbox, "replay", chosen, change, dry_run=flags.dry_run)
    _report(inbox, chosen.total, done, options, dry_run=flags.dry_run, as_json=flags.as_json)


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
    for delivery in details(inbox, delivery_ids):
        if as_type is None and not delivery.summary.event_type:
            raise CliError(f"delivery {delivery.summary.id} has no event type: give one with --as TYPE")
        if as_type is not None and delivery.runs:
            raise CliError(
                f"delivery {delivery.summary.id} was already handled as {delivery.summary.event_type}: --as "
                "applies only before any handler has run; nothing was replayed"
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


def _report(
    inbox: Inbox, total: int, done: ReplayResult, options: _ReplayOptions, *, dry_run: bool, as_json: bool
) -> None:
    """Print the result for `total` deliveries and, on stderr, a hint if no worker is running."""
    if as_json:
        counts = {"selected": total, "replayed": done.deliveries, "reread": done.requeued, "runs": done.runs}
        print_json({**counts, "added": done.added, "dry_run": dry_run})
    else:
        _print(total, done, dry_run=dry_run, includes_succeeded=options.includes_succeeded)
    if not as_json:
        say_paused(inbox.paused_handlers())
    hint = worker_hint(inbox) if done.deliveries and not dry_run else None
    if hint is not None:
        click.echo(hint, err=True)


def _print(total: int, done: ReplayResult, *, dry_run: bool, includes_succeeded: bool) -> None:
    would = "would be " if dry_run else ""
    runs = "1 run" if done.runs == 1 else f"{done.runs} runs"
    click.echo(
        f"{done.deliveries} of {delivery_count(total)} {would}replayed: "
        f"{runs} {would}due again, {delivery_count(done.requeued)} {would}parsed again"
        + (f", {delivery_count(done.added)} {would}handled for the first time" if done.added else "")
    )
    if not done.deliveries:
        click.echo(_why_nothing(includes_succeeded))


def _why_nothing(includes_succeeded: bool) -> str:
    if includes_succeeded:
        return "Nothing to do: no such run is finished or waits for a retry."
    return (
        "Nothing to do: no handler failed. Use --all-handlers to run the succeeded handlers again, or "
        "--handler NAME for one of them."
    )
