"""Select the deliveries that a command changes, by ids or by filters, and confirm the change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.errors import CliError
from billhook.cli.output import printable
from billhook.cli.params import SEARCH_LIMIT

if TYPE_CHECKING:
    from billhook.inbox import DeliveryFilter, Inbox

__all__ = [
    "confirm",
    "delivery_count",
    "filters_set",
    "in_batches",
    "known_handlers_hint",
    "no_match_message",
    "paced",
    "require_selection",
    "select_ids",
    "take_search_limit",
    "within_search_limit",
]


def filters_set(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters that are set. An empty text is one: dropped, it would select more."""
    return {name: each for name, each in filters.items() if each is not None and each is not False}


def require_selection(
    what: str, delivery_ids: tuple[int, ...], everything: bool, selected: Mapping[str, Any]
) -> None:
    """Raise UsageError unless there are either ids or filters."""
    if not delivery_ids and everything:
        raise click.UsageError(
            f"nothing to {what} is selected: give ids, or one of --type --state --error --source --key "
            "--since --until --contains --handler --conflicts"
        )
    if delivery_ids and any(each is not None for each in selected.values()):
        raise click.UsageError("give ids or filters, not both")


def take_search_limit(selected: dict[str, Any]) -> int:
    """Remove and return the search limit. Raises UsageError for one without a text to search for."""
    limit = selected.pop("search_limit", None)
    if limit is not None and selected.get("contains") is None:
        raise click.UsageError("--search-limit is for --contains TEXT")
    return SEARCH_LIMIT if limit is None else int(limit)


def within_search_limit(inbox: Inbox, selection: DeliveryFilter, limit: int) -> DeliveryFilter:
    """Bound a search for a text to the newest `limit` of what else is selected, and tell so on stderr."""
    from billhook.inbox.admin import search_bound

    if selection.contains is None:
        return selection
    number, from_id, received_at = search_bound(inbox, selection, limit)
    searched = (
        f"searched the newest {delivery_count(number)}"
        if number == limit
        else (f"searched {delivery_count(number)}")
    )
    if received_at is not None:
        searched += f", back to {received_at:%Y-%m-%d %H:%M:%S} UTC"
    if number == limit:
        searched += "; --search-limit N searches more"
    click.echo(searched, err=True)
    return replace(selection, from_id=from_id)


def select_ids(
    inbox: Inbox, delivery_ids: tuple[int, ...], selection: Any, done: str, search_limit: int
) -> tuple[Iterable[list[int]], int]:
    """Return the ids in batches and their number. Raises CliError for an unknown id; nothing is `done`."""
    from billhook.inbox import DeliveryState, admin

    if not delivery_ids:
        selection = within_search_limit(inbox, selection, search_limit)
        return admin.id_batches(inbox, selection), admin.count(inbox, selection)
    # Named ids are all checked first: a typing error among them must not leave the work half done.
    wanted = sorted(set(delivery_ids))
    states = {one.summary.id: one.summary.state for one in admin.details(inbox, wanted)}
    for delivery_id in wanted:
        if delivery_id not in states:
            raise CliError(f"there is no delivery {delivery_id} in this inbox; nothing was {done}")
        if states[delivery_id] == DeliveryState.PRUNED.value:
            raise CliError(
                f"delivery {delivery_id} is past its retention, only its key is left; nothing was {done}"
            )
    return in_batches(wanted, admin.BATCH), len(wanted)


def in_batches(wanted: list[int], size: int) -> Iterator[list[int]]:
    """Yield the ids in lists of at most `size`."""
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]


def paced(batches: Iterable[list[int]], rate: float) -> Iterator[list[int]]:
    """Yield smaller batches, each when it is due: `rate` ids per second."""
    # A quarter of a second's worth at a time: smooth enough, and one transaction for several deliveries.
    size, sent, started = max(1, int(rate / 4)), 0, time.monotonic()
    for batch in batches:
        for part in in_batches(batch, size):
            # From the start, not from the last batch: delays do not add up, the rate holds on average.
            time.sleep(max(0.0, started + sent / rate - time.monotonic()))
            yield part
            sent += len(part)


def delivery_count(number: int) -> str:
    """Return the number with its noun: `1 delivery`, `2 deliveries`."""
    return "1 delivery" if number == 1 else f"{number} deliveries"


def known_handlers_hint(inbox: Inbox) -> str:
    """Return "; known handlers: …" with those of the newest deliveries, after a name that is not one."""
    from billhook.inbox.admin import handler_names

    names = handler_names(inbox)
    return f"; known handlers: {printable(', '.join(names))}" if names else ""


def no_match_message(inbox: Inbox, handler: str | None) -> str:
    """Return that nothing matches; for an unknown handler with the names that recent deliveries have."""
    from billhook.inbox.admin import DeliveryFilter, count

    text = "nothing matches"
    if handler is None or count(inbox, DeliveryFilter(handler=handler)):
        return text
    return f"{text}: no delivery has a run of {printable(handler)}{known_handlers_hint(inbox)}"


def confirm(question: str) -> None:
    """Ask the user, and return only after a yes. Raises CliError without a terminal to answer on."""
    try:
        # On stderr: the question must be seen although stdout goes to a file.
        yes = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():  # Ctrl-C, or the end of the input by hand
            raise
        click.echo(err=True)
        raise CliError(
            "nothing was changed: there is no terminal to confirm on; add --yes to skip the question"
        ) from None
    if not yes:
        raise click.Abort
