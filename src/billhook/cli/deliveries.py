"""`billhook deliveries`: what the inbox holds, and doing it again."""

from __future__ import annotations

import json
from typing import Any

import click

from billhook.cli.discard import discard
from billhook.cli.faults import Fault
from billhook.cli.output import print_json, progress
from billhook.cli.params import DELIVERY_ID, NAME, as_json, delivery_filters
from billhook.cli.prune import prune
from billhook.cli.replay import replay
from billhook.cli.where import open_inbox

__all__ = ["deliveries"]


@click.group()
def deliveries() -> None:
    """List, show, replay, discard, export and prune what was received. Standalone it needs no secrets.

    \b
    States:
      received     not yet read
      waiting      no handler has begun, or it waits for its turn
      running      a handler is at work
      retrying     a handler failed, and is called again later
      done         every handler succeeded, there was none, or it was discarded
      dead         a handler failed at its last attempt: replay or discard it
      quarantined  authentic, but unreadable, without a type, or in conflict
      pruned       past its retention: only its key is kept, to know a duplicate
    """


deliveries.add_command(discard)
deliveries.add_command(prune)
deliveries.add_command(replay)


@deliveries.command("list")
@delivery_filters
@click.option("--handler", type=NAME, metavar="NAME", help="With a run of this handler.")
@click.option("--twins", is_flag=True, help="Those that a handler had already, under another key.")
@click.option("--conflicts", is_flag=True, help="Those that came under another's key, not being the same.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="As many at most."
)
@click.option(
    "--after", type=DELIVERY_ID, metavar="ID", help="Go on after this one, the last of the page before."
)
@as_json
def list_(limit: int, after: int | None, as_json: bool, **selected: Any) -> None:
    """List deliveries, newest first. Of several handlers the line tells of the one that fares worst.

    \b
    Examples:
      billhook deliveries list --state retrying --error KeyError
      billhook deliveries list --state dead --since 2h
      billhook deliveries list --type InvoiceApproved --json | jq '.[].key'
    """
    from billhook.cli.listing import print_page
    from billhook.inbox.admin import Selection

    with open_inbox() as inbox:
        print_page(inbox, Selection(**selected), limit, after, as_json=as_json)


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

    A body that is not UTF-8 is in body_base64 in the place of body. A file that your shell writes it to is as
    open to others as your umask says: run umask 077 first.

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
