"""`billhook actions`: what operators did to deliveries and handlers."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import click

from billhook.cli.context import open_inbox
from billhook.cli.output import print_json, print_table
from billhook.cli.params import TIME, as_json, integer
from billhook.inbox.actions import issues_acted_on, list_actions


@click.command()
@click.option("--since", type=TIME, help="Done since this time: an age (2h, 7d) or ISO 8601.")
@integer("--limit", 1, 10_000, 50, "The highest number of actions.")
@click.option(
    "--after",
    type=click.IntRange(1, 2**63 - 1),
    metavar="ID",
    help="Continue after this action, the last of the previous page.",
)
@as_json
def actions(since: datetime | None, limit: int, after: int | None, as_json: bool) -> None:
    """List what operators did, newest first: from replay and discard to export, forward and pause.

    Each is recorded with the name of the operating system's user, for 13 months. What --contains, --error and
    --customer searched for is not recorded.

    \b
    Examples:
      billhook actions --since 7d
      billhook actions --json | jq '.[] | select(.what == "erase")'
    """
    with open_inbox() as inbox:
        found = list_actions(inbox, limit + 1, after, since)
        issues = {} if as_json else issues_acted_on(inbox, found)
    shown = found[:limit]
    if as_json:
        print_json([asdict(one) for one in shown])
        return
    if not shown:
        click.echo("no action is recorded")
        return
    columns = ("id", "at (UTC)", "who", "what", "deliveries", "which")
    rows = [
        (one.id, f"{one.at:%Y-%m-%d %H:%M:%S}", one.who, one.what, one.deliveries,
         f"{one.which} ({issues[one.id][1]})" if one.id in issues else one.which)
        for one in shown
    ]  # fmt: skip
    print_table("", columns, rows, whole=columns[:5])
    if len(found) > limit:
        click.echo(f"More: add --after {shown[-1].id}", err=True)
