"""Deliveries in a table: one line each, with how their handlers fare."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click

from billhook.cli.choosing import known_handlers
from billhook.cli.facts import error_text, listed_facts
from billhook.cli.output import print_json, print_table, printable, width
from billhook.inbox import Inbox, RunState
from billhook.inbox.admin import Listed, Run, Selection, count, listed, page

__all__ = ["print_page"]

# The first of these that a run is in says most about its delivery; of `due` only what failed already.
_TELLING = ("dead", "retrying", "running", "due", "waiting", "discarded", "succeeded")
_LEFT_OUT = ("key", "next try (UTC)", "attempts", "handler")
"""What a narrow terminal has no room for, in this order; `show` tells all of it."""
_LEAST_CUT = 10


def print_page(inbox: Inbox, selection: Selection, limit: int, after: int | None, *, as_json: bool) -> None:
    """Print the newest of the selected, below the id `after`, and how to go on where there are more."""
    # One more than asked for tells whether there is a page after this one.
    found = page(inbox, selection, limit + 1, below=after)
    more, shown = len(found) > limit, listed(inbox, found[:limit])
    if as_json:
        print_json([listed_facts(one) for one in shown])
    elif not shown:
        click.echo(_nothing(inbox, selection))
    else:
        _print(shown)
        if more:
            click.echo(f"More: add --after {shown[-1].summary.id}", err=True)


def _print(shown: Sequence[Listed]) -> None:
    """What tells them apart is whole; on a terminal the last error, or a long key, is cut."""
    from billhook.signing.source import DEFAULT_SOURCE

    columns = {name: [] for name in _row(shown[0])}  # type: dict[str, list[Any]]
    for one in shown:
        for name, cell in _row(one).items():
            columns[name].append(cell)
    if all(source == DEFAULT_SOURCE for source in columns["source"]):
        del columns["source"]
    for name in ("next try (UTC)", "twin of", "conflict of", "last error"):
        if not any(columns[name]):
            del columns[name]
    cut = "last error" if "last error" in columns else "key"
    for name in _LEFT_OUT:
        if name in columns and name != cut and _taken(columns, cut) > (width() or _taken(columns, cut)):
            del columns[name]
    whole = list(columns) if width() is None else [name for name in columns if name != cut]
    print_table("", list(columns), zip(*columns.values(), strict=True), whole=whole, cut=cut)


def _row(one: Listed) -> dict[str, Any]:
    summary, run = one.summary, min(one.runs, key=_rank, default=None)
    more = f" +{len(one.runs) - 1}" if len(one.runs) > 1 else ""
    error = error_text(one.error) if run is None or one.error is not None else run.last_error
    return {
        "id": summary.id,
        "received (UTC)": _moment(summary.received_at),
        "type": summary.event_type or "(none)",
        "state": one.standing,
        "source": summary.source,
        "handler": None if run is None else run.handler + more,
        "attempts": None if run is None else run.attempts,
        "next try (UTC)": None if run is None else _next(run),
        "twin of": summary.twin_of,
        "conflict of": summary.conflict_of,
        "last error": " ".join(error.split()) if error else None,
        "key": summary.key,
    }


def _rank(run: Run) -> int:
    return _TELLING.index("retrying" if _retried(run) else run.state)


def _retried(run: Run) -> bool:
    return run.state == RunState.DUE and run.attempts > 0


def _next(run: Run) -> str | None:
    return _moment(run.due_at) if _retried(run) else None


def _taken(columns: dict[str, list[Any]], cut: str) -> int:
    """How wide the table is when `cut` has the least room."""
    return sum(
        2 + (_LEAST_CUT if name == cut else max(len(name), *(_length(cell) for cell in cells)))
        for name, cells in columns.items()
    )


def _length(cell: object) -> int:
    return 0 if cell is None else len(printable(cell))


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _nothing(inbox: Inbox, selection: Selection) -> str:
    """No delivery is selected; a name that may be why is told with those that there are."""
    from billhook.cli.wanted import near
    from billhook.events import EVENT_TYPES

    hints = []
    if selection.event_type is not None and selection.event_type not in EVENT_TYPES:
        hints.append(near(selection.event_type, EVENT_TYPES, most=1))
    if selection.handler is not None and not count(inbox, Selection(handler=selection.handler)):
        hints.append(f"none has a run of {printable(selection.handler)}{known_handlers(inbox)}")
    return "; ".join(["no deliveries match", *filter(None, hints)])
