"""Inboxes that are made once and copied for each test: the migrations take longer than most tests do."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, event

from support.inbox_view import place_of, upgraded
from support.postgres import libpq


def new_inbox(url: str) -> str:
    """Give an empty place the tables that `billhook db upgrade` makes; its URL."""
    place = place_of(url)
    if isinstance(place, Path):
        place.touch(0o600)
        place.write_bytes(_inbox_file())
    else:
        _repeat_upgrade(url)
    return url


@functools.cache
def _inbox_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="billhook-template-") as folder:
        file = Path(folder) / "billhook.db"
        file.touch(0o600)
        upgraded(f"sqlite:///{file}")
        assert not file.with_name("billhook.db-wal").exists()  # all of it is in the file
        return file.read_bytes()


_migrations: list[str] = []
"""What the migrations execute on PostgreSQL, recorded the first time."""


def _repeat_upgrade(url: str) -> None:
    if _migrations:
        with psycopg.connect(**libpq(url), autocommit=True) as connection:
            connection.execute(";\n".join(_migrations))
        return
    executed: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        # Questions, and whatever names a schema, are the first upgrade's own.
        if not statement.startswith(("SELECT", "SET")):
            assert not parameters, statement
            executed.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        upgraded(url)
    finally:
        event.remove(Engine, "before_cursor_execute", record)
    _migrations.extend(executed)
