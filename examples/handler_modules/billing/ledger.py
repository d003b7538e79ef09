"""The project's own database, and the way to do something once.

A handler runs at least once for each delivery: the process may die between its effect and the note that
it succeeded. `delivery.idempotency_key` is the same at every attempt and no other delivery's, whatever its
source, so an effect that is recorded under it, in the same transaction, can tell that it has happened.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from billhook import Delivery

PATH = os.environ.get("LEDGER", "ledger.db")
SCHEMA = """
CREATE TABLE IF NOT EXISTS done (
    effect TEXT, key TEXT,
    PRIMARY KEY (effect, key)
);
CREATE TABLE IF NOT EXISTS invoice (id TEXT PRIMARY KEY, paid_at TEXT);
CREATE TABLE IF NOT EXISTS credit (pool TEXT PRIMARY KEY, balance TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS notice (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS journal (key TEXT PRIMARY KEY, type TEXT);
"""


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """A write transaction: all of it is kept, or, when the handler raises, nothing."""
    with closing(sqlite3.connect(PATH, timeout=5, isolation_level=None)) as connection:
        connection.executescript(SCHEMA)
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            yield connection


def first_time(connection: sqlite3.Connection, effect: str, delivery: Delivery) -> bool:
    """True once for each effect and delivery; call it in the transaction that makes the effect."""
    inserted = connection.execute(
        "INSERT INTO done VALUES (?, ?) ON CONFLICT DO NOTHING", (effect, delivery.idempotency_key)
    )
    return inserted.rowcount == 1
