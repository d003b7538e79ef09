"""What the benchmarks share: options, figures with their spread, databases, processes."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from billhook.events import InvoiceApproved, sample
from billhook.inbox import Inbox
from billhook.inbox.schema import run

HERE = Path(__file__).parent
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
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
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# --- databases --------------------------------------------------------------------------------------


@contextlib.contextmanager
def sqlite(folder: Path) -> Iterator[str]:
    """An inbox in a file."""
    yield f"sqlite:///{folder / 'inbox.db'}"


def server_url() -> str:
    """Return the address of the PostgreSQL server, as psycopg takes it."""
    return os.environ["BILLHOOK_TEST_POSTGRES_URL"].replace("postgresql+psycopg://", "postgresql://")


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """An inbox in a schema of its own, gone afterwards."""
    import psycopg

    server = server_url()
    name = f"bench_{os.getpid()}_{folder.name.lower()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"')
        try:
            joint = "&" if "?" in server else "?"
            yield f"{server.replace('postgresql://', 'postgresql+psycopg://')}{joint}options=-csearch_path%3D{name}"
        finally:
            connection.execute(f'DROP SCHEMA "{name}" CASCADE')


DATABASES = ["sqlite", "postgresql"]


def places(only: Sequence[str] = DATABASES) -> dict[str, Place]:
    """Return the databases to measure on: PostgreSQL where BILLHOOK_TEST_POSTGRES_URL is set."""
    found: dict[str, Place] = {"sqlite": sqlite}
    if "BILLHOOK_TEST_POSTGRES_URL" in os.environ:
        found["postgresql"] = postgres
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


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def process(
    command: Sequence[str | Path], log: Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A program with its log, beside these scripts, until the block ends; it is killed if it does not end."""
    path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environ = {**os.environ, "PYTHONPATH": path, **environment}
    with log.open("wb") as output:
        started = subprocess.Popen(command, cwd=log.parent, env=environ, stdout=output, stderr=output)
    try:
        yield started
        if started.poll() is not None:
            sys.exit(f"it has ended with {started.returncode}")
    except SystemExit:
        print(log.read_text(), file=sys.stderr)
        raise
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not within {seconds:.0f} s")
        time.sleep(0.02)


def answers(port: int, path: str, *statuses: int) -> bool:
    """Return whether a GET is answered there now, with one of these statuses if any are given."""
    with contextlib.suppress(OSError), closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status in statuses or not statuses
    return False
