"""Which database a URL means."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from billhook.errors import ConfigError, MissingExtra
from billhook.inbox import migrate
from billhook.inbox.database import Database
from billhook.inbox.sqlite import SqliteDatabase

__all__ = ["database_at"]


_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


def database_at(url: str, *, busy_seconds: float, schema: str, own_folder: bool) -> Database:
    """sqlite:///PATH, or postgresql+psycopg://USER@HOST/NAME with the extra billhook[postgres].

    `schema`: where on PostgreSQL the tables are, unless the URL's search_path says. `own_folder`: whether a
    SQLite file's folder may be made.
    `busy_seconds`: how long a SQLite file that somebody else has locked is waited for.
    Raises ConfigError for any other URL, without repeating its password; MissingExtra.
    """
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"BILLHOOK_INBOX_SCHEMA is {schema!r}: it must be at most 63 of a to z, 0 to 9 and _, "
            "begin with no digit and not with pg_"
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise ConfigError(
            "BILLHOOK_INBOX_URL is no database URL: write sqlite:///PATH or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        return SqliteDatabase(
            _path(parsed), busy_seconds, migrate.verify, migrate.upgrade, own_folder=own_folder
        )
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ConfigError(
            f"BILLHOOK_INBOX_URL names {parsed.drivername!r}: an inbox is sqlite:///PATH or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        )
    if "@" in f"{parsed.host}{parsed.database}":  # and before it a part of the password: not to be repeated
        raise ConfigError(
            "BILLHOOK_INBOX_URL has an @ too many: in a password write %40 for @, %2F for / and %25 for %"
        )
    try:
        from billhook.inbox.postgres import PostgresDatabase
    except ImportError:
        raise MissingExtra("an inbox in PostgreSQL", "postgres") from None
    try:
        return PostgresDatabase(parsed.set(drivername="postgresql+psycopg"), schema, migrate.verify)
    except (ArgumentError, ValueError):
        raise ConfigError(
            "BILLHOOK_INBOX_URL names several hosts in a way that is not understood: write "
            "postgresql+psycopg://USER:PASSWORD@/NAME?host=FIRST:PORT&host=SECOND:PORT"
        ) from None


def _path(url: URL) -> str:
    if url.database in (None, "", ":memory:"):
        raise ConfigError("BILLHOOK_INBOX_URL must name a file: an inbox in memory would lose deliveries")
    return str(Path(str(url.database)))
