"""What the tests of handlers that end their process share: a folder, an inbox, engines that are kept up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from billhook.inbox import Inbox
from support.celery_workers import Shop, clean_up
from support.inbox_view import incoming, open_inbox, place_of, rows, value
from support.postgres import required
from support.processes import until
from support.server import gunicorn
from support.signing import SECRET
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

    def put_innocents(self) -> None:
        for number in range(INNOCENTS):
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


@contextmanager
def celery(pool: str, place: Place) -> Iterator[KeepUp]:
    """Celery's worker with four processes or threads; one of threads ends with its handler."""
    schedule = [0.1 for each in place.options["BILLHOOK_RETRY_SCHEDULE_SECONDS"].split(",") if each]
    options = {"deadly": True, "lease_seconds": 3, "schedule": schedule}
    broker = required("BILLHOOK_TEST_AMQP_URL", "AMQP broker")
    shop = Shop(place.folder, place.options["BILLHOOK_INBOX_URL"], broker, options)
    place.environ |= shop.environment
    named = ("--hostname", f"{shop.queue}@%h", "--without-gossip", "--without-mingle", "--loglevel", "INFO")
    command = ("celery", "-A", "support.celery_shop:celery", "worker", "--pool", pool, "-c", "4", *named)
    try:
        with kept_up(place, *command) as keep_up:
            yield keep_up
    finally:
        clean_up(shop)


WORKER = ("billhook", "worker", "--grace", "1")
ENGINES: dict[str, Callable[[Place], AbstractContextManager[KeepUp]]] = {
    "thread": web,
    "worker": lambda place: kept_up(place, *WORKER),
    "processes": lambda place: kept_up(place, *WORKER, "--processes", "2"),
    "celery prefork": partial(celery, "prefork"),
    "celery threads": partial(celery, "threads"),
}
"""Who ends is started again: by its parent, or where there is none by us."""


def finish(place: Place, engine: str) -> None:
    """Have an engine handle what is stored, until every delivery is done or dead."""
    with ENGINES[engine](place) as keep_up:
        try:
            until(lambda: keep_up() or not place.unfinished(), 120, 0.05)
        except AssertionError as error:
            error.add_note(f"{place.runs()}\n{place.log()[-8_000:]}")
            raise
