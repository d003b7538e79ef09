"""The interface of a database that an inbox can use.

billhook.inbox.sqlite and billhook.inbox.postgres implement the protocols. What a method does here is right
where nothing has to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection

from billhook.clock import Clock, SystemClock
from billhook.inbox.tables.facts import NO_ROW_SECURITY, DatabaseFacts, RowSecurity
from billhook.inbox.tables.records import NewDelivery


class Listener(Protocol):
    """Hears the notifications of one inbox from its creation on, beside other listeners."""

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification or the end of the time; True for the former. Raises OSError."""

    def close(self) -> None:
        """Stop listening."""


class Waker(Listener, Protocol):
    """Wakes engines in any process. A notification may be lost: every listener also polls."""

    def wake(self) -> None:
        """Wake every listener; never raises."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable on a notification. Raises OSError without one."""

    def listener(self) -> Listener:
        """Return a listener that takes no notification from an engine. Raises OSError."""


CONNECTIONS_PER_PROCESS = 4
"""How many connections to a server each web process and each worker process has."""


class Database(Protocol):
    """Connections to one database, opened anew in every process.

    Every method raises InboxUnavailable when the storage fails, and has then rolled back.
    """

    schema: str | None = None
    """The schema that the tables are in, or will be; None where the database has no schemas."""
    may_be_away: bool
    """Whether it may be unreachable when a process starts, and be back later without any change."""
    waits_in_c: bool
    """Whether a transaction waits in C code, so that under gevent all other greenlets would wait with it."""
    keeps_entries: bool
    """Whether indexes keep entries of rows that have left them, while an older transaction is open."""
    writes_overlap: bool
    """Whether a transaction may write while another one is open."""
    plan_rows: int
    """How many new deliveries a worker plans in one transaction: fewer where receivers wait for it."""
    prune_rows: int
    """How many deliveries are pruned in one transaction: few where receivers wait for it."""
    has_own_clock: bool
    """Whether `clock` is not this machine's."""
    commit_seconds: float = 0.0
    """How long this process's last transaction held up all other writers while it was synced; else 0."""
    waker: Waker
    """Notified after each commit of deliveries."""
    clock: Clock = SystemClock()
    """What leases and due times go by: the machine's clock, or that of a server for several machines."""

    @property
    def after_commit(self) -> Sequence[Callable[[], None]]:
        """What is called after each batch of deliveries: it wakes the engines."""
        return (self.waker.wake,)

    @property
    def is_missing(self) -> bool:
        """Whether it is a file that does not exist."""
        return False

    def now(self) -> datetime:
        """Return the time of `clock`, which a server is asked for if it was not lately."""
        return self.clock.now()

    @property
    def machine_ahead_seconds(self) -> float:
        """How far this machine's clock is ahead of `clock`."""
        return 0.0

    @property
    def display_url(self) -> str:
        """Its address for people: without a password."""

    def write_lock_holder(self) -> int | None:
        """Return the id of the process that keeps all others from writing; None if there is none.

        Never waits for the database.
        """
        return None

    def prepare(self) -> None:
        """Check at start that it exists and fits this code. Leaves no connection open, for a fork."""

    def turn(self) -> AbstractContextManager[None]:
        """Wait until no other process writes, where only one may, and let none begin in the block."""
        return nullcontext()

    def insert_new(self, rows: Sequence[NewDelivery]) -> Sequence[int]:
        """Commit rows as the first of their (source, key), skipping keys that have one already.

        Returns the ids of the new rows: when all are new, in the order of `rows`.
        """

    def read(self, *, storing: bool = False, checked: bool = True) -> AbstractContextManager[Connection]:
        """Open a consistent snapshot of what is committed, for reading only.

        With `storing`, for a receiver: on a newer schema too, if that lets this code store deliveries. Raises
        SchemaMismatch. Not `checked`, on a server, the schema may be any that can be read, and each statement
        sees what is committed when it begins: only for what a transaction of `write` then acts on.
        """

    def write(self, *, storing: bool = False) -> AbstractContextManager[Connection]:
        """Open a transaction, committed when the block ends; `storing` and errors as for `read`."""

    def migration_transaction(self) -> AbstractContextManager[Connection]:
        """Open a write transaction on a schema of any age, one at a time across processes."""

    def row_security(self) -> RowSecurity:
        """Read which of the tables have row security that applies to this role."""
        return NO_ROW_SECURITY

    def facts(self) -> DatabaseFacts:
        """Read the facts for `billhook doctor`. Raises SchemaMismatch too."""

    def free_bytes(self) -> tuple[int, int] | None:
        """Return how many bytes are free beside the inbox, and its size; None where only a server knows."""
        return None

    def log_bytes(self) -> int:
        """Return the size of the log beside the inbox, where that is a file."""
        return 0

    def other_schemas(self) -> list[str]:
        """Return the other schemas of the same database that hold an inbox."""
        return []

    def create_schema(self, connection: Connection, *, dry_run: bool = False) -> None:
        """Create the schema before the first migration, in its transaction. Raises SchemaForbidden.

        A `dry_run` does nothing else.
        """
        return

    def back_up(self, target: Path, progress: Callable[[int, int], None]) -> int:
        """Copy the inbox into a new file while it is in use; returns the number of its deliveries.

        `progress` is called with pages done and pages in all. Raises ConfigError where other tools do that,
        or the target cannot be created; InboxError.
        """

    def check_restore(self, backup: Path) -> None:
        """Raise ConfigError where other tools restore a backup, and for a file that is none."""

    def restore(self, backup: Path, progress: Callable[[int, int], None]) -> int:
        """Put a backup in place of the inbox, which no process may use. Otherwise as `back_up`."""

    def checkpoint(self, *, at_once: bool = False) -> None:
        """Do regular maintenance when it is due; `at_once`: now. Transactions of `write` do it themselves."""
        return

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
