"""Select the deliveries that a command changes, by ids or by filters, confirm the change, and record it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from billhook.cli.context import operator
from billhook.cli.output import CliError, printable, progress
from billhook.cli.params import SEARCH_LIMIT

if TYPE_CHECKING:
    from billhook.inbox import DeliveryFilter, Inbox
    from billhook.inbox.actions import ActionRecorder

__all__ = [
    "Flags",
    "SelectedDeliveries",
    "apply_in_batches",
    "confirm",
    "delivery_count",
    "describe",
    "in_batches",
    "known_handlers_hint",
    "no_match_message",
    "paced",
    "parse_selection",
    "recording",
    "select",
    "take_search_limit",
    "within_search_limit",
]


class Flags(NamedTuple):
    """Hold the options that every command which changes deliveries has."""

    dry_run: bool
    yes: bool
    as_json: bool


class SelectedDeliveries(NamedTuple):
    """Hold ids of deliveries in batches, their number, and the ids or the conditions that selected them.

    `conditions` repeat no text of a payload: they are recorded, and it may name a customer.
    """

    batches: Iterable[list[int]]
    total: int
    conditions: str = ""
    named: tuple[int, ...] = ()


def parse_selection(
    verb: str, delivery_ids: tuple[int, ...], options: dict[str, Any], *, other_filter: bool = False
) -> tuple[DeliveryFilter, int]:
    """Return the filter and the search limit from a command's options.

    Raises UsageError unless there are either ids or filters; with `other_filter` another option selects.
    """
    from billhook.inbox import DeliveryFilter

    search_limit = take_search_limit(options)
    # An empty text is a condition: dropped, it would select more.
    filters = {name: value for name, value in options.items() if value is not None and value is not False}
    if not (delivery_ids or filters or other_filter):
        raise click.UsageError(
            f"nothing to {verb} is selected: give ids, or one of --type --state --error --source --key "
            "--since --until --contains --handler --conflicts"
        )
    if delivery_ids and filters:
        raise click.UsageError("give ids or filters, not both")
    return DeliveryFilter(**filters), search_limit


def select(
    inbox: Inbox,
    delivery_ids: tuple[int, ...],
    selection: DeliveryFilter,
    search_limit: int,
    *,
    question: str,
    past_participle: str,
    flags: Flags,
) -> SelectedDeliveries | None:
    """Find the selected deliveries, and ask the user whether to go on; None if there are none.

    `question` has {} for their number; with flags.as_json nothing is asked, and none is a result too. Raises
    CliError for an unknown id: "nothing was {past_participle}".
    """
    batches, total = _select_ids(inbox, delivery_ids, selection, past_participle, search_limit)
    if not (total or flags.as_json):
        click.echo(no_match_message(inbox, selection.handler))
        return None
    if not any(flags):
        confirm(question.format(delivery_count(total)))
    return SelectedDeliveries(batches, total, describe(selection), delivery_ids)


_OPTIONS = {"event_type": "type"}
_PAYLOAD_TEXTS = ("contains", "error")
_NO_OPTIONS = ("decided", "from_id")


def describe(selection: DeliveryFilter) -> str:
    """Return a filter as the options that it comes from, without texts that may be of a payload."""
    options = []
    for field in fields(selection):
        value = getattr(selection, field.name)
        if value in (None, False) or field.name in _NO_OPTIONS:
            continue
        option = f"--{_OPTIONS.get(field.name, field.name)}"
        text = f"{value:%Y-%m-%dT%H:%M:%S}" if isinstance(value, datetime) else printable(value)
        if field.name in _PAYLOAD_TEXTS:
            text = "…"
        options.append(option if value is True else f"{option} {text}")
    return " ".join(options)


class _NoRecorder:
    """Replace the recorder in a dry run, which is not recorded."""

    def add(self, number: int, delivery_ids: Iterable[int] = ()) -> None:
        """Do nothing."""


@contextmanager
def recording(
    inbox: Inbox, what: str, which: str, *, dry_run: bool = False
) -> Iterator[ActionRecorder | _NoRecorder]:
    """Record an action of this user, which the block carries out; a `dry_run` is not recorded."""
    from billhook.inbox.actions import recorded

    if dry_run:
        yield _NoRecorder()
        return
    with recorded(inbox, operator(), what, which, datetime.now(UTC)) as recorder:
        yield recorder


def apply_in_batches(
    inbox: Inbox,
    what: str,
    selected: SelectedDeliveries,
    change: Callable[[list[int]], int],
    *,
    dry_run: bool,
) -> None:
    """Apply `change` to each batch, and record it: it returns how many deliveries it changed."""
    from billhook.inbox.actions import ids_text

    label = "counting" if dry_run else f"{what.removesuffix('e')}ing"
    which = ids_text(set(selected.named)) if selected.named else selected.conditions
    with (
        progress(label, selected.total) as steps,
        recording(inbox, what, which, dry_run=dry_run or not selected.total) as recorder,
    ):
        for batch in selected.batches:
            recorder.add(change(batch), () if selected.named else batch)
            steps.advance(len(batch))
            # After each batch: a worker may begin with what is due now while others follow.
            if not dry_run:
                inbox.waker.wake()


def take_search_limit(selected: dict[str, Any]) -> int:
    """Remove and return the search limit. Raises UsageError for one without a text to search for."""
    limit = selected.pop("search_limit", None)
    if limit is not None and selected.get("contains") is None:
        raise click.UsageError("--search-limit is for --contains TEXT")
    return SEARCH_LIMIT if limit is None else int(limit)


def within_search_limit(inbox: Inbox, selection: DeliveryFilter, limit: int) -> DeliveryFilter:
    """Bound a search for a text to the newest `limit` selected deliveries; print the bound on stderr."""
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


def _select_ids(
    inbox: Inbox, delivery_ids: tuple[int, ...], selection: Any, past_participle: str, search_limit: int
) -> tuple[Iterable[list[int]], int]:
    """Return the ids in batches and their number. Raises CliError for an unknown id."""
    from billhook.inbox import DeliveryState, admin

    if not delivery_ids:
        selection = within_search_limit(inbox, selection, search_limit)
        return admin.id_batches(inbox, selection), admin.count(inbox, selection)
    # Named ids are all checked first: a typing error among them must not leave the work half done.
    wanted = sorted(set(delivery_ids))
    states = {found.summary.id: found.summary.state for found in admin.details(inbox, wanted)}
    for delivery_id in wanted:
        if delivery_id not in states:
            raise CliError(f"there is no delivery {delivery_id} in this inbox; nothing was {past_participle}")
        if states[delivery_id] == DeliveryState.PRUNED.value:
            raise CliError(
                f"delivery {delivery_id} is past its retention, only its key is left; nothing was "
                f"{past_participle}"
            )
        if states[delivery_id] == DeliveryState.ERASED.value:
            raise CliError(
                f"delivery {delivery_id} was erased, its body is gone; nothing was {past_participle}"
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
