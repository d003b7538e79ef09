"""The shop's own database, which has nothing to do with billhook's inbox."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from flask import Flask, current_app

SCHEMA = """
CREATE TABLE IF NOT EXISTS invoice (
    id TEXT PRIMARY KEY,
    approved_at TEXT,
    status TEXT NOT NULL DEFAULT 'None'
)
"""


def init_app(app: Flask) -> None:
    """Make the table, if it is not there yet."""
    Path(app.config["SHOP_DATABASE"]).parent.mkdir(parents=True, exist_ok=True)
    with app.app_context(), transaction() as connection:
        connection.execute(SCHEMA)


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """A connection to the current app's database; commits at the end, or rolls back on an exception."""
    with closing(sqlite3.connect(current_app.config["SHOP_DATABASE"])) as connection, connection:
        yield connection
