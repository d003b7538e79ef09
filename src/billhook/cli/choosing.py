"""Which deliveries a command changes, by ids or by filters, and asking before it does."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.faults import Fault

if TYPE_CHECKING:
    from billhook.inbox import Inbox

__all__ = [
    "check_choice",
    "chosen",
    "confirm",
    "given",
    "in_batches",
    "in_deliveries",
    "known_handlers",
]


def given(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were set. An empty text is: it selects what has none, and dropped it would select more."""
    return {name: each for name, each in filters.items() if each is not None and each is not False}


def check_choice(
    what: str, delivery_ids: tuple[int, ...], everything: bool, selected: Mapping[str, Any]
) -> None:
    """Raise UsageError unless there are ids or filters, and not both."""
    if not delivery_ids and everything:
        raise click.UsageError(
            f"say what to {what}: ids, or one of --type --state --error --source --since --until --handler "
            "--conflicts"
        )
    if delivery_ids and any(each is not None for each in selected.values()):
        raise click.UsageError("give ids or filters, not both")


def chosen(
    inbox: Inbox, delivery_ids: tuple[int, ...], selection: Any, done: str
) -> tuple[Iterable[list[int]], int]:
    """The ids in batches, and how many; Fault for an id that is not there, and nothing is `done` then."""
    from billhook.inbox import DeliveryState, admin

    if not delivery_ids:
        return admin.ids(inbox, selection), admin.count(inbox, selection)
    wanted = sorted(set(delivery_ids))
    states = {one.summary.id: one.summary.state for one in admin.details(inbox, wanted)}
    for delivery_id in wanted:
        if delivery_id not in states:
            raise Fault(f"there is no delivery {delivery_id} in this inbox; nothing was {done}")
        if states[delivery_id] == DeliveryState.PRUNED.value:
            raise Fault(
                f"of delivery {delivery_id}, past its retention, only the key is left; nothing was {done}"
            )
    return in_batches(wanted, admin.BATCH), len(wanted)


def in_batches(wanted: list[int], size: int) -> Iterator[list[int]]:
    """The same in lists of at most so many."""
    for start in range(0, len(wanted), size):
        yield wanted[start : start + size]


def in_deliveries(number: int) -> str:
    """The number with its noun."""
    return "1 delivery" if number == 1 else f"{number} deliveries"


def known_handlers(inbox: Inbox) -> str:
    """Return "; there are …" with the handlers of the newest deliveries, for who asked for another one."""
    from billhook.cli.output import printable
    from billhook.inbox.admin import handler_names

    names = handler_names(inbox)
    return f"; there are {printable(', '.join(names))}" if names else ""


def confirm(question: str) -> None:
    """Ask, and go on only after a yes. Fault where nobody can answer."""
    try:
        yes = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():  # Ctrl-C, or the end of the input by hand
            raise
        click.echo(err=True)
        raise Fault(
            "nothing was changed: there is no terminal to answer on; --yes goes on without asking"
        ) from None
    if not yes:
        raise click.Abort
