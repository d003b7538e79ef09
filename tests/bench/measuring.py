"""What the benchmarks share: options, figures with their spread, databases, processes."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from billhook.events import InvoiceApproved, sample
from billhook.inbox import Inbox
from billhook.inbox.tables.schema import run

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `support`, what tests share
from support.postgres import fresh_schema
from support.processes import logged

HERE = Path(__file__).parent
BODY = sample(InvoiceApproved).to_json()
Place = Callable[[Path], contextlib.AbstractContextManager[str]]
"""Gives the URL of an empty inbox in a folder, until the block ends."""


# --- options and figures ----------------------------------------------------------------------------


def options(doc: str, **defaults: Any) -> Any:
    """Parse the options of a script. A default says the type; a list of texts is all that may be chosen."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    for name, default in defaults.items():
        more: dict[str, Any] = {"default": default, "type": type(default)}
        if isinstance(default, list):
            more |= {"nargs": "+", "type": type(default[0])}
            more |= {"choices": default} if isinstance(default[0], str) else {}
        parser.add_argument(f"--{name.replace('_', '-')}", **more)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    return parser.parse_args()


def save(given: Any, figures: object) -> None:
    """Write the figures where `--json` says."""
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")


def spread(values: Sequence[float], places: int = 2) -> str:
    """Return the median, with the least and the most."""
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:,.{places}f} ({least:,.{places}f} to {most:,.{places}f})"


def ratios(ours: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratios within each round."""
    return [one / other for one, other in zip(ours, others, strict=True)]


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def at_once(count: int, work: Callable[[int], object]) -> None:
    """Do `work(number)` in so many threads."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


# --- databases --------------------------------------------------------------------------------------


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    """An inbox in a file."""
    yield f"sqlite:///{folder / 'inbox.db'}"


SERVER = os.environ.get("BILLHOOK_TEST_POSTGRES_URL")
DATABASES = ["sqlite", "postgresql"]


def places(only: Sequence[str] = DATABASES) -> dict[str, Place]:
    """Return the databases to measure on: PostgreSQL where BILLHOOK_TEST_POSTGRES_URL is set."""
    found: dict[str, Place] = {"sqlite": sqlite}
    if SERVER:
        found["postgresql"] = lambda _: fresh_schema(SERVER)
    return {name: place for name, place in found.items() if name in only}


def made(url: str, **more: Any) -> Inbox:
    """Return a new inbox at a URL."""
    inbox = Inbox(url, **more)
    inbox.upgrade() if url.startswith("postgres") else inbox.prepare()
    return inbox


@contextlib.contextmanager
def inbox_at(place: Place, **more: Any) -> Iterator[tuple[Inbox, str]]:
    """A new inbox and its URL; closed and gone afterwards."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(place(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        yield stack.enter_context(closing(made(url, **more))), url


def count_succeeded(inbox: Inbox) -> int:
    """Return how many runs have succeeded."""
    with inbox.database.read() as connection:
        counted = select(func.count()).select_from(run).where(run.c.state == "succeeded")
        return int(connection.execute(counted).scalar_one())


# --- processes --------------------------------------------------------------------------------------


def process(
    command: Sequence[str | Path], log: Path, **environment: str
) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
    """A program with its log, which finds these scripts and `support`, until the block ends."""
    path = os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    return logged(command, log, cwd=log.parent, env={**os.environ, "PYTHONPATH": path, **environment})
