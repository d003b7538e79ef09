"""The interface of engines, and the inline engine: handlers run in the request, after the commit.

That is for development and tests: a failed run is retried by the next `handle_due`, or by a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from billhook.basics.concurrency import run_in_copy
from billhook.basics.engine_kinds import INLINE, WORKER, EngineKind
from billhook.engines.dispatcher import AttemptResult, Dispatcher
from billhook.engines.handler_pool import ClaimedRun, HandlerPool
from billhook.engines.maintenance import DEFAULT_MAINTENANCE, MaintenanceOptions
from billhook.engines.serial import SerialWorker
from billhook.inbox import Inbox
from billhook.logs import fields
from billhook.settings import Settings

logger = logging.getLogger("billhook.engines")


@dataclass(eq=False, repr=False)
class Engine:
    """What an app needs of an engine; this one does nothing, for handlers that `billhook worker` runs."""

    kind: ClassVar[EngineKind] = WORKER
    inbox: Inbox
    dispatcher: Dispatcher
    _: KW_ONLY
    lease_seconds: float
    maintenance: MaintenanceOptions = DEFAULT_MAINTENANCE

    @property
    def is_woken(self) -> bool:
        """Whether `wake` does something."""
        return type(self).wake is not Engine.wake

    @classmethod
    def parts(cls, settings: Settings, extensions: Mapping[str, Any]) -> dict[str, Any]:
        """Return further arguments for it, from the options and the app. Raises ConfigError, MissingExtra."""
        return {}

    def bind(self, extensions: dict[str, Any]) -> None:
        """Have the workers of a queue call it from now on; `extensions` are those of the Flask app."""

    def start(self) -> None:
        """Start in this process."""

    def ensure_started(self) -> None:
        """Start because a request came, unless it runs or has nothing to start. Raises OutOfResources."""

    def disabled(self) -> AbstractContextManager[None]:
        """Handle nothing in this process during the block."""
        return nullcontext()

    def wake(self, delivery_id: int) -> None:
        """Handle a delivery that was just committed, or have it handled."""

    def stop(self) -> None:
        """Stop in this process."""


class InlineEngine(Engine):
    """Handles each delivery in the thread that stored it; time-outs of handlers do not apply."""

    kind = INLINE

    def wake(self, delivery_id: int) -> None:
        """Handle one delivery now. Errors are logged: the delivery is stored, and its sender gets its 200."""
        try:
            self.handle_due(only=delivery_id)
            if self.dispatcher.lists.others_differ:  # they leave what they receive to this process
                self.handle_due()
        except Exception:
            text = "inline handling of delivery %d failed"
            logger.exception(text, delivery_id, extra=fields(delivery_id=delivery_id))

    def handle_due(self, only: int | None = None) -> int:
        """Handle every due run in this thread and return the number of attempts.

        With `only`, handle the runs of that delivery, and those that waited for them in an order.
        """
        wanted: list[int | None] = [only]

        def announce(delivery_ids: Iterable[int]) -> None:
            if only is not None:
                wanted.extend(delivery_ids)

        # Made for each call: a handler may have a delivery stored, which is handled within its own call.
        worker = SerialWorker(
            self.inbox,
            self.dispatcher,
            lease_seconds=self.lease_seconds,
            announce=announce,
            settle_seconds=0.0,
            pool=_CallersThread,
            of_worker=False,
        )
        try:
            for each in wanted:  # which grows meanwhile
                worker.handle(each, with_suspects=True)
        finally:
            worker.close()
        return worker.attempts


class _CallersThread(HandlerPool):
    """Calls handlers in the thread that asks for their results."""

    def _start_threads(self) -> None:
        """Start none."""

    def finished(self) -> tuple[list[AttemptResult], list[ClaimedRun]]:
        for run in self.cancel_queued():
            if self.dispatcher.clock.now() >= run.leased_until:
                self._expired.append(run)
            else:
                # What the caller has set, such as a test or a middleware, its handlers see.
                attempt = run_in_copy(copy_context(), self.dispatcher.attempt, run.claim, run.event)
                self._finished.append(attempt)
        return super().finished()
