"""Inbox: the durable truth. The receiver puts, the engines take turns, and nobody else speaks SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import update

from billhook.errors import BacklogFull
from billhook.failpoints import reach
from billhook.inbox import migrate, retention, runs
from billhook.inbox.accept import accept
from billhook.inbox.backlog import depth
from billhook.inbox.committer import Committer
from billhook.inbox.database import Bell
from billhook.inbox.databases import database_at
from billhook.inbox.probe import Probe
from billhook.inbox.records import Incoming, Receipt, Stored
from billhook.inbox.schema import version
from billhook.inbox.turn import Turn

__all__ = ["Inbox"]


class Inbox:
    """Deliveries and the runs they cause, in one database.

    Safe under threads and under fork: every process opens connections of its own at first use.
    """

    def __init__(self, url: str, *, deadline_seconds: float = 2.5, backlog_limit: int | None = None) -> None:
        """`url` is sqlite:///PATH or postgresql+psycopg://…; see billhook.inbox.databases.database_at."""
        self._deadline_seconds = deadline_seconds
        self._backlog_limit = backlog_limit
        # A foreign lock is waited for, but not so long that the answer would miss its deadline.
        self.database = database_at(url, busy_seconds=deadline_seconds * 0.6)
        self._probe = Probe(self._write_nothing)
        self._committer = Committer(self._commit, self._after_commit, deadline_seconds)

    @property
    def bell(self) -> Bell:
        """Rings in every engine of this inbox, in any process, after each commit of deliveries."""
        return self.database.bell

    def prepare(self) -> None:
        """At start: create or upgrade a SQLite file, refuse a database that this code does not fit.

        Leaves no connection open, so that a fork may follow. Raises SchemaMismatch, InboxUnavailable.
        """
        if not migrate.any_schema.get():
            self.database.prepare()

    def upgrade(self) -> None:
        """Bring the schema to this code's revision; several processes may do so at once."""
        with self.database.write_unverified() as connection:
            migrate.upgrade(connection)

    def put(self, incoming: Incoming, timeout_seconds: float | None = None) -> Receipt:
        """Return once the delivery is on stable storage, within the deadline or `timeout_seconds`.

        Raises InboxUnavailable, or its kinds DeadlinePassed, BacklogFull and Draining: nothing may be
        acknowledged then, and the sender has to come again.
        """
        return self._committer.put(
            incoming, self._deadline_seconds if timeout_seconds is None else timeout_seconds
        )

    def answered(self) -> None:
        """Call when the answer to the last `put` is sent: the others of its batch are woken one by one."""
        self._committer.answered()

    def _commit(self, take: Callable[[], Sequence[Incoming]]) -> list[Receipt]:
        limit = self._backlog_limit
        if limit is not None:
            with self.database.read() as connection:
                if depth(connection, limit) >= limit:
                    raise BacklogFull(f"{limit} deliveries wait already")
        rows = take()
        reach("before_insert")
        receipts = accept(self.database, rows)
        reach("after_insert")
        return receipts

    def _after_commit(self) -> None:
        """Once a batch, not once a delivery: whoever handles what came looks for all of it."""
        self.bell.ring()
        self.database.tidy()

    def received(self, limit: int, only: int | None = None) -> list[Stored]:
        """Deliveries that no engine has read yet, oldest first."""
        with self.database.read() as connection:
            return runs.received(connection, limit, only)

    def waiting(self, limit: int) -> tuple[list[Stored], datetime | None]:
        """What an engine has to do: deliveries not yet read, and when the next run is due."""
        with self.database.read() as connection:
            return runs.received(connection, limit), runs.next_due_at(connection)

    @contextmanager
    def turn(self, owner: str) -> Iterator[Turn]:
        """One transaction for an engine; all of it happens or none."""
        with self.database.write() as connection:
            turn = Turn(connection, owner)
            yield turn
            for step in turn.steps:
                reach(f"in_{step}")
        for step in turn.steps:
            reach(f"after_{step}")
        self.database.tidy()

    def prune(self, received_before: datetime) -> int:
        """Delete a batch of finished deliveries older than that; returns how many, 0 when none is left."""
        with self.database.read() as connection:  # the search takes no lock that an accept would wait for
            old = retention.find_old(connection, received_before)
        if not old:
            return 0
        with self.database.write() as connection:
            return retention.prune(connection, old)

    def check_writable(self) -> None:
        """Raise InboxUnavailable unless a write can be committed now, within the deadline."""
        self._probe.ask(self._deadline_seconds)

    def _write_nothing(self) -> None:
        with self.database.write() as connection:
            connection.execute(update(version).values(version_num=version.c.version_num))

    def close(self) -> None:
        """Commit what waits, take nothing more, and close this process's connections."""
        self._committer.close()
        self.database.close()
