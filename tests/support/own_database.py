"""A database of the user's, beside the inbox, and the ways in which programs have a transaction in one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from typing import Any

import psycopg
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from billhook import Delivery
from billhook.effects import Transaction
from billhook.handlers import Headers
from support.postgres import libpq

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


def connect(url: str, **options: Any) -> Any:
    """A DB-API connection: of sqlite3, or of psycopg."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), **options)
    return psycopg.connect(**{**libpq(url), **options})


def by_driver(url: str) -> AbstractContextManager[Any]:
    return closing(connect(url))


def by_session(url: str) -> AbstractContextManager[Any]:
    return Session(_engine(url))


def _engine(url: str) -> Engine:
    return create_engine(url, poolclass=NullPool)


OPENED: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "driver": by_driver,
    "pooled driver": lambda url: closing(_engine(url).raw_connection()),
    "connection": lambda url: _engine(url).connect(),
    "session": by_session,
    "scoped session": lambda url: closing(scoped_session(sessionmaker(_engine(url)))),
}
"""By kind: opens something with `commit` and `rollback` at the URL, closed at the end of the block."""


def make_delivery(key: str = "msg_1", handler: str = "shop.book", **facts: Any) -> Delivery:
    """A delivery as a handler gets it."""
    given: dict[str, Any] = {"id": 1, "key": key, "source": "default", "event_type": "PingTest", "attempt": 1}
    given |= {"received_at": NOW, "signed_at": None, "body": b"{}", "headers": Headers({})}
    return Delivery(**{**given, "handler": handler, **facts})


def once(opened: Callable[[str], AbstractContextManager[Any]], url: str, delivery: Delivery) -> bool:
    """What `once` returns in a transaction of its own, which is committed."""
    with opened(url) as transaction:
        first = delivery.once(transaction)
        transaction.commit()
    return first


def is_first(transaction: Transaction, key: str = "msg_1") -> bool:
    """What `once` returns for a delivery of that key."""
    return make_delivery(key).once(transaction)
