"""What the inbox asks of a database; billhook.inbox.sqlite and billhook.inbox.postgres give it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
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
        """Commit rows, passing over those whose (source, key) is stored, whoever stored it.

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

    def tidy(self) -> None:
        """Between commits: what must be done now and then."""
        ...

    def close(self) -> None:
        """Close every connection of this process; the next use opens them again. Call before a fork."""
        ...
