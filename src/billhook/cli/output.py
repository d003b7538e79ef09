"""What the commands print: tables for people, JSON for programs, progress on stderr.

Whatever came from outside passes through `printable`: a delivery must not move the cursor, colour the
terminal or turn the reading direction of whoever looks at it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from billhook.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Steps", "print_json", "print_table", "printable", "progress", "width"]

_PIPED_WIDTH = 160
_LEAST_CELL = 7


def print_json(value: Any) -> None:
    """One JSON document on stdout; ASCII, so nothing in it can act on a terminal."""
    click.echo(json.dumps(value, indent=2))


def width() -> int | None:
    """How many columns a line may have; None where nothing is cut, in a pipe or a file."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return None


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    whole: Collection[str] = (),
    cut: str = "",
) -> None:
    """A table on stdout. Cells are plain text: nothing in them is read as markup.

    Columns in `whole` are never broken, whatever the width; cells of `cut` end in … on a narrow terminal.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None,
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    cells = [[Text("" if cell is None else printable(cell, keep="\n")) for cell in row] for row in rows]
    taken = 2 * (len(columns) - 1)
    for number, column in enumerate(columns):
        # Folded, not cut: a table is also what people copy ids and names from.
        table.add_column(column, overflow="fold", no_wrap=column in whole)
        if column in whole:
            taken += max([len(column), *(row[number].cell_len for row in cells)])
    room = max((width() or _PIPED_WIDTH) - taken, _LEAST_CELL if len(whole) < len(columns) else 0)
    for row in cells:
        if cut and width() is not None:
            row[columns.index(cut)].truncate(room, overflow="ellipsis")
        table.add_row(*row)
    Console(width=taken + room).print(table)


class Steps:
    """A progress bar's handle; counts silently when there is no terminal to draw on."""

    def __init__(self, bar: Progress | None = None, task: TaskID | None = None) -> None:
        self._bar = bar
        self._task = task
        self.done = 0

    def advance(self, count: int = 1) -> None:
        """So much more is done."""
        self.done += count
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, count)


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Steps]:
    """A bar on stderr while the block runs, if stderr is a terminal; `total` None for unknown."""
    if not sys.stderr.isatty():
        yield Steps()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        yield Steps(bar, bar.add_task(label, total=total))
