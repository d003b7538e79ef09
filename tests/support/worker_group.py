"""`billhook worker` as real processes over one inbox, with handlers that do their worst."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.inbox_view import incoming, open_inbox, place_of, rows
from support.processes import alive, clean_environment, descendants, until
from support.signing import SECRET

HANDLERS = """\
import asyncio, ctypes, os, signal, sys, time
from pathlib import Path
from billhook import Handlers
from billhook.events import InvoiceApproved, PingTest
handlers = Handlers()
"""
"""How a module of handlers begins."""
WORST = """
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


class Programs:
    """Programs in one folder with one log; all that were started are killed at the end."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.environ = clean_environment(**options)
        self.started: list[subprocess.Popen[bytes]] = []

    def run(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a program."""
        with (self.folder / "log").open("ab") as log:
            options = {"stdout": log, "stderr": log, "env": self.environ, "cwd": self.folder, **options}
            self.started.append(subprocess.Popen(command, **options))
        return self.started[-1]

    def start(self, *arguments: str, program: tuple[str, ...] = ("billhook",)) -> subprocess.Popen[bytes]:
        """Start a command of billhook's, or of another module."""
        return self.run([sys.executable, "-m", *program, *arguments])

    def read(self, name: str) -> str:
        """What a file in the folder has."""
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def log(self) -> str:
        return self.read("log")

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                below = descendants(process.pid)
                process.kill()
                process.wait()
                for pid in alive(below):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


class WorkerGroup(Programs):
    """An inbox, and workers on it in a folder of their own."""

    def __init__(self, folder: Path, url: str) -> None:
        options = {"INBOX_URL": url, "LEASE_SECONDS": "1", "RETRY_SCHEDULE_SECONDS": "0.2,0.2"}
        named = {f"BILLHOOK_{name}": text for name, text in {**options, "SECRETS": SECRET}.items()}
        super().__init__(folder, **named, **{f"FLASK_{name}": text for name, text in named.items()})
        self.where = place_of(url)
        self.inbox = open_inbox(self.where)
        (folder / "worst.py").write_text(HANDLERS + WORST)

    def close(self) -> None:
        super().close()
        self.inbox.close()

    def put(self, key: str) -> int:
        return self.inbox.put(incoming(key)).delivery_id

    def work(self, *arguments: str, processes: int = 1, **more) -> subprocess.Popen[bytes]:
        """Workers that are all up."""
        before = self.log().count("worker started with")
        process = self.start("worker", "worst.py", "--processes", str(processes), *arguments, **more)
        until(lambda: self.log().count("worker started with") - before >= processes, 30)
        return process

    def notes(self, word: str) -> list[str]:
        """The keys of what was begun, or ended, as often as it was."""
        found = map(str.split, self.read("notes.txt").splitlines())
        return [key for noted, key, *_ in found if noted == word]

    def states(self) -> dict[str, str]:
        return dict(rows(self.where, "SELECT key, state FROM delivery"))

    def runs(self) -> dict[str, tuple[str, int]]:
        query = "SELECT key, run.state, attempts FROM run JOIN delivery ON delivery.id = run.delivery_id"
        return {key: (state, attempts) for key, state, attempts in rows(self.where, query)}


def signalled(process: subprocess.Popen[bytes], timeout_seconds: float) -> float:
    """SIGTERM; the seconds until it had ended."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.wait(timeout_seconds)
    return time.monotonic() - started
