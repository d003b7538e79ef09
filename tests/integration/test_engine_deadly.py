"""Handlers that end their process: with `os._exit`, or by a segmentation fault. Nobody beside them suffers.

Each engine as real processes, started again when they end, on each database.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kit import SECRET, gunicorn, incoming, open_inbox, place_of, rows
from test_cli_serve import children

from billhook.events import InvoiceApproved, sample

DEADLY = """
import os, signal, time
from billhook import Handlers
from billhook.events import InvoiceApproved, PingTest

handlers = Handlers()

def note(word, delivery):
    with open("notes.txt", "a") as output:
        output.write(f"{word} {delivery.key}\\n")

@handlers.on(PingTest, name="act")
def act(event, delivery):
    note("begun", delivery)
    if delivery.key.startswith("exits"):
        os._exit(137)
    if delivery.key.startswith("faults"):
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(0.1)
    note("ended", delivery)

@handlers.on(InvoiceApproved, name="crashes")
def crashes(event, delivery):
    note("begun", delivery)
    time.sleep(0.05)
    os._exit(137)

@handlers.on(InvoiceApproved, name="sibling")
def sibling(event, delivery):
    time.sleep(0.1)
    note("ended", delivery)
"""


class Place:
    """A folder with the handlers, an inbox, and what they noted."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.where = place_of(url)
        self.inbox = open_inbox(self.where)
        (folder / "deadly.py").write_text(DEADLY)
        self.options = {
            "BILLHOOK_SECRETS": SECRET,
            "BILLHOOK_INBOX_URL": url,
            "BILLHOOK_LEASE_SECONDS": "1",
            "BILLHOOK_RETRY_SCHEDULE_SECONDS": "0.1,0.1",
            "BILLHOOK_HANDLERS": str(folder / "deadly.py"),
        }

    def put(self, key: str, event_type: str = "PingTest", body: bytes = b"{}") -> None:
        self.inbox.put(incoming(key, event_type=event_type, body=body))

    def runs(self) -> dict[str, tuple[str, int, int]]:
        query = (
            "SELECT key || ' ' || handler, run.state, attempts, excused "
            "FROM run JOIN delivery ON delivery.id = run.delivery_id"
        )
        return {key: (state, attempts, excused) for key, state, attempts, excused in rows(self.where, query)}

    def finished(self, count: int) -> bool:
        query = "SELECT count(*) FROM delivery WHERE state IN ('done', 'dead')"
        return rows(self.where, query) == [(count,)]

    def noted(self, word: str) -> Counter[str]:
        path = self.folder / "notes.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(key for noted, key in map(str.split, lines) if noted == word)


@pytest.fixture
def place(tmp_path, inbox_url) -> Iterator[Place]:
    made = Place(tmp_path, inbox_url)
    yield made
    made.inbox.close()


@contextmanager
def workers(place: Place, processes: int) -> Iterator[None]:
    """`billhook worker`; who ends is started again: by its parent, or without one by us, as systemd does."""
    environ = {**os.environ, **place.options}
    command = [sys.executable, "-m", "billhook", "worker", "--processes", str(processes), "--grace", "1"]
    stopping = False
    with (place.folder / "log").open("ab") as log:

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, cwd=place.folder, env=environ, stdout=log, stderr=log)

        process = start()

        def alive() -> None:
            nonlocal process
            if process.poll() is not None and not stopping:
                process = start()

        try:
            yield alive
        finally:
            stopping = True
            below = children(process.pid)
            process.kill()
            process.wait()
            for pid in below:
                with_suppressed_kill(pid)


def with_suppressed_kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def web(place: Place) -> Iterator[None]:
    """The engine `thread` in two processes of gunicorn, which starts again those that end."""
    flags = ("--config", "python:billhook.gunicorn_conf")
    with gunicorn(place.folder, *flags, workers=2, **{**place.options, "BILLHOOK_ENGINE": "thread"}):
        yield lambda: None


ENGINES = {
    "thread": web,
    "worker": lambda place: workers(place, 1),
    "processes": lambda place: workers(place, 2),
}


def finish(place: Place, engine: str, count: int, seconds: float = 300.0) -> None:
    """Have the engine handle what is stored, until so many deliveries are done or dead."""
    with ENGINES[engine](place) as alive:
        end = time.monotonic() + seconds
        while not place.finished(count):
            alive()
            assert time.monotonic() < end, place.runs()
            time.sleep(0.05)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("engine", "deadly"),
    [("thread", "exits"), ("worker", "exits"), ("processes", "exits"), ("processes", "faults")],
)
def test_neighbours_of_a_handler_that_ends_its_process_are_all_done(place, engine, deadly):
    place.put(deadly)
    for number in range(20):
        place.put(f"good-{number}")

    finish(place, engine, 21)

    runs = place.runs()
    assert runs.pop(f"{deadly} act")[0] == "dead"
    assert {state for state, *_ in runs.values()} == {"succeeded"}
    assert place.noted("begun")[deadly] in (3, 4)
    assert all(place.noted("ended")[f"good-{number}"] for number in range(20))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["processes"])
def test_a_handler_is_done_although_its_sibling_ends_the_process_each_time(place, engine):
    place.put("both", "InvoiceApproved", sample(InvoiceApproved).to_json())

    finish(place, engine, 1)

    assert {key: state for key, (state, *_) in place.runs().items()} == {
        "both crashes": "dead",
        "both sibling": "succeeded",
    }
