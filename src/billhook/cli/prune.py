"""`billhook deliveries prune`: let go of what is old."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.choosing import confirm
from billhook.cli.output import print_json, print_table, progress
from billhook.cli.params import Amount, as_json
from billhook.cli.where import open_inbox, the_settings

if TYPE_CHECKING:
    from billhook.inbox import Inbox
    from billhook.inbox.retention import Limits

__all__ = ["prune"]

_STATES = ("done", "dead", "quarantined")
_LONGEST_BREATH_SECONDS = 0.2


@click.command()
@click.option(
    "--older-than",
    "days",
    type=Amount(0, 36_500),
    metavar="DAYS",
    help="Received longer ago; default: BILLHOOK_RETENTION_DAYS.",
)
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    help="Only those in this state; may be given again. Default: all three, and kept keys.",
)
@click.option("--dry-run", is_flag=True, help="Say what would go, and do nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def prune(days: float | None, states: Sequence[str], dry_run: bool, yes: bool, as_json: bool) -> None:
    """Let go of finished deliveries that are old: their bodies, headers, runs and errors.

    A delivery younger than 7 days leaves its key behind (state pruned), so that a duplicate is known for
    one; of an older one nothing is left. One that signed no time (body-hmac) leaves its key for ever, or
    for BILLHOOK_KEY_DAYS: it could be sent again at any time. What is not finished stays, however old it
    is. The engines do the same by themselves, once an hour, with BILLHOOK_RETENTION_DAYS.

    \b
    Examples:
      billhook deliveries prune --dry-run
      billhook deliveries prune --older-than 1 --state done --yes
    """
    from billhook.inbox.retention import Limits

    settings = the_settings()
    days = settings.retention_days if days is None else days
    limits = Limits.of(datetime.now(UTC), days, settings.key_days)
    with open_inbox() as inbox:
        if not (yes or dry_run or as_json):
            emptied, deleted = _pass(inbox, limits, states, dry_run=True)
            if not emptied + deleted:
                click.echo(_nothing(days))
                return
            what = f"{deleted.total()} to be deleted, {emptied.total()} to leave their keys"
            confirm(f"Prune deliveries older than {_in_days(days)}: {what}?")
        emptied, deleted = _pass(inbox, limits, states, dry_run=dry_run)
    _report(emptied, deleted, days, dry_run=dry_run, as_json=as_json)


def _pass(
    inbox: Inbox, limits: Limits, states: Sequence[str], *, dry_run: bool
) -> tuple[Counter[str], Counter[str]]:
    """From the oldest to the first that is young enough; what was emptied and what was deleted, by state."""
    from billhook.inbox import DeliveryState
    from billhook.inbox.admin import Selection, page
    from billhook.inbox.retention import PRUNABLE

    chosen = [DeliveryState(state) for state in states] or PRUNABLE
    newest = page(inbox, Selection(), 1)
    emptied: Counter[str] = Counter()
    deleted: Counter[str] = Counter()
    after, over = 0, False
    with progress("counting" if dry_run else "pruning", newest[0].id if newest else 0) as steps:
        while not over:
            started = time.monotonic()
            went = inbox.prune(limits, after, states=chosen, dry_run=dry_run)
            emptied += went.emptied
            deleted += went.deleted
            steps.advance(went.after - after)
            after, over = went.after, went.over
            if not (dry_run or over):  # as long again for those who wait to write
                time.sleep(min(time.monotonic() - started, _LONGEST_BREATH_SECONDS))
    return emptied, deleted


def _report(
    emptied: Counter[str], deleted: Counter[str], days: float, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        by_state = {
            state: {"keys_kept": emptied[state], "deleted": deleted[state]} for state in (*_STATES, "pruned")
        }
        facts: dict[str, Any] = {"older_than_days": days, "dry_run": dry_run}
        facts |= {"pruned": (emptied + deleted).total(), "keys_kept": emptied.total()}
        print_json({**facts, "deleted": deleted.total(), "by_state": by_state})
        return
    if not emptied + deleted:
        click.echo(_nothing(days))
        return
    both = emptied + deleted
    rows: list[tuple[object, ...]] = [
        (state, both[state], emptied[state], deleted[state]) for state in (*_STATES, "pruned") if both[state]
    ]
    rows.append(("all", both.total(), emptied.total(), deleted.total()))
    print_table(
        f"{'would go' if dry_run else 'gone'}, older than {_in_days(days)}",
        ("state", "deliveries", "of them key kept", "deleted"),
        rows,
    )


def _nothing(days: float) -> str:
    return f"nothing is finished and older than {_in_days(days)}"


def _in_days(days: float) -> str:
    return "1 day" if days == 1 else f"{days:g} days"
