"""`billhook deliveries prune`: delete old finished deliveries."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.context import load_settings, open_inbox
from billhook.cli.output import print_json, print_table, progress
from billhook.cli.params import FiniteNumber, as_json
from billhook.cli.selection import confirm, recording

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.retention import Cutoffs

__all__ = ["prune"]

_STATES = ("done", "dead", "quarantined")
_ALL_STATES = (*_STATES, "pruned", "erased")
_LONGEST_PAUSE_SECONDS = 0.2


@click.command()
@click.option(
    "--older-than",
    "days",
    type=FiniteNumber(0, 36_500),
    metavar="DAYS",
    help="Received more than DAYS ago. Default: BILLHOOK_RETENTION_DAYS.",
)
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    help="Only deliveries in this state. May be repeated. Default: all three, and kept keys.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted without deleting it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@as_json
def prune(days: float | None, states: Sequence[str], dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete old finished deliveries: their bodies, headers, runs and errors.

    A delivery younger than 7 days keeps its key (state pruned), so that a duplicate is still detected; an
    older one is deleted completely. A delivery whose scheme signs no time (body-hmac) could be sent again at
    any time: its key is kept for ever, or for BILLHOOK_KEY_DAYS. Unfinished deliveries are never deleted. The
    engines do the same once an hour with BILLHOOK_RETENTION_DAYS.

    \b
    Examples:
      billhook deliveries prune --dry-run
      billhook deliveries prune --older-than 1 --state done --yes
    """
    from billhook.inbox.retention import Cutoffs

    settings = load_settings()
    days = settings.retention_days if days is None else days
    limits = Cutoffs.of(datetime.now(UTC), days, settings.key_days)
    with open_inbox() as inbox:
        if not (yes or dry_run or as_json):
            emptied, deleted = _pass(inbox, limits, states, lambda number: None, dry_run=True)
            if not emptied + deleted:
                click.echo(_nothing_to_prune(days))
                return
            # Counted first, so that the question says what an answer of yes deletes.
            what = f"{deleted.total()} completely, {emptied.total()} except for their keys"
            confirm(f"Prune deliveries older than {_in_days(days)}: {what}?")
        which = " ".join([f"--older-than {days:g}", *(f"--state {state}" for state in states)])
        with recording(inbox, "prune", which, dry_run=dry_run) as recorder:
            emptied, deleted = _pass(inbox, limits, states, recorder.add, dry_run=dry_run)
    _report(emptied, deleted, days, dry_run=dry_run, as_json=as_json)


def _pass(
    inbox: Inbox,
    limits: Cutoffs,
    states: Sequence[str],
    record: Callable[[int], object],
    *,
    dry_run: bool,
) -> tuple[Counter[str], Counter[str]]:
    """Prune from the oldest to the first that is too young; return what was emptied and deleted, by state."""
    from billhook.inbox import DeliveryState
    from billhook.inbox.admin import DeliveryFilter, page
    from billhook.inbox.retention import PRUNABLE

    chosen = [DeliveryState(state) for state in states] or PRUNABLE
    # Ids rise with time, so the newest one is the length of the way: the progress is in ids, not deliveries.
    newest = page(inbox, DeliveryFilter(), 1)
    emptied: Counter[str] = Counter()
    deleted: Counter[str] = Counter()
    after, over = 0, False
    with progress("counting" if dry_run else "pruning", newest[0].id if newest else 0) as steps:
        while not over:
            started = time.monotonic()
            result = inbox.prune(limits, after, states=chosen, dry_run=dry_run)
            emptied += result.emptied
            deleted += result.deleted
            record(result.total)
            steps.advance(result.after - after)
            after, over = result.after, result.over
            # A pause as long as the batch took: SQLite has one writer at a time, and receivers must get half.
            if not (dry_run or over):
                time.sleep(min(time.monotonic() - started, _LONGEST_PAUSE_SECONDS))
    return emptied, deleted


def _report(
    emptied: Counter[str], deleted: Counter[str], days: float, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        by_state = {state: {"keys_kept": emptied[state], "deleted": deleted[state]} for state in _ALL_STATES}
        result: dict[str, Any] = {"older_than_days": days, "dry_run": dry_run}
        result |= {"pruned": (emptied + deleted).total(), "keys_kept": emptied.total()}
        print_json({**result, "deleted": deleted.total(), "by_state": by_state})
        return
    if not emptied + deleted:
        click.echo(_nothing_to_prune(days))
        return
    both = emptied + deleted
    rows: list[tuple[object, ...]] = [
        (state, both[state], emptied[state], deleted[state]) for state in _ALL_STATES if both[state]
    ]
    rows.append(("all", both.total(), emptied.total(), deleted.total()))
    print_table(
        f"{'to be pruned' if dry_run else 'pruned'}, older than {_in_days(days)}",
        ("state", "deliveries", "key kept", "deleted"),
        rows,
    )


def _nothing_to_prune(days: float) -> str:
    return f"no finished delivery is older than {_in_days(days)}"


def _in_days(days: float) -> str:
    return "1 day" if days == 1 else f"{days:g} days"
