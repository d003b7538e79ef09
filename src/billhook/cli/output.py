"""Output of the commands: tables for people, JSON for programs, progress on stderr, and errors.

Text from outside passes through `printable`: a delivery must not move the cursor, colour the terminal or
change the reading direction. An error is one line on stderr and an exit code, never a stack trace.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from billhook.basics.printable import printable as printable
from billhook.clock import format_duration, format_time
from billhook.errors import BillhookError, ConfigError
from billhook.errors.program import in_program

if TYPE_CHECKING:
    from billhook.inbox import PausedHandler

_MIN_CELL_WIDTH = 7
_MIN_CUT_WIDTH = 10
_PROSE_WIDTH = 100
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def print_json(value: Any) -> None:
    """Print one JSON document on stdout, in ASCII, so that nothing in it can control a terminal."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def print_wire(body: bytes) -> None:
    """Print one JSON document in ASCII, with each number's digits unchanged."""
    mark = uuid4().hex  # random, so it occurs in no text from outside
    marked = json.loads(body, parse_float=lambda digits: f"{mark}{digits}{mark}")
    click.echo(json.dumps(marked, indent=2).replace(f'"{mark}', "").replace(f'{mark}"', ""))


def print_json_line(value: Any) -> None:
    """Print a JSON document as one line."""
    click.echo(json.dumps(value, default=_plain))


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def say(text: str = "") -> None:
    """Print a line on stderr: what stdout has stays clean for a pipe."""
    click.echo(text, err=True)


def took(seconds: float | None) -> str:
    """Return a duration as a cell of a table; empty for None."""
    return "" if seconds is None else format_duration(seconds)


def terminal_width() -> int | None:
    """Return the columns of a line; None for a pipe or a file, where nothing is cut."""
    # COLUMNS counts for a pipe as well: a program that sets it, such as `watch`, wants that width.
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return None


def print_table(
    columns: Sequence[str],
    rows: Iterable[Iterable[object]],
    *,
    title: str | None = None,
    whole: Collection[str] = (),
    cut: str = "",
    keep: str = "",
    optional: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print a table on stdout. Cells are plain text, never markup.

    Columns in `whole` are never wrapped on a terminal, no column elsewhere; cells of `cut` end in … on a
    terminal. Without a cell that says something an `optional` column is left out, and the `spare` ones are,
    in this order, on a terminal that is too narrow. Invisible characters are escaped but for those in `keep`:
    a line feed in an error's text would look like a further row.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = terminal_width()
    cells = [[Text("" if cell is None else printable(cell, keep)) for cell in row] for row in rows]
    # By number, because two columns may have the same name.
    shown = {number: [row[number] for row in cells] for number in range(len(columns))}
    shown = {n: own for n, own in shown.items() if columns[n] not in optional or any(map(len, own))}
    widths = {n: max([len(columns[n]), *(cell.cell_len for cell in own)]) for n, own in shown.items()}
    for number in map(columns.index, spare if width is not None else ()):
        least = sum(2 + (_MIN_CUT_WIDTH if columns[n] == cut else widths[n]) for n in shown)
        if least > (width or 0):
            shown.pop(number, None)
    table = Table(
        title=title,
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    # A program that reads a pipe expects a row on one line.
    unbroken = {*columns} if width is None else {*whole}
    taken = 2 * (len(shown) - 1) + sum(widths[n] for n in shown if columns[n] in unbroken)
    left = (width or 0) - taken
    left = max(left, 0 if all(columns[n] in unbroken for n in shown) else _MIN_CELL_WIDTH)
    for number, own in shown.items():
        # Wrapped, not cut: people copy ids and names from tables.
        table.add_column(columns[number], overflow="fold", no_wrap=columns[number] in unbroken)
        if columns[number] == cut and width is not None:
            for cell in own:
                cell.truncate(left, overflow="ellipsis")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    # A width of our own: rich would take 80 for a pipe, and break the columns that must stay whole.
    Console(width=taken + left).print(table)


def print_markdown(title: str, text: str) -> None:
    """Print a section of Markdown on stdout: formatted on a terminal, else as it is written."""
    if not sys.stdout.isatty():
        click.echo(f"{title}\n\n{text}\n")
        return
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.text import Text
    from rich.theme import Theme

    # Without rich's dark background of code, which a light terminal does not have.
    theme = Theme({"markdown.code": "bold cyan"})
    console = Console(width=min(shutil.get_terminal_size().columns, _PROSE_WIDTH), theme=theme)
    console.print(Text(title, style="bold underline"), "", sep="\n")
    console.print(Markdown(text, code_theme="ansi_dark", hyperlinks=False), "")


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr while the block runs, if it is a terminal; `total` None: unknown.

    Gives a function that adds 1, or a number, to what is done.
    """
    if not sys.stderr.isatty():
        yield lambda count=1: None
        return
    from rich.console import Console
    from rich.progress import Progress

    # On stderr, so that stdout stays clean for a pipe; transient, so that it leaves no line behind.
    with Progress(console=Console(stderr=True), transient=True) as bar:
        yield partial(bar.advance, bar.add_task(label, total=total))


def say_paused(paused: Iterable[PausedHandler]) -> None:
    """Print what each paused handler is paused for, and how to resume it, on stderr."""
    for one in paused:
        why = f" ({printable(one.why)})" if one.why else ""
        name = printable(one.name)
        say(f"PAUSED: {name} since {format_time(one.since)} UTC{why}")
        hint = in_program(f"billhook handlers resume {quote(name)}")
        say(f"        its deliveries wait; to go on: {hint}")


class CliError(click.ClickException):
    """A valid command that failed: printed as `Error: …`, exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(in_program(message))  # not when it is shown: the command's context is gone by then


class UsageConfigError(CliError):
    """A wrong configuration or argument: exit code 2, as for click's own usage errors."""

    exit_code = 2


class BillhookGroup(click.Group):
    """A command group that reports billhook's exceptions as CliError, under `billhook` and under `flask`."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        # Before anything is printed: help, tables and errors have characters that some encodings lack.
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:  # closed, as some schedulers start their commands
                setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - for the whole process
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        # On the group, not in `main`: under `flask billhook …` this group is the only part that is ours.
        try:
            return super().invoke(ctx)
        except BillhookError as error:
            kind = UsageConfigError if isinstance(error, ConfigError) else CliError
            raise kind(str(error)) from None
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            # A full disk is the user's to mend. Any other OSError may be our mistake: it keeps its trace.
            try:
                sys.stdout.flush()
            except OSError:  # given up, or Python would try again when it exits, and exit with code 120
                with Path(os.devnull).open("wb") as null:
                    os.dup2(null.fileno(), sys.stdout.fileno())
            raise CliError(f"cannot write: {error.strerror}") from None
