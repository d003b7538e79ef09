"""The inbox as an independent connection reads and changes it, and inboxes without an app."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from billhook.errors import InboxUnavailable
from billhook.inbox import Inbox, NewDelivery
from billhook.inbox.sqlite.library import sqlite3
from support.postgres import libpq
from support.processes import until
from support.signing import PING

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
#: The deadline of commits in tests that are not about it: a busy machine misses the shipped one now and then.
LONG_DEADLINE_SECONDS = 8.0


def not_called_again(attempts: int) -> str:
    """The last error of a run that is dead because its worker died each time."""
    return (
        f"RuntimeError: the worker died at the last of {attempts} attempts, "
        "or was silent for longer than BILLHOOK_LEASE_SECONDS: not called again"
    )


def rows(where: Path | str, query: str, *arguments: object) -> list[tuple[Any, ...]]:
    """What a connection of our own, not billhook's, reads at a path or a PostgreSQL URL.

    The same values from both: bytes, numbers, and moments as SQLite keeps them, text in UTC.
    """
    if _is_postgres(where):
        return [tuple(map(_as_sqlite, row)) for row in _ask(where, query, arguments).fetchall()]
    with contextlib.closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as connection:
        return connection.execute(query, arguments).fetchall()


def change(where: Path | str, statement: str, *arguments: object) -> None:
    """Execute and commit a statement in a connection of our own."""
    if _is_postgres(where):
        _ask(where, statement, arguments)
        return
    with contextlib.closing(sqlite3.connect(where, timeout=30)) as connection, connection:
        # Python's own way to write a moment is deprecated, and not SQLAlchemy's.
        connection.execute(statement, tuple(map(_as_sqlite, arguments)))


def place_of(url: str) -> Path | str:
    """What `rows` takes, of an inbox's URL."""
    return Path(url.removeprefix("sqlite:///")) if url.startswith(("sqlite:///", "/")) else url


def _is_postgres(where: Path | str) -> bool:
    return str(where).startswith("postgresql")


_asking: dict[tuple[int, str], psycopg.Connection[Any]] = {}


def _ask(where: Path | str, query: str, arguments: tuple[object, ...]) -> psycopg.Cursor[Any]:
    text = query.replace("%", "%%").replace("?", "%s") if arguments else query
    try:
        return _kept(where).execute(text, arguments or None)
    except psycopg.OperationalError:
        if not _kept(where).closed:
            raise
        hang_up(where)  # the server was restarted meanwhile
        return _kept(where).execute(text, arguments or None)


def _kept(where: Path | str) -> psycopg.Connection[Any]:
    """A connection that is kept until `hang_up`, for a test may ask a hundred times."""
    place = os.getpid(), str(where)
    if place not in _asking:
        _asking[place] = postgres(where)
    return _asking[place]


def postgres(where: Path | str) -> psycopg.Connection[Any]:
    """A connection of our own to the database of a URL, with autocommit."""
    return psycopg.connect(**{**libpq(str(where)), "autocommit": True, "application_name": "tests"})


def hang_up(where: Path | str) -> None:
    """Close what `rows` and `change` keep open."""
    kept = _asking.pop((os.getpid(), str(where)), None)
    if kept is not None:
        kept.close()


def _as_sqlite(found: object) -> object:
    if isinstance(found, datetime):
        return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return bytes(found) if isinstance(found, memoryview) else found


def value(where: Path | str, query: str, *arguments: object) -> Any:
    """The first column of the only row."""
    ((found,),) = rows(where, query, *arguments)
    return found


def column(where: Path | str, query: str, *arguments: object) -> list[Any]:
    """The first column of all rows."""
    return [found for found, *_ in rows(where, query, *arguments)]


def incoming(
    key: str, *, event_type: str = PING, body: bytes = b"{}", source: str = "default", at: datetime = NOON
) -> NewDelivery:
    return NewDelivery(source, key, event_type, body, "{}", at, at)


def open_inbox(where: Path | str, **options: Any) -> Inbox:
    """A prepared inbox, as the app makes it."""
    options.setdefault("deadline_seconds", LONG_DEADLINE_SECONDS)
    inbox = Inbox(str(where) if _is_postgres(where) else f"sqlite:///{where}", **options)
    _opened.append(inbox)
    inbox.prepare()
    return inbox


def is_writable(inbox: Inbox) -> bool:
    """Whether deliveries can be stored at this moment."""
    with contextlib.suppress(InboxUnavailable):
        inbox.check_writable()
        return True
    return False


_opened: list[Inbox] = []


def close_inboxes() -> None:
    """Close what `open_inbox` opened: a test that fails does not come to its own end."""
    while _opened:
        _opened.pop().close()


def upgraded(url: str) -> str:
    """The URL of an inbox whose schema was made, or brought up to date, as users do it."""
    inbox = Inbox(url)
    inbox.upgrade()
    inbox.close()
    return url


def end_sessions(url: str, name: str) -> int:
    """Have the server end the sessions of this name in the database; returns how many there were.

    Those that were ended are gone then; others may be opened meanwhile.
    """
    sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = ? AND datname = current_database()"
    ended = column(url, sessions, name)
    for pid in ended:
        rows(url, "SELECT pg_terminate_backend(CAST(? AS integer))", pid)
    until(lambda: set(ended).isdisjoint(column(url, sessions, name)))
    return len(ended)


class Foreigner:
    """Somebody else who lets nobody write until told to let go; reading goes on."""

    def __init__(self, where: Path | str) -> None:
        self._held = contextlib.ExitStack()
        self._held.enter_context(_locked_tables(where) if _is_postgres(where) else _locked_file(where))

    def let_go(self) -> None:
        self._held.close()

    def __enter__(self) -> Foreigner:
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()


@contextlib.contextmanager
def _locked_tables(url: Path | str) -> Iterator[None]:
    with postgres(url) as connection, connection.transaction():
        connection.execute(
            "LOCK TABLE delivery, run, failure, billhook_version, billhook_worker IN EXCLUSIVE MODE"
        )
        yield


@contextlib.contextmanager
def _locked_file(path: Path | str) -> Iterator[None]:
    """By another process: the locks of one's own do not keep oneself out."""
    code = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN EXCLUSIVE')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    try:
        yield
    finally:
        process.communicate(b"")


@contextlib.contextmanager
def hung(where: Path | str) -> Iterator[None]:
    """Whoever writes hangs for as long as the block lasts, longer than any patience of the inbox's own."""
    with contextlib.ExitStack() as held:
        held.enter_context(Foreigner(where))
        if isinstance(where, Path):  # for a file others wait a while, for a process in its turn for ever
            turn = held.enter_context(where.with_name(where.name + "-lock").open("r+b"))
            fcntl.flock(turn, fcntl.LOCK_EX)
        yield
