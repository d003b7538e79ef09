"""What the commands print: tables for people, JSON for programs, progress on stderr.

Whatever came from outside passes through `printable`: a delivery must not move the cursor, colour the
terminal or turn the reading direction of whoever looks at it.
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["Steps", "print_json", "print_table", "printable", "progress"]

_PIPED_WIDTH = 160
# Controls, formats (bidirectional overrides), surrogates, private use, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def printable(text: object, keep: str = "") -> str:
    r"""Text safe for a terminal: invisible characters, but those in `keep`, are escaped, as \x1b."""
    return "".join(
        character
        if character in keep or unicodedata.category(character) not in _UNSAFE
        else character.encode("unicode_escape", "surrogatepass").decode("ascii")
        for character in str(text)
    )


def print_json(value: Any) -> None:
    """One JSON document on stdout; ASCII, so nothing in it can act on a terminal."""
    click.echo(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout. Cells are plain text: nothing in them is read as markup."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for column in columns:
        # Folded, not cut: a table is also what people copy ids and names from.
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else printable(cell, keep="\n")) for cell in row))
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    Console(width=wide).print(table)


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
