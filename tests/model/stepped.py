"""A worker that is stepped: its poll is the real one, its handlers are called when a driver says so.

Nothing here has a thread, and time goes on only where the driver lets it.
"""

from __future__ import annotations

import importlib
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Dialect, Engine, event

from billhook.engines import Worker
from billhook.engines.cycle import Cycle
from billhook.engines.handler_pool import ClaimedRun, HandlerPool
from billhook.engines.readers import READERS
from billhook.engines.suspects import SuspectPolicy
from billhook.errors import BillhookError, InboxUnavailable
from billhook.inbox import Inbox
from model.attempts import MOST_POSTPONEMENTS
from model.own_types import know

_TIMED = ("cycle", "dispatcher", "lease_table", "maintenance", "reading", "serial", "suspects", "worker")


class Monotonic:
    """The clock that cannot be set, of all processes."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Return at once: what would wait is polled again by the driver."""


@contextmanager
def stepped_time(monotonic: Monotonic) -> Iterator[None]:
    """Let the engines' modules go by this clock, and suspects be due as late as they may."""
    modules = [importlib.import_module(f"billhook.engines.{name}") for name in _TIMED]
    before = [module.time for module in modules]
    leases = importlib.import_module("billhook.inbox.running.leases")
    dispatcher = importlib.import_module("billhook.engines.dispatcher")
    chance, most = leases.random, dispatcher.MOST_POSTPONEMENTS
    for module in modules:
        module.time = monotonic
    leases.random = SimpleNamespace(random=lambda: 0.5)
    dispatcher.MOST_POSTPONEMENTS = MOST_POSTPONEMENTS
    try:
        yield
    finally:
        leases.random, dispatcher.MOST_POSTPONEMENTS = chance, most
        for module, its_own in zip(modules, before, strict=True):
            module.time = its_own


_dialects: dict[str, tuple[Dialect, Any]] = {}
"""The first dialect of each kind, with the statements that were compiled for it."""


@contextmanager
def compiled_once() -> Iterator[None]:
    """Let all engines share what they compile: each process of a history would compile every statement."""

    def share(connection: Connection) -> None:
        engine: Any = connection.engine
        own = (engine.dialect, engine._compiled_cache)
        engine.dialect, engine._compiled_cache = _dialects.setdefault(engine.dialect.name, own)
        connection.dialect = engine.dialect

    event.listen(Engine, "engine_connect", share)
    try:
        yield
    finally:
        event.remove(Engine, "engine_connect", share)


class SteppedPool(HandlerPool):
    """Threads that are none: `executing` has what each of them would call, until the driver ends it."""

    def __post_init__(self) -> None:
        self.waiting: list[ClaimedRun] = []
        self.executing: list[ClaimedRun] = []
        self._finished = deque()
        self._expired = deque()

    def submit(self, run: ClaimedRun) -> None:
        self.waiting.append(run)
        self._fill()

    def _fill(self) -> None:
        while self.waiting and len(self.executing) < self.size:
            run = self.waiting.pop(0)
            expired = self.dispatcher.clock.now() >= run.leased_until
            (self._expired if expired else self.executing).append(run)

    def end(self, run: ClaimedRun) -> None:
        """Call the handler of a run, or do what is done instead, and keep the result for the next poll."""
        self.executing.remove(run)
        handler = self.dispatcher.find_handler(run.claim)
        self._finished.append(self.dispatcher.attempt(run.claim, run.event, handler))
        self._fill()

    def finished(self) -> tuple[list[Any], list[ClaimedRun]]:
        found = list(self._finished), list(self._expired)
        self._finished.clear()
        self._expired.clear()
        return found

    def cancel_queued(self, keep: int = 0) -> list[ClaimedRun]:
        cancelled, self.waiting = self.waiting[keep:], self.waiting[:keep]
        return cancelled

    def seconds_to_timeout(self) -> float | None:
        return None

    def exhausted(self, max_abandoned_threads: float) -> bool:
        return False

    def close(self) -> None:
        """Nothing is executed by itself."""


class _SteppedCycle(Cycle):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, pool=SteppedPool)


class SteppedWorker(Worker, _SteppedCycle):
    """The worker itself, but for its threads; `poll` raises what is a defect."""

    def __init__(
        self, inbox: Inbox, dispatcher: Any, monotonic: Monotonic, knows: Collection[str], **options: Any
    ) -> None:
        """`knows` are the types of the user's own that its release has a class of."""
        super().__init__(inbox, dispatcher, **options)
        self._knows = knows
        self.readers = SteppedPool(dispatcher, READERS, self.wake)
        self._own_readers._pool, self._own_readers.started = self.readers, True
        self._suspects = SuspectPolicy(options["lease_seconds"], options["threads"], monotonic.monotonic)
        self._registration.monotonic = monotonic.monotonic
        self._maintenance.run_if_due = lambda now: 60.0  # the driver does that
        self.error: BaseException | None = None

    @property
    def pool(self) -> SteppedPool:
        return self._handlers  # type: ignore[return-value]

    @property
    def executing(self) -> list[ClaimedRun]:
        """What its threads have begun, of handlers and of readers."""
        return [*self.pool.executing, *self.readers.executing]

    @property
    def ended(self) -> tuple[list[Any], list[ClaimedRun]]:
        """What the next poll collects: the results, and what was in a queue until its lease had ended."""
        pools = (self.pool, self.readers)
        results = [*self._unsettled, *(each for pool in pools for each in pool._finished)]
        return results, [each for pool in pools for each in pool._expired]

    def end(self, run: ClaimedRun) -> None:
        """End what a thread has begun: call its handler, or its type's class."""
        know(self._knows)
        (self.pool if run in self.pool.executing else self.readers).end(run)

    def register(self, now: datetime) -> None:
        """Write that it is alive."""
        know(self._knows)
        self._registration.write(now)

    def poll(self) -> BillhookError | None:
        """Poll once; return the error of the storage, if it failed."""
        know(self._knows)
        self.error = None
        self._poll()
        return self._result()

    def stop_in_order(self) -> BillhookError | None:
        """Stop as on SIGTERM, with no grace."""
        know(self._knows)
        self.error = None
        self._drain(0.0)
        return self._result()

    def _result(self) -> BillhookError | None:
        if self.error is not None and not isinstance(self.error, BillhookError):
            raise AssertionError(f"a defect in the poll: {self.error!r}") from self.error
        return self.error

    def _failed(self) -> None:
        self.error = sys.exception()
        super()._failed()

    def _back_off(self, seconds: float) -> None:
        """Come back at once."""


class Storage:
    """The writes of one process, of which the next one may fail.

    "refused": it is rolled back. "lost": it is committed, and its answer does not arrive.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._write: Callable[..., Any] = inbox.database.write
        self.fault: str | None = None
        self.committed = False
        inbox.database.write = self._faulty  # type: ignore[method-assign]

    @contextmanager
    def _faulty(self, *, storing: bool = False, **options: Any) -> Iterator[Any]:
        fault, self.fault = (None, self.fault) if storing else (self.fault, None)
        if not storing:
            self.committed = False
        with self._write(storing=storing, **options) as connection:
            yield connection
            if fault == "refused":
                raise InboxUnavailable("refused by the driver")
        if not storing:
            self.committed = True
        if fault == "lost":
            raise InboxUnavailable("the answer of the commit is lost")
