"""The running service: its database, clock and options, and the transactions on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from billhook.sandbox.clock import SandboxClock
from billhook.sandbox.options import SandboxOptions
from billhook.sandbox.storage.database import SandboxDatabase
from billhook.sandbox.storage.transaction import Transaction


class Service:
    """The database, clock and options that all parts of the sandbox share. It imports none of those parts.

    The parts register callbacks with `on_reopened`, `after_commit` and `on_lost`.
    """

    def __init__(self, options: SandboxOptions, clock: SandboxClock) -> None:
        """Open the database; ConfigError if it cannot be used."""
        self.options = options
        self.clock = clock
        self._locks_seen = 0
        self._on_reopened: list[Callable[[Connection], None]] = []
        self._after_commit: list[Callable[[Transaction], None]] = []
        self._on_lost: list[Callable[[], None]] = []
        self.database = SandboxDatabase(options.database_url, self._lost)

    def on_reopened(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback` in the first transaction that writes after the database was opened or reopened."""
        self._on_reopened.append(callback)

    def after_commit(self, callback: Callable[[Transaction], None]) -> None:
        """Call `callback` with each transaction that was committed."""
        self._after_commit.append(callback)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` when another sandbox has taken the database, so that every transaction fails."""
        self._on_lost.append(callback)

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Transaction]:
        """Run one request or job: committed at the end of the block, rolled back by an exception."""
        with self.database.writing() if writes else self.database.reading() as connection:
            # While the session was lost, another sandbox may have locked the database and moved the clock.
            if writes and self._locks_seen != self.database.locks_taken:
                for reopened in self._on_reopened:
                    reopened(connection)
                self._locks_seen = self.database.locks_taken
            # The time is read inside the transaction: a job that ran before it may have moved the clock.
            tx = Transaction(connection, self.clock.now(), self.clock.real.now(), self.options)
            yield tx
        # Not reached after a rollback: nothing was enqueued or scheduled then.
        for committed in self._after_commit:
            committed(tx)

    def _lost(self) -> None:
        for callback in self._on_lost:
            callback()
