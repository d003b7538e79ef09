"""The running service: its database, clock and options, and the transactions on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from billhook.sandbox.clock import SandboxClock
from billhook.sandbox.options import SandboxOptions
from billhook.sandbox.storage.database import SandboxDatabase
from billhook.sandbox.storage.transaction import Transaction


class Service:
    """The database, clock and options that all parts of the sandbox share. It imports none of those parts.

    The parts register callbacks with `after_commit`.
    """

    def __init__(self, options: SandboxOptions, clock: SandboxClock) -> None:
        """Open the database; ConfigError if it cannot be used."""
        self.options = options
        self.clock = clock
        self._after_commit: list[Callable[[Transaction], None]] = []
        self.database = SandboxDatabase(options.database_url)

    def after_commit(self, callback: Callable[[Transaction], None]) -> None:
        """Call `callback` with each transaction that was committed."""
        self._after_commit.append(callback)

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Transaction]:
        """Run one request or job: committed at the end of the block, rolled back by an exception."""
        with self.database.writing() if writes else self.database.reading() as connection:
            # The time is read inside the transaction: a job that ran before it may have moved the clock.
            tx = Transaction(connection, self.clock.now(), self.clock.real.now(), self.options)
            yield tx
        # Not reached after a rollback: nothing was enqueued or scheduled then.
        for committed in self._after_commit:
            committed(tx)
