"""`billhook deliveries`: what the inbox holds, and doing it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.faults import Fault
from billhook.cli.output import print_json, print_table, progress
from billhook.cli.params import DELIVERY_ID, NAME, as_json, delivery_filters
from billhook.cli.prune import prune
from billhook.cli.replay import replay
from billhook.cli.where import open_inbox

if TYPE_CHECKING:
    from billhook.inbox.admin import Summary

__all__ = ["deliveries"]


@click.group()
def deliveries() -> None:
    """List, show, replay, export and prune what was received. Standalone it needs no secrets.

    \b
    States:
      received     not yet read
      planned      its handlers are at work or will be
      done         every handler succeeded, or there was none
      dead         a handler gave up
      quarantined  authentic, but not readable as its type
      pruned       past its retention: only its key is kept, to know a duplicate
    """


deliveries.add_command(prune)
deliveries.add_command(replay)


@deliveries.command("list")
@delivery_filters
@click.option("--handler", type=NAME, metavar="NAME", help="With a run of this handler.")
@click.option("--twins", is_flag=True, help="Those that a handler had already, under another key.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="As many at most."
)
@click.option(
    "--after", type=DELIVERY_ID, metavar="ID", help="Go on after this one, the last of the page before."
)
@as_json
def list_(limit: int, after: int | None, as_json: bool, **selected: Any) -> None:
    """List deliveries, newest first.

    \b
    Examples:
      billhook deliveries list --state dead --since 2h
      billhook deliveries list --type InvoiceApproved --json | jq '.[].key'
    """
    from billhook.inbox.admin import Selection, page

    with open_inbox() as inbox:
        # One more than asked for tells whether there is a page after this one.
        found = page(inbox, Selection(**selected), limit + 1, below=after)
    more, found = len(found) > limit, found[:limit]
    if as_json:
        from billhook.cli.facts import summary_facts

        print_json([summary_facts(summary) for summary in found])
        return
    if not found:
        click.echo(_nothing(selected["event_type"]))
        return
    _print_page(found)
    if more:
        click.echo(f"More: add --after {found[-1].id}", err=True)


@deliveries.command()
@click.argument("delivery_id", type=DELIVERY_ID, metavar="ID")
@as_json
@click.option("--body", is_flag=True, help="Only the body, as it came (escaped on a terminal).")
def show(delivery_id: int, as_json: bool, body: bool) -> None:
    """Show one delivery: its headers, its body, and how each handler fared.

    \b
    Examples:
      billhook deliveries show 42
      billhook deliveries show 42 --body > body.json
    """
    from billhook.cli import facts
    from billhook.inbox.admin import details

    if as_json and body:
        raise click.UsageError("choose one of --json and --body: the JSON has the body")
    with open_inbox() as inbox:
        found = details(inbox, [delivery_id])
    if not found:
        raise Fault(f"there is no delivery {delivery_id} in this inbox")
    if as_json:
        print_json(facts.details_facts(found[0]))
    elif body:
        facts.write_body(found[0].body)
    else:
        facts.print_details(found[0])


@deliveries.command()
@delivery_filters
@click.option("--handler", type=NAME, metavar="NAME", help="With a run of this handler.")
def export(**selected: Any) -> None:
    """Write deliveries as JSON Lines, oldest first, with bodies, runs and failures.

    A body that is not UTF-8 is in body_base64 in the place of body.

    \b
    Example:
      billhook deliveries export --since 7d > deliveries.jsonl
    """
    from billhook.cli.facts import details_facts
    from billhook.inbox.admin import Selection, count, every

    selection = Selection(**selected)
    with open_inbox() as inbox, progress("exporting", count(inbox, selection)) as steps:
        for one in every(inbox, selection):
            click.echo(json.dumps(details_facts(one)))
            steps.advance()


def _print_page(found: Sequence[Summary]) -> None:
    """One line each: what tells them apart is whole, and a long key is cut on a terminal."""
    from billhook.signing.source import DEFAULT_SOURCE

    columns = ["id", "received (UTC)", "type", "state", "source", "key"]
    rows = [[s.id, _moment(s.received_at), s.event_type, s.state, s.source, s.key] for s in found]
    if all(summary.source == DEFAULT_SOURCE for summary in found):
        columns, rows = columns[:4] + columns[5:], [row[:4] + row[5:] for row in rows]
    if any(summary.twin_of is not None for summary in found):
        columns.insert(-1, "twin of")
        for row, summary in zip(rows, found, strict=True):
            row.insert(-1, summary.twin_of)
    print_table("", columns, rows, whole=columns[:-1], cut=columns[-1])


def _nothing(event_type: str | None) -> str:
    from billhook.cli.wanted import near
    from billhook.events import EVENT_TYPES

    told = "no deliveries match"
    hint = "" if event_type is None or event_type in EVENT_TYPES else near(event_type, EVENT_TYPES, most=1)
    return f"{told}; {hint}" if hint else told


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M")
