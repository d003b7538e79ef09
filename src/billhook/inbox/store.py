"""Inbox: the durable truth. The receiver puts, the engines take turns, and nobody else speaks SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from billhook.errors import BacklogFull, ConfigError
from billhook.inbox import migrate, retention, runs
from billhook.inbox.accept import accept
from billhook.inbox.backlog import depth
from billhook.inbox.bell import Bell
from billhook.inbox.committer import Committer
from billhook.inbox.probe import Probe
from billhook.inbox.records import Claim, Incoming, Outcome, Plan, Receipt, Stored
from billhook.inbox.schema import version
from billhook.inbox.settling import settle
from billhook.inbox.sqlite import SqliteDatabase

__all__ = ["Inbox", "Turn"]


class Turn:
    """One write transaction of an engine: settle, plan and claim together cost one sync of the disk."""

    def __init__(self, connection: Connection, owner: str) -> None:
        self._connection = connection
        self._owner = owner

    def settle(self, outcomes: Sequence[Outcome]) -> set[int]:
        """Write how runs ended; returns the run ids whose lease still held."""
        return settle(self._connection, outcomes)

    def plan(self, plans: Sequence[Plan], now: datetime) -> list[int]:
        """Make runs of received deliveries; returns the delivery ids that were still unplanned."""
        return runs.plan(self._connection, plans, now)

    def claim(
        self,
        limit: int,
        now: datetime,
        leased_until: datetime,
        only: int | None = None,
        idle: int | None = None,
    ) -> list[Claim]:
        """Take up to `limit` due runs, of one delivery if `only` names it.

        The first `idle` of them (default: all) are begun at once, the others wait in a queue.
        """
        return runs.claim(
            self._connection,
            owner=self._owner,
            limit=limit,
            idle=limit if idle is None else idle,
            now=now,
            leased_until=leased_until,
            only=only,
        )

    def renew(self, held: Sequence[tuple[int, int]], leased_until: datetime) -> set[tuple[int, int]]:
        """Extend leases given as (run id, token); returns those still held."""
        return runs.renew(self._connection, held, leased_until)

    def release(self, held: Sequence[tuple[int, int]], now: datetime) -> None:
        """Give back runs, as (run id, token), that nobody called."""
        runs.release(self._connection, held, now)

    def next_due_at(self) -> datetime | None:
        """When the next run may be claimed."""
        return runs.next_due_at(self._connection)


class Inbox:
    """Deliveries and the runs they cause, in one database.

    Safe under threads and under fork: every process opens connections of its own at first use.
    """

    def __init__(self, url: str, *, deadline_seconds: float = 2.5, backlog_limit: int | None = None) -> None:
        """`url` is sqlite:///PATH. Raises ConfigError for any other, without repeating its password."""
        self._deadline_seconds = deadline_seconds
        self._backlog_limit = backlog_limit
        # A foreign lock is waited for, but not so long that the answer would miss its deadline.
        self.database = SqliteDatabase(_sqlite_path(url), deadline_seconds * 0.6, migrate.verify)
        self._probe = Probe(self._write_nothing)
        self._committer = Committer(self._commit, self._after_commit, deadline_seconds)

    @property
    def bell(self) -> Bell:
        """Rings in every engine of this inbox, in any process, after each commit of deliveries."""
        return self.database.bell

    def prepare(self) -> None:
        """At start: create or upgrade a SQLite file, and refuse one that this code does not fit.

        Leaves no connection open, so that a fork may follow. Raises SchemaMismatch, InboxUnavailable.
        """
        self.database.file.create()
        self.upgrade()
        self.database.close()

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
        return accept(self.database, take())

    def _after_commit(self) -> None:
        """Once a batch, not once a delivery: whoever handles what came looks for all of it."""
        self.bell.ring()
        self.database.checkpoint_if_due()

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
            yield Turn(connection, owner)
        self.database.checkpoint_if_due()

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


def _sqlite_path(url: str) -> str:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise ConfigError("BILLHOOK_INBOX_URL is no database URL: write sqlite:///PATH") from None
    if parsed.get_backend_name() != "sqlite":
        raise ConfigError(
            f"BILLHOOK_INBOX_URL names {parsed.get_backend_name()!r}: this version stores in sqlite:///PATH"
        )
    if parsed.database in (None, "", ":memory:"):
        raise ConfigError("BILLHOOK_INBOX_URL must name a file: an inbox in memory would lose deliveries")
    return str(Path(str(parsed.database)))
