"""`billhook worker` as real processes over one inbox, with handlers that do their worst."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.inbox_view import incoming, open_inbox, place_of, rows
from support.processes import children, clean_environment, until
from support.signing import SECRET

WORST = """
import asyncio, os, time
from billhook import Handlers
from billhook.events import PingTest

handlers = Handlers()

def note(word, delivery):
    with open("notes.txt", "a") as output:
        output.write(f"{word} {delivery.key} {delivery.attempt} {os.getpid()}\\n")

@handlers.on(PingTest, name="act")
def act(event, delivery):
    note("begun", delivery)
    kind, _, rest = delivery.key.partition("-")
    if kind == "slow" and delivery.attempt == 1:
        time.sleep(float(rest))
    elif kind == "thread" and delivery.attempt == 1:
        asyncio.run(asyncio.to_thread(time.sleep, float(rest)))
    note("ended", delivery)
"""


class WorkerGroup:
    """An inbox, and workers on it in a folder of their own."""

    def __init__(self, folder: Path, url: str, where: Path | str) -> None:
        self.folder = folder
        self.where = where
        self.inbox = open_inbox(where)
        self.started: list[subprocess.Popen[bytes]] = []
        options = {
            "SECRETS": SECRET,
            "INBOX_URL": url,
            "LEASE_SECONDS": "1",
            "RETRY_SCHEDULE_SECONDS": "0.2,0.2",
        }
        self.environ = clean_environment() | {f"BILLHOOK_{name}": text for name, text in options.items()}
        self.environ |= {f"FLASK_BILLHOOK_{name}": text for name, text in options.items()}
        (folder / "worst.py").write_text(WORST)

    def put(self, key: str, event_type: str = "PingTest", body: bytes = b"{}") -> int:
        return self.inbox.put(incoming(key, event_type=event_type, body=body)).delivery_id

    def start(self, *arguments: str, program: tuple[str, ...] = ("billhook",)) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *program, *arguments],
                cwd=self.folder, env=self.environ, stdout=log, stderr=log,
            )  # fmt: skip
        self.started.append(process)
        return process

    def work(self, *arguments: str, processes: int = 1, **more) -> subprocess.Popen[bytes]:
        """Workers that are all up."""
        before = self.log().count("worker started with")
        process = self.start("worker", "worst.py", "--processes", str(processes), *arguments, **more)
        until(lambda: self.log().count("worker started with") - before >= processes, 30)
        return process

    def notes(self, word: str) -> list[str]:
        """The keys of what was begun, or ended, as often as it was."""
        path = self.folder / "notes.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [key for noted, key, *_ in map(str.split, lines) if noted == word]

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def states(self) -> dict[str, str]:
        return dict(rows(self.where, "SELECT key, state FROM delivery"))

    def runs(self) -> dict[str, tuple[str, int]]:
        query = "SELECT key, run.state, attempts FROM run JOIN delivery ON delivery.id = run.delivery_id"
        return {key: (state, attempts) for key, state, attempts in rows(self.where, query)}


@contextmanager
def worker_group(folder: Path, url: str) -> Iterator[WorkerGroup]:
    made = WorkerGroup(folder, url, place_of(url))
    yield made
    for process in made.started:
        if process.poll() is None:
            for pid in children(process.pid):
                os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()
    made.inbox.close()


def signalled(process: subprocess.Popen[bytes], timeout_seconds: float) -> float:
    """SIGTERM; the seconds until it had ended."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(timeout_seconds)
    return time.monotonic() - started
