"""Two transactions at the same time, in the order that a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from billhook.inbox import Inbox, InboxTransaction
from support.inbox_view import value
from support.processes import until

only_postgres = pytest.mark.parametrize("bare_url", ["postgresql"], indirect=True)
"""For what cannot happen where there is one writer at a time."""


class Meanwhile:
    """Two transactions: the second begins, and waits or ends, before the first commits."""

    def __init__(self, inbox: Inbox, where: Path | str) -> None:
        self.inbox, self.where = inbox, where
        self._pid: int | None = None
        self._ended = False

    def __call__(
        self, first: Callable[[InboxTransaction], object], second: Callable[[InboxTransaction], object]
    ) -> None:
        thread = threading.Thread(target=self._second, args=(second,))
        try:
            with self.inbox.transaction("first") as transaction:
                try:
                    first(transaction)
                finally:
                    thread.start()
                    until(lambda: self._ended or self._waits(), 20)
        finally:
            thread.join(20)
            assert not thread.is_alive()

    def _second(self, second: Callable[[InboxTransaction], object]) -> None:
        try:
            with self.inbox.database.write() as connection:
                if connection.dialect.name == "postgresql":
                    self._pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
                second(InboxTransaction(connection, "second"))
        finally:
            self._ended = True

    def _waits(self) -> bool:
        if not isinstance(self.where, str):
            return True  # for the file, which the first one has
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = ? AND wait_event_type = 'Lock'"
        return self._pid is not None and value(self.where, query, self._pid) == 1
