"""Inbox: the durable truth. The receiver puts, the engines take turns, and nobody else speaks SQL."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import update

from billhook.errors import BacklogFull, InboxUnavailable, SchemaMismatch
from billhook.failpoints import reach
from billhook.inbox import migrate, retention, runs, workers
from billhook.inbox.accept import accept
from billhook.inbox.backlog import Gauge, depth
from billhook.inbox.committer import Committer
from billhook.inbox.database import Bell
from billhook.inbox.databases import database_at
from billhook.inbox.express import Express
from billhook.inbox.first_look import FirstLook
from billhook.inbox.overdue import Overdue, next_due_at, overdue
from billhook.inbox.probe import Probe
from billhook.inbox.records import Incoming, Receipt, Stored, Verdict
from billhook.inbox.retention import Limits, Pruned
from billhook.inbox.schema import version
from billhook.inbox.states import DeliveryState
from billhook.inbox.turn import Turn

__all__ = ["Inbox"]

FIRST_LOOK_SECONDS = 0.5
"""How long the first deliveries wait for a server that was silent at the start: they have waited already."""


class Inbox:
    """Deliveries and the runs they cause, in one database.

    Safe under threads and under fork: every process opens connections of its own at first use.
    """

    def __init__(
        self,
        url: str,
        *,
        deadline_seconds: float = 2.5,
        backlog_limit: int | None = None,
        schema: str = "billhook",
        own_folder: bool = False,
    ) -> None:
        """`url` is sqlite:///PATH or postgresql+psycopg://…; see billhook.inbox.databases.database_at."""
        self._deadline_seconds = deadline_seconds
        self._backlog_limit = backlog_limit
        self._gauge = None if backlog_limit is None else Gauge(self._depth, backlog_limit)
        # A foreign lock is waited for, but not so long that the answer would miss its deadline.
        self.database = database_at(
            url, busy_seconds=deadline_seconds * 0.6, schema=schema, own_folder=own_folder
        )
        self._probe = Probe(self._write_nothing)
        self._first_look: FirstLook | None = None
        self._committer = Committer(self._commit, self._after_commit, deadline_seconds)

    @property
    def bell(self) -> Bell:
        """Rings in every engine of this inbox, in any process, after each commit of deliveries."""
        return self.database.bell

    @property
    def express(self) -> Express:
        """The short way, for an engine that handles deliveries one by one."""
        return self.database.express

    def prepare(self, timeout_seconds: float | None = None) -> None:
        """At start: create or upgrade a SQLite file, refuse a database that this code does not fit.

        Leaves no connection open, so that a fork may follow. Raises SchemaMismatch, InboxUnavailable; a
        server that takes longer than `timeout_seconds` is looked at further, apart.
        """
        if migrate.any_schema.get():
            return
        if timeout_seconds is None or not self.database.may_return:
            self.database.prepare()
        else:
            self._first_look = FirstLook(self.database.prepare, self.database.place)
            self._first_look.result(timeout_seconds)

    def upgrade(self) -> str | None:
        """Bring the schema to this code's revision; several processes may do so at once.

        Returns where the tables were if they had to be moved. Raises SchemaForbidden, SchemaMismatch.
        """
        with self.database.write_unverified() as connection:
            missing = migrate.found_revision(connection) is None
            moved_from = self.database.move_in(connection) if missing else None
            migrate.upgrade(connection)
        return moved_from

    def put(self, incoming: Incoming, timeout_seconds: float | None = None) -> Receipt:
        """Return once the delivery is on stable storage, within the deadline or `timeout_seconds`.

        Raises InboxUnavailable, or its kinds DeadlinePassed, BacklogFull and Draining: nothing may be
        acknowledged then, and the sender has to come again.
        """
        timeout = self._deadline_seconds if timeout_seconds is None else timeout_seconds
        if self._first_look is not None:
            timeout -= self._first_look.wait(min(FIRST_LOOK_SECONDS, timeout))
        return self._committer.put(incoming, timeout)

    def start(self) -> None:
        """Start the thread that commits, now rather than at the first `put`. Raises OutOfResources."""
        self._committer.start()

    def answered(self) -> None:
        """Call when the answer to the last `put` is sent: the others of its batch are woken one by one."""
        self._committer.answered()

    def _commit(self, take: Callable[[], Sequence[Incoming]]) -> list[Receipt]:
        try:
            return self._store(take)
        except InboxUnavailable:
            self._probe.doubt()
            raise
        except SchemaMismatch as error:  # a database that was away when this process began, for one
            raise InboxUnavailable(str(error)) from None

    def _store(self, take: Callable[[], Sequence[Incoming]]) -> list[Receipt]:
        if self._gauge is not None and self._gauge.full():
            raise BacklogFull(f"{self._backlog_limit} deliveries wait already")
        rows = take()
        reach("before_insert")
        receipts = accept(self.database, rows)
        reach("after_insert")
        if self._gauge is not None:
            self._gauge.add(sum(receipt.verdict is Verdict.ACCEPTED for receipt in receipts))
        return receipts

    def _depth(self, limit: int) -> int:
        with self.database.read() as connection:
            return depth(connection, limit)

    def _after_commit(self) -> None:
        """Once a batch, not once a delivery: whoever handles what came looks for all of it."""
        self.bell.ring()
        self.database.tidy()

    def received(self, limit: int, only: int | None = None) -> list[Stored]:
        """Deliveries that no engine has read yet, oldest first."""
        with self.database.read() as connection:
            return runs.received(connection, limit, only)

    def waiting(self, limit: int) -> tuple[list[Stored], runs.NextTimes]:
        """What an engine has to do: deliveries not yet read, and when the next runs are due."""
        with self.database.read() as connection:
            return runs.received(connection, limit), runs.next_times(connection)

    def suspect_due(self, delivery_id: int, now: datetime) -> bool:
        """Whether a run of that delivery is due that must be begun beside nothing else."""
        with self.database.read() as connection:
            return runs.suspect_due(connection, delivery_id, now)

    def overdue(
        self, *, received_before: datetime, due_before: datetime, limit: int
    ) -> tuple[list[Overdue], datetime | None]:
        """Deliveries that somebody should have begun by then, and when the next run after that is due."""
        with self.database.read() as connection:
            found = overdue(connection, received_before=received_before, due_before=due_before, limit=limit)
            return found, next_due_at(connection, due_before)

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

    def prune(
        self,
        limits: Limits,
        after: int = 0,
        limit: int = retention.BATCH_LIMIT,
        *,
        states: Collection[DeliveryState] = retention.PRUNABLE,
        dry_run: bool = False,
    ) -> Pruned:
        """Let go of up to `limit` old deliveries in these states, in one transaction.

        Those with ids above `after`; call it again with the answer's own `after` until it says `over`. A
        `dry_run` counts and changes nothing.
        """
        with self.database.read() as connection:  # the search takes no lock that an accept would wait for
            found = retention.find(connection, limits, after, limit, states)
        if dry_run or not found.rows:
            return found.counted(limits)
        with self.database.write() as connection:
            pruned = retention.prune(connection, found, limits)
        self.database.tidy()
        return pruned

    def note_worker(self, seen: workers.Worker, now: datetime) -> None:
        """Write that somebody works on this inbox."""
        with self.database.write() as connection:
            workers.note(connection, seen, now)
        self.database.tidy()

    def forget_worker(self, owner: str) -> None:
        """Write that a worker ended in order."""
        with self.database.write() as connection:
            workers.forget(connection, owner)
        self.database.tidy()

    def worker_seen_at(self) -> datetime | None:
        """Return when a worker that did not end in order was last seen."""
        with self.database.read() as connection:
            return workers.last_seen_at(connection)

    def check_writable(self, max_age_seconds: float = 0.0) -> None:
        """Raise InboxUnavailable unless a write can be committed now, within the deadline.

        Where one could up to `max_age_seconds` ago, and none failed since, that is not tried again.
        """
        self._probe.ask(self._deadline_seconds, max_age_seconds)

    def _write_nothing(self) -> None:
        with self.database.write() as connection:
            connection.execute(update(version).values(version_num=version.c.version_num))
        self.database.tidy(at_once=True)  # who asks every second leaves nothing behind

    def close(self) -> None:
        """Commit what waits, take nothing more, and close this process's connections."""
        self._committer.close()
        self.database.close()
