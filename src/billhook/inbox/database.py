"""What the inbox asks of a database; billhook.inbox.sqlite and billhook.inbox.postgres give it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection

from billhook.inbox.express import Express
from billhook.inbox.records import Incoming

__all__ = ["Bell", "Database"]


class Bell(Protocol):
    """Wakes who waits for work in any process. Forgetful: behind every bell stands a slow look."""

    def ring(self) -> None:
        """Wake whoever waits; never raises."""
        ...

    def listen(self) -> int:
        """The descriptor that becomes readable when the bell rings. Raises OSError when none is to be had."""
        ...

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until the bell rings or the time is over; True if it rang. Raises OSError like `listen`."""
        ...


class Database(Protocol):
    """Connections to one database, built anew in every process.

    Every method raises InboxUnavailable when the storage fails, and has then rolled back.
    """

    @property
    def place(self) -> str:
        """Where it is, for people: no password."""
        ...

    @property
    def schema(self) -> str | None:
        """The schema that the tables are in, or will be; None where a database has none."""
        ...

    @property
    def may_return(self) -> bool:
        """Whether it may be away when a process starts, and be there later without anybody's doing."""
        ...

    @property
    def bell(self) -> Bell:
        """Rung after each commit of deliveries."""
        ...

    @property
    def express(self) -> Express:
        """The short way of one delivery."""
        ...

    def prepare(self) -> None:
        """At start: see that it is there and fits this code. Leaves no connection open: a fork may follow."""
        ...

    def insert_new(self, rows: Sequence[Incoming]) -> Sequence[int]:
        """Commit rows as the first of their (source, key), passing over keys that have one, whosever it is.

        Returns the ids of those that are new: when all of them are, in the order of the rows.
        """
        ...

    def read(self) -> AbstractContextManager[Connection]:
        """A consistent snapshot of what is committed, for reading only."""
        ...

    def write(self) -> AbstractContextManager[Connection]:
        """A transaction, committed when the block ends."""
        ...

    def write_unverified(self) -> AbstractContextManager[Connection]:
        """A write transaction on a schema of any age, one at a time whoever asks: for the migrations."""
        ...

    def former(self) -> str | None:
        """The other schema where a billhook that knew no schemas kept the inbox, if it is still there."""
        ...

    def move_in(self, connection: Connection) -> str | None:
        """Before the first migration, in its transaction: make room for the tables, or move them there.

        Returns where they were, if they were elsewhere. Raises SchemaForbidden.
        """
        ...

    def back_up(self, target: Path, progress: Callable[[int, int], None]) -> int:
        """Copy the inbox into a new file while it is used; returns its deliveries.

        `progress` is told of pages done, and pages in all. Raises ConfigError where that is done by other
        means, or the target cannot be made; InboxError.
        """
        ...

    def restore(self, backup: Path, progress: Callable[[int, int], None]) -> int:
        """Put a backup in the place of the inbox, which nobody may use. As `back_up` otherwise."""
        ...

    def tidy(self, *, at_once: bool = False) -> None:
        """Between commits: what must be done now and then; `at_once`, without waiting for that."""
        ...

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        ...
