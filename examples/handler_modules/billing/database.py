"""The project's own database, which has nothing to do with billhook's inbox.

`effects.create_all` adds the table in which `delivery.once` notes what has happened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from billhook import effects

PATH = os.environ.get("BILLING_DATABASE", "billing.db")
SCHEMA = """
CREATE TABLE IF NOT EXISTS invoice (id TEXT PRIMARY KEY, paid_at TEXT);
CREATE TABLE IF NOT EXISTS credit (pool TEXT PRIMARY KEY, balance TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS notice (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS journal (id INTEGER PRIMARY KEY, key TEXT NOT NULL, type TEXT NOT NULL);
"""


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """A write transaction: all of it is kept, or, when the handler raises, nothing."""
    with closing(sqlite3.connect(PATH, timeout=5, isolation_level=None)) as connection:
        connection.executescript(SCHEMA)
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            effects.create_all(connection)
            yield connection
