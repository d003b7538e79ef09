"""Receivers that break one promise each, for the checks to notice. They verify nothing."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from sqlalchemy import create_engine, text

from billhook.inbox import Inbox, NewDelivery

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
ACCEPTED = b'{"status": "accepted"}'
DUPLICATE = b'{"status": "duplicate"}'


def _app(store: Callable[[str, bytes], bytes]) -> App:
    """A WSGI app that answers 200 with what `store(key, body)` gives."""

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        key = environ.get("HTTP_WEBHOOK_ID")
        answer = store(key, body) if key else b""
        start_response("200 OK", [("Content-Length", str(len(answer)))])
        return [answer]

    return app


def answers_first() -> App:
    """Hands what came to a thread that stores it, and answers meanwhile."""
    queue: SimpleQueue[tuple[str, bytes]] = SimpleQueue()
    inbox = Inbox(os.environ["BILLHOOK_INBOX_URL"])

    def work() -> None:
        while True:
            key, body = queue.get()
            now = datetime.now(UTC)
            inbox.put(NewDelivery("default", key, "InvoiceApproved", body, "{}", now, now), 60)

    threading.Thread(target=work, daemon=True).start()

    def store(key: str, body: bytes) -> bytes:
        queue.put((key, body))
        return ACCEPTED

    return _app(store)


def never_syncs() -> App:
    """Commits each delivery to a file, with the PRAGMA synchronous that ACCEPTANCE_SYNCHRONOUS says."""
    return _inserting(os.environ["ACCEPTANCE_SYNCHRONOUS"])


def ignores_errors() -> App:
    """Answers 200 whether its file could be written or not."""
    return _inserting("FULL", sqlite3.Error)


def _inserting(synchronous: str, *ignored: type[Exception]) -> App:
    path = Path(os.environ["BILLHOOK_INBOX_URL"].removeprefix("sqlite:///"))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS delivery (key TEXT UNIQUE, body BLOB)")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    lock = threading.Lock()

    def store(key: str, body: bytes) -> bytes:
        with lock, suppress(*ignored):
            connection.execute("INSERT INTO delivery VALUES (?, ?)", (key, body))
        return ACCEPTED

    return _app(store)


def looks_first() -> App:
    """Looks whether the key is stored, and inserts it if not: two steps, and no unique index."""
    url = os.environ["BILLHOOK_INBOX_URL"]
    patient = {"timeout": 30} if url.startswith("sqlite") else {}
    engine = create_engine(url, pool_size=16, connect_args=patient)

    def store(key: str, body: bytes) -> bytes:
        with engine.begin() as connection:
            if connection.execute(text("SELECT 1 FROM seen WHERE key = :key"), {"key": key}).first():
                return DUPLICATE
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO seen VALUES (:key)"), {"key": key})
        return ACCEPTED

    return _app(store)
