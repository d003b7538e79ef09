"""`billhook deliveries tail`: the newest deliveries, and each new one as it is stored."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.context import open_inbox
from billhook.cli.output import printable
from billhook.cli.params import CONTAINS, KEY, TEXT, TIME
from billhook.cli.selection import within_search_limit

if TYPE_CHECKING:
    from billhook.inbox import Deliveries, DeliveryDetails, DeliveryFilter

__all__ = ["tail"]

_LINES = 10
_SEARCHED = 10_000
"""How many deliveries are searched for the first lines of `--contains`: new ones are what is waited for."""
_WIDTHS = (23, 6, 30, 11, 7, 0)
"""Of the columns: the longest of the listed types has 30 characters. A longer cell is not cut."""
_PAUSE_SECONDS = 2.0


@click.command()
@click.option(
    "-n", "--lines", type=click.IntRange(0, 100_000), metavar="N",
    help="Begin with the newest N. Default: 10; with --since all of them.",
)  # fmt: skip
@click.option("--type", "event_type", type=TEXT, metavar="TYPE", help="Of this event type.")
@click.option("--source", type=TEXT, metavar="NAME", help="From this source.")
@KEY
@CONTAINS
@click.option(
    "--conflicts", is_flag=True, help="Deliveries with the key of another delivery but other content."
)
@click.option("--since", type=TIME, help="Begin with those since this time: an age (2h, 7d) or ISO 8601.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print a line of JSON for each, as `deliveries export` does."
)
def tail(lines: int | None, since: datetime | None, as_json: bool, **selected: Any) -> None:
    """Print the newest deliveries, and then each new one as it is stored, until Ctrl-C.

    A line has the time of receipt in UTC, the id, the type, the state at that moment, the source and the key.
    An inbox that is unavailable meanwhile is waited for.

    \b
    Examples:
      billhook deliveries tail
      billhook deliveries tail -n 0 --type PaymentFailed --json | jq .body
    """
    from billhook.inbox import Deliveries, DeliveryFilter
    from billhook.inbox.admin import export

    limit = lines if lines is not None or since is not None else _LINES
    with open_inbox() as inbox, suppress(KeyboardInterrupt):
        selection = DeliveryFilter(**selected, since=since)
        deliveries = Deliveries(inbox)
        newest = next(deliveries.find(limit=1), None)
        last = 0 if newest is None else newest.summary.id
        if limit != 0:
            first = within_search_limit(inbox, selection, _SEARCHED)
            found = (
                export(inbox, first) if limit is None else reversed([*deliveries.find(first, limit=limit)])
            )
            for one in found:
                _print(one, as_json=as_json)
                last = max(last, one.summary.id)
        _follow(deliveries, selection, last, as_json=as_json)


def _follow(deliveries: Deliveries, selection: DeliveryFilter, last: int, *, as_json: bool) -> None:
    """Print what is stored after the delivery `last`, for ever."""
    from billhook.errors import InboxUnavailable

    while True:
        try:
            for one in deliveries.follow(selection, after=last):
                _print(one, as_json=as_json)
                last = max(last, one.summary.id)
        except InboxUnavailable as error:
            click.echo(f"{printable(error)}; waiting for it", err=True)
            time.sleep(_PAUSE_SECONDS)


def _print(one: DeliveryDetails, *, as_json: bool) -> None:
    if as_json:
        from billhook.cli.delivery_format import details_json

        click.echo(json.dumps(details_json(one)))
        return
    summary = one.summary
    received = summary.received_at.isoformat(" ", "milliseconds").removesuffix("+00:00")
    cells = (received, summary.id, summary.event_type or "(none)", one.status, summary.source, summary.key)
    # Of the same widths in every line, for each is printed before the next is known.
    padded = [printable(cell).ljust(width) for cell, width in zip(cells, _WIDTHS, strict=True)]
    conflict = "" if summary.conflict_of is None else f"  conflicts with {summary.conflict_of}"
    click.echo("  ".join(padded) + conflict)
