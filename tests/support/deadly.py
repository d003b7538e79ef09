"""What the tests of handlers that end their process share: a folder, an inbox, engines that are kept up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from billhook.inbox import Inbox
from support.inbox_view import incoming, open_inbox, place_of, rows, value
from support.server import gunicorn
from support.signing import SECRET
from support.timeouts import scaled
from support.worker_group import Programs

HANDLERS = Path(__file__).with_name("deadly_handlers.py")
INNOCENTS = 20

KeepUp = Callable[[], None]
"""Starts again what has ended; to be called again and again."""


class Place(Programs):
    """A folder with an inbox, and what handlers noted there."""

    def __init__(self, folder: Path, url: str, **options: str) -> None:
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
        super().__init__(folder, **self.options)

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

    def dead(self) -> set[str]:
        """The keys of deliveries of which a run is dead."""
        return {key.split()[0] for key, state in self.states().items() if state == "dead"}

    def unfinished(self) -> int:
        return int(value(self.where, "SELECT count(*) FROM delivery WHERE state NOT IN ('done', 'dead')"))

    def noted(self, word: str) -> Counter[str]:
        found = map(str.split, self.read("notes.txt").splitlines())
        return Counter(key for noted, key in found if noted == word)

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("*log"))


@contextmanager
def workers(place: Place, *processes: str) -> Iterator[KeepUp]:
    """`billhook worker`; who ends is started again: by its parent, or where there is none by us."""
    with kept_up(place, "billhook", "worker", "--grace", "1", *processes) as keep_up:
        yield keep_up


@contextmanager
def kept_up(place: Place, *command: str) -> Iterator[KeepUp]:
    """A program that is started again whenever that is called, until the block ends and it is killed."""

    def keep_up() -> None:
        if not place.started or place.started[-1].poll() is not None:
            place.start(program=command)

    keep_up()
    try:
        yield keep_up
    finally:
        place.close()


@contextmanager
def web(place: Place) -> Iterator[KeepUp]:
    """The engine `thread` in two processes of gunicorn, which starts again those that end."""
    flags = ("--config", "python:billhook.gunicorn_conf")
    with gunicorn(place.folder, *flags, workers=2, **{**place.options, "BILLHOOK_ENGINE": "thread"}):
        yield lambda: None


ENGINES: dict[str, Callable[[Place], AbstractContextManager[KeepUp]]] = {
    "thread": web,
    "worker": workers,
    "processes": lambda place: workers(place, "--processes", "2"),
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
