"""What the tests of handlers that end their process share: a folder, an inbox, engines that are kept up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from billhook.inbox import Inbox
from support.inbox_view import incoming, open_inbox, place_of, rows
from support.processes import clean_environment, descendants
from support.server import gunicorn
from support.signing import SECRET
from support.timeouts import scaled

HANDLERS = Path(__file__).with_name("deadly_handlers.py")
INNOCENTS = 20

KeepUp = Callable[[], None]
"""Starts again what has ended; to be called again and again."""


class Place:
    """A folder with an inbox, and what handlers noted there."""

    def __init__(self, folder: Path, url: str, **options: str) -> None:
        self.folder = folder
        self.where = place_of(url)
        self.inbox: Inbox = open_inbox(self.where)
        self.options = {
            "BILLHOOK_SECRETS": SECRET,
            "BILLHOOK_INBOX_URL": url,
            "BILLHOOK_LEASE_SECONDS": "1",
            "BILLHOOK_RETRY_SCHEDULE_SECONDS": "0.1,0.1",
            "BILLHOOK_HANDLERS": str(HANDLERS),
            **options,
        }

    @property
    def environ(self) -> dict[str, str]:
        return clean_environment(**self.options)

    def put(self, key: str, event_type: str = "PingTest", body: bytes = b"{}") -> None:
        self.inbox.put(incoming(key, event_type=event_type, body=body))

    def put_innocents(self, count: int = INNOCENTS) -> None:
        for number in range(count):
            self.put(f"good-{number}")

    def runs(self) -> dict[str, tuple[str, int, int, str | None]]:
        """Of each run, by its delivery's key and its handler: attempts, uncounted ones, last error."""
        query = (
            "SELECT key || ' ' || handler, run.state, attempts, uncounted_attempts, last_error "
            "FROM run JOIN delivery ON delivery.id = run.delivery_id"
        )
        return {key: (state, *facts) for key, state, *facts in rows(self.where, query)}

    def states(self) -> dict[str, str]:
        return {key: state for key, (state, *_) in self.runs().items()}

    def unfinished(self) -> int:
        query = "SELECT count(*) FROM delivery WHERE state NOT IN ('done', 'dead')"
        ((count,),) = rows(self.where, query)
        return int(count)

    def noted(self, word: str) -> Counter[str]:
        path = self.folder / "notes.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(key for noted, key in map(str.split, lines) if noted == word)

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*log"))


class Workers:
    """A process that is started again when it has ended, whenever this is called."""

    def __init__(self, folder: Path, environ: Mapping[str, str], *command: str) -> None:
        self._folder = folder
        self._environ = environ
        self._command = [sys.executable, "-m", *command]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                self._command, cwd=self._folder, env=self._environ, stdout=log, stderr=log
            )

    def __call__(self) -> None:
        if self.process.poll() is not None:
            self.process = self._start()


@contextmanager
def workers(place: Place, processes: int) -> Iterator[Workers]:
    """`billhook worker`; who ends is started again: by its parent, or where there is none by us."""
    command = ("billhook", "worker", "--processes", str(processes), "--grace", "1")
    with kept_up(place.folder, place.environ, *command) as running:
        yield running


@contextmanager
def kept_up(folder: Path, environ: Mapping[str, str], *command: str) -> Iterator[Workers]:
    """A process that is started again, until the block ends and it is killed with those below it."""
    running = Workers(folder, environ, *command)
    try:
        yield running
    finally:
        kill(running.process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """A process and those below it, all at once."""
    below = descendants(process.pid) if process.poll() is None else set()
    process.kill()
    process.wait()
    for pid in below:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def web(place: Place) -> Iterator[KeepUp]:
    """The engine `thread` in two processes of gunicorn, which starts again those that end."""
    flags = ("--config", "python:billhook.gunicorn_conf")
    with gunicorn(place.folder, *flags, workers=2, **{**place.options, "BILLHOOK_ENGINE": "thread"}):
        yield lambda: None


ENGINES: dict[str, Callable[[Place], AbstractContextManager[KeepUp]]] = {
    "thread": web,
    "worker": lambda place: workers(place, 1),
    "processes": lambda place: workers(place, 2),
}


def finish(place: Place, engine: str, seconds: float = 120.0) -> None:
    """Have an engine handle what is stored, until every delivery is done or dead."""
    with ENGINES[engine](place) as keep_up:
        until_done(place, keep_up, seconds)


def until_done(place: Place, keep_up: KeepUp, seconds: float = 120.0) -> None:
    """Wait until every delivery is done or dead."""
    started = time.monotonic()
    while place.unfinished():
        keep_up()
        waited = time.monotonic() - started
        assert waited < seconds or waited < scaled(seconds), f"{place.runs()}\n{place.log()[-8_000:]}"
        time.sleep(0.05)
