"""A file that belongs to another program: looked at without changing anything in it or beside it."""

from __future__ import annotations

import sqlite3
import urllib.parse
from contextlib import closing
from pathlib import Path

from billhook.errors import ConfigError
from billhook.inbox.schema import version

__all__ = ["refuse_others"]

_NAMED = 5
"""So many tables are told of."""


def refuse_others(path: Path) -> None:
    """Raise ConfigError for a file with tables and no inbox; sqlite3.Error for one that is no database.

    One with an inbox may hold other tables beside it: earlier versions put it anywhere.
    """
    names = _tables(path)
    if names and version.name not in names:
        more = ", …" if len(names) > _NAMED else ""
        raise ConfigError(
            f"{path} holds tables of something else ({', '.join(names[:_NAMED])}{more}) and no inbox: give "
            "the inbox a file of its own in BILLHOOK_INBOX_URL"
        )


def _tables(path: Path) -> list[str]:
    # Without a log nobody has the file open in that mode; SQLite would make one only to read it.
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "immutable=1"
    with closing(sqlite3.connect(f"file:{urllib.parse.quote(str(path))}?{mode}", uri=True)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1"
        return [name for (name,) in connection.execute(query)]
