"""Which database a URL means, and the ways into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from billhook.errors import ConfigError, MissingExtra
from billhook.sandbox.storage.preparing import is_empty
from billhook.sandbox.storage.sole_use import take_with_each_session

__all__ = ["file_of", "open_engine", "opening", "parsed_url", "single_session"]

_FORMS = "sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/NAME"


@contextmanager
def opening() -> Iterator[None]:
    """Whatever goes wrong in the block is a ConfigError, of one line."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        why: object = error
        if isinstance(error, DBAPIError):
            why = error.orig
        elif isinstance(error, OSError):
            why = error.strerror
        raise ConfigError(f"the sandbox's database cannot be opened: {' '.join(str(why).split())}") from None


def open_engine(url: str) -> Engine:
    """Connections to the database that a URL names. ConfigError if it names none, or one of something else.

    A database of something else is left as it is, and nothing is written beside it.
    """
    parsed = parsed_url(url)
    more: dict[str, Any] = {"hide_parameters": True}
    if parsed.get_backend_name() == "sqlite":
        more["connect_args"] = {"timeout": 30, "check_same_thread": False}
    with opening():
        try:
            engine = create_engine(parsed, **more)
            if engine.dialect.name == "sqlite":
                _make_private(file_of(parsed))
            with create_engine(parsed, poolclass=NullPool, **more).connect() as connection:
                is_empty(connection)
        except ImportError:
            raise MissingExtra("a sandbox in PostgreSQL", "postgres") from None
        except (ArgumentError, TypeError, ValueError) as error:
            raise ConfigError(f"the sandbox's database URL cannot be used: {error}") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    return engine


def single_session(engine: Engine) -> Engine:
    """Another way to the same PostgreSQL: one session at most, that has the right to the database."""
    single = create_engine(engine.url, hide_parameters=True, pool_size=1, max_overflow=0, pool_pre_ping=True)
    take_with_each_session(single)
    return single


def file_of(url: URL) -> Path:
    """The file of SQLite, by the one name that it has whatever links lead to it."""
    path = url.database
    if not path or path == ":memory:" or path.startswith("file:"):
        raise ConfigError(
            "the sandbox's database URL must name a file, sqlite:///FILE; sqlite:// takes a temporary one"
        )
    return Path(path).resolve()


def parsed_url(url: str) -> URL:
    """Read a database's URL. Raises ConfigError, whose text repeats no part of it."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise ConfigError(f"the sandbox's database URL cannot be read: write {_FORMS}") from None
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        return parsed
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ConfigError(f"the sandbox's database is SQLite or PostgreSQL: write {_FORMS}")
    if "@" in f"{parsed.host}{parsed.database}":  # and before it a part of the password: not to be repeated
        raise ConfigError(
            "the sandbox's database URL has an @ too many: in a password write %40 for @, %2F for / "
            "and %25 for %"
        )
    return parsed.set(drivername="postgresql+psycopg")


def _make_private(path: Path) -> None:
    """A new file is its owner's alone: it holds the keys."""
    with suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)


def _on_connect(connection: Any, _: object) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {setting}")


def _on_begin(connection: Connection) -> None:
    # A writer takes its lock at once: one that reads first could find that it may not write any more.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
