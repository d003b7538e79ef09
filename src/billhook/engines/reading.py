"""Reading: an event of a type of the user's own is read by a run, before the runs of its handlers are made.

So is one of which a handler's function says how new it is (`newest_by`). The model is the user's code, which
may raise anything, hang, or end the process. So it is called as a handler is: in a thread, with a time-out,
under a lease, and not before the inbox knows it. The run is stored under the name `reading TYPE`, a name that
no handler can have. Its result is the plan of the delivery: the transaction that settles it
deletes the run, and makes those of the handlers, or writes the quarantine:

     0 s  a poll finds a delivery of an own type: planned, with the run `reading OrderPlaced`, claimed at once
     0 s  a thread calls the model, and what the handlers' options look at
     0 s  the next transaction deletes the run, and makes and claims those of the handlers

What a model raises quarantines its delivery. But for want of memory or of what the system provides, and past
the time-out, it is read again: three readings in all, over some minutes. A reading that ended with its
process is a suspect as any run is: see billhook.engines.suspects.

Types that share an ordered handler are read in the order of receipt, if one of them is of the user's own: by
one name for all of them, as `reading OrderChanged, OrderPlaced`, with the source as order key.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Protocol

from billhook.basics.printable import exception_text
from billhook.basics.type_names import reading_of
from billhook.clock import Clock
from billhook.engines.reporting import AttemptResult, PlannedDelivery, delivery_fields
from billhook.errors import ModelFailed, PayloadError
from billhook.events import EVENT_TYPES
from billhook.events.own_models import is_own
from billhook.handlers import Delivery, HandlerFailure
from billhook.inbox import Claim, RunOptions, RunPlan, RunState, StoredDelivery

logger = logging.getLogger("billhook.engines")

READING_SECONDS = 60.0
"""How long a model may take, here and before a later attempt of a handler."""
READ_AGAIN_SECONDS = (30.0, 120.0)
"""The waits before the second and the third reading, which is the last."""
READINGS = len(READ_AGAIN_SECONDS) + 1
_PASSING = (MemoryError, OSError)
"""Errors that may pass, and may have nothing to do with the delivery. A TimeoutError is an OSError."""


def _never() -> bool:
    return False


def _ends_process(error: BaseException) -> bool:
    """Return whether an exception may have been raised to end the process, and not by the model."""
    greenlets = sys.modules.get("greenlet")
    return isinstance(error, (SystemExit,) if greenlets is None else (SystemExit, greenlets.GreenletExit))


class Planner(Protocol):
    """What a reading needs of the dispatcher that it is a part of."""

    clock: Clock

    @property
    def queues(self) -> Mapping[str, int]:
        """The event types that an ordered handler gets, numbered alike if they share one."""

    def has_functions(self, event_type: str) -> bool:
        """Return whether planning the event type calls a function of the user's."""

    def plan_reading(self, stored: StoredDelivery) -> PlannedDelivery:
        """Plan a delivery by its event, which is read here. Raises PayloadError."""

    def delivery_of(self, claim: Claim) -> Delivery:
        """Return the delivery of a claimed run."""


class _ReadingNames(dict[str, str | None]):
    """The names of the runs that read each type, found at first use: none for a type without a model yet."""

    def __init__(self, find: Callable[[str], str | None]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, event_type: str) -> str | None:
        if event_type not in EVENT_TYPES:  # its class may be declared later
            return None
        name = self[event_type] = self._find(event_type)
        return name


@dataclass(eq=False, repr=False)
class Reading:
    """Decides which event types of an app are read by runs, and makes and executes these readings."""

    dispatcher: Planner

    def __post_init__(self) -> None:
        self.names: Mapping[str, str | None] = _ReadingNames(self._find_name)
        """The name of the run that reads a type; None for a type that is planned without a reading."""

    @cached_property
    def _queues(self) -> Mapping[str, str]:
        """The name for each type of a queue with an own type: these are read in the order of receipt."""
        types: dict[int, list[str]] = {}
        for event_type, number in self.dispatcher.queues.items():
            types.setdefault(number, []).append(event_type)
        own = [each for each in types.values() if any(map(self._calls_user_code, each))]
        return {event_type: reading_of(each) for each in own for event_type in each}

    def _calls_user_code(self, event_type: str) -> bool:
        """Return whether a delivery of the type is read by a run."""
        return is_own(event_type) or self.dispatcher.has_functions(event_type)

    def _find_name(self, event_type: str) -> str | None:
        own = reading_of([event_type]) if self._calls_user_code(event_type) else None
        return self._queues.get(event_type, own)

    def plan(self, stored: StoredDelivery, name: str, read_here: str | None) -> PlannedDelivery:
        """Plan the reading of a delivery; `read_here` is its type, if that was read just now."""
        options: dict[str, RunOptions] = {}
        if stored.event_type in self._queues:
            options[name] = RunOptions(order_key=json.dumps([stored.source]))
        claimable = None if options else stored
        plan = RunPlan(stored.delivery_id, (name,), None, options, claimable, (), read_here)
        return PlannedDelivery(plan, stored, None)

    def attempt(self, claim: Claim, stopping: Callable[[], bool] = _never) -> AttemptResult:
        """Read a delivery once; `stopping` says whether the process is asked to end."""
        number, started = claim.attempt - claim.uncounted, time.monotonic()
        if number > READINGS:
            # Its last reading ended with its process: another one would end this process too.
            return self._quarantined(
                claim,
                PayloadError(
                    f"the worker died at the last of {READINGS} readings as {claim.delivery.event_type}, or "
                    "was silent for longer than BILLHOOK_LEASE_SECONDS: not read again"
                ),
            )
        try:
            planned = self.dispatcher.plan_reading(claim.delivery)
        except PayloadError as error:
            try:
                return self._failed(claim, error, stopping)
            except BaseException:  # noqa: BLE001 - the code of an exception of the user's, which says what it is
                text = f"the event model of {claim.delivery.event_type} raised what cannot be described"
                return self._quarantined(claim, PayloadError(text))
        except KeyboardInterrupt as error:
            if threading.current_thread() is threading.main_thread():  # the user's, with the engine `inline`
                raise
            return self._interrupted(claim, error)
        return self._ended(claim, planned, time.monotonic() - started)

    def timed_out(self, claim: Claim, seconds: float) -> AttemptResult:
        """Return the result of a reading that is past its time-out and still running."""
        text = f"the event model of {claim.delivery.event_type} did not return within {seconds:g} s"
        return self._again(claim, TimeoutError(text), alone=False)

    def crashed(self, claim: Claim, error: BaseException) -> AttemptResult:
        """Return the result of a reading that ended in an error of billhook's own."""
        return self._again(claim, RuntimeError(type(error).__name__), alone=False)

    def _failed(self, claim: Claim, error: BaseException, stopping: Callable[[], bool]) -> AttemptResult:
        raised = error.__cause__ if isinstance(error, ModelFailed) else None
        if raised is not None and _ends_process(raised) and stopping():
            return self._interrupted(claim, raised)
        if isinstance(raised, _PASSING):
            # Alone: what it lacked, others that ran beside it may have had.
            return self._again(claim, error, alone=True)
        if raised is not None:
            text = "the event model of %s raised; its delivery is quarantined"
            event_type, extra = claim.delivery.event_type, delivery_fields(claim.delivery, cause=raised)
            logger.error(text, event_type, exc_info=raised, extra=extra)
        return self._quarantined(claim, error)

    def _interrupted(self, claim: Claim, error: BaseException) -> AttemptResult:
        """Return the result of a reading that ended with the process, which does not count."""
        now = self.dispatcher.clock.now()
        due_at, text = now + timedelta(seconds=READ_AGAIN_SECONDS[0]), exception_text(error)
        result = claim.ended(RunState.DUE, now, due_at=due_at, error=text, uncounted=True)
        failure = HandlerFailure.from_exception(error)
        return AttemptResult(result, self.dispatcher.delivery_of(claim), failure)

    def _again(self, claim: Claim, error: BaseException, *, alone: bool) -> AttemptResult:
        """Return the result of a failed reading: due again, `alone` if so, or quarantined after the last."""
        number = claim.attempt - claim.uncounted
        text = str(error) if isinstance(error, PayloadError) else exception_text(error)
        if number >= READINGS:
            return self._quarantined(claim, PayloadError(f"{text}, at the last of {READINGS} readings"))
        now = self.dispatcher.clock.now()
        failure = HandlerFailure.from_exception(error)
        due_at = now + timedelta(seconds=READ_AGAIN_SECONDS[max(0, number - 1)])
        result = claim.ended(RunState.DUE, now, due_at=due_at, error=text, traceback=failure.traceback)
        return AttemptResult(result, self.dispatcher.delivery_of(claim), failure, alone=alone)

    def _quarantined(self, claim: Claim, error: BaseException) -> AttemptResult:
        return self._ended(claim, quarantined(claim.delivery, error), None)

    def _ended(self, claim: Claim, planned: PlannedDelivery, seconds: float | None) -> AttemptResult:
        now = self.dispatcher.clock.now()
        result = claim.ended(RunState.SUCCEEDED, now, duration_seconds=seconds)
        return AttemptResult(result, self.dispatcher.delivery_of(claim), None, planned)


def quarantined(
    stored: StoredDelivery, error: BaseException, read_here: str | None = None
) -> PlannedDelivery:
    """Plan the quarantine of a delivery for an error; `read_here` is its type, if that was read just now."""
    details = error.details if isinstance(error, PayloadError) else []
    text = str(error) if isinstance(error, PayloadError) else exception_text(error)
    # Stored as JSON: `deliveries show` prints the place of each error.
    reason = json.dumps({"error": text, "details": details})
    return PlannedDelivery(RunPlan(stored.delivery_id, error=reason, event_type=read_here), stored, None)
