"""The dispatcher: plans deliveries into runs, calls handlers, and notifies observers of the results.

It has no thread, no loop and no SQL: it decides, and the engine that asked writes the decision to the inbox.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from billhook import signals
from billhook.basics.concurrency import startup_context
from billhook.basics.type_names import is_reading
from billhook.clock import Clock
from billhook.engines.newest_list import NewestList
from billhook.engines.reading import Reading, quarantined
from billhook.engines.reporting import AttemptResult, PlannedDelivery, delivery_fields, report
from billhook.errors import Discard, DuplicateHandlerName, ModelFailed, PayloadError, PutOffTooOften, Retry
from billhook.events import EVENT_TYPES, Event, UnknownEvent, parse_event
from billhook.events.base import decode_body, event_of
from billhook.events.own_models import guarded, is_own
from billhook.events.type_field import read_type
from billhook.handlers import (
    ConnectedHandlers,
    Delivery,
    Handler,
    HandlerFailure,
    RetrySchedule,
    StoredHeaders,
    call,
    retry_after,
)
from billhook.handlers.registered import missing_remedy
from billhook.inbox import Claim, ContentKey, HandlerLimits, RunOptions, RunPlan, RunState, StoredDelivery
from billhook.inbox.running.leases import LOST
from billhook.inbox.running.postponing import LONGEST_POSTPONEMENT, MOST_POSTPONEMENTS
from billhook.logs import fields

if TYPE_CHECKING:
    from billhook.client import BillingClient

__all__ = ["AttemptResult", "Dispatcher", "PlannedDelivery", "parse", "run_options"]

logger = logging.getLogger("billhook.engines")

MISSING_ISSUE_ATTEMPT = 3
"""From this attempt on a missing handler is an issue: 70 s after the first, by the default schedule."""
UNHANDLED_TYPES_LIMIT = 1_000
"""Event types without a handler that a process remembers having logged: senders may invent new ones."""


@dataclass(eq=False, repr=False)
class Dispatcher:
    """Plans, attempts and notifications for one app, with any engine.

    `lists` says what other processes plan and claim. `sender` is the app, `context` enters its context,
    `client` makes `delivery.client` on demand.
    """

    handlers: ConnectedHandlers
    clock: Clock
    schedule: RetrySchedule
    _: KW_ONLY
    lists: NewestList
    sender: object
    context: Callable[[], AbstractContextManager[object]]
    jitter: float = 0.0
    client: Callable[[], BillingClient] | None = None

    def __post_init__(self) -> None:
        self._unhandled_types: set[str] = set()
        self.reading = Reading(self)
        self.report = partial(report, self.sender)
        """Log and signal what a transaction did, once it is committed."""
        self.startup_context = startup_context()
        """What the app has set of context variables, for each attempt."""

    @cached_property
    def limits(self) -> dict[str, HandlerLimits]:
        """The limits of handlers, by every name that their runs may be stored under.

        Only handlers with limits or aliases are in it. Read once: handlers are registered before the first
        delivery is handled.
        """
        return handler_limits(self.handlers)

    @cached_property
    def queues(self) -> dict[str, int]:
        """The event types that an ordered handler gets, numbered alike if they share one."""
        of_handlers: defaultdict[str, set[str]] = defaultdict(set)
        for event_type in EVENT_TYPES:
            for name, handler in self.handlers.by_name(event_type, unique=False).items():
                if handler.ordered_by is not None:
                    of_handlers[name].add(event_type)
        queues: list[set[str]] = []
        for types in of_handlers.values():
            apart = [queue for queue in queues if queue.isdisjoint(types)]
            queues = [*apart, types.union(*(queue for queue in queues if queue not in apart))]
        return {event_type: number for number, types in enumerate(queues) for event_type in types}

    def has_functions(self, event_type: str) -> bool:
        """Return whether planning the event type calls a function of the user's: see `newest_by`."""
        handlers = self.handlers.by_name(event_type, unique=False).values()
        return any(callable(handler.newest_by) for handler in handlers)

    def queue_of(self, event_type: str) -> int | None:
        """Return the number of the event type's queue, which is planned in the order of receipt.

        None if no ordered handler gets the type. A type that is still unread in the body is "": it may be any
        type, so it has a queue of its own if there is an ordered handler.
        """
        if not event_type:
            return -1 if self.queues else None
        return self.queues.get(event_type)

    def plan(self, received: Iterable[StoredDelivery]) -> list[PlannedDelivery]:
        """Plan one run for each handler of a delivery's event type, or its quarantine if it is unreadable."""
        planned = []
        connected: dict[str, list[Handler]] = {}
        for stored in received:
            read_here: str | None = None
            try:
                data = decode_body(stored.body)
                if stored.type_field is not None and not stored.event_type:
                    read_here = read_type(data, stored.type_field)
                    stored = stored._replace(event_type=read_here)
            except PayloadError as error:
                planned.append(quarantined(stored, error))
                continue
            every = connected.get(stored.event_type)
            if every is None:
                if (name := self.reading.names[stored.event_type]) is not None:
                    planned.append(self.reading.plan(stored, name, read_here))
                    continue
                every = connected[stored.event_type] = self.lists.connected(stored.event_type)
            try:
                planned.append(self._plan_event(stored, data, every, read_here))
            except MemoryError:  # says nothing about this delivery
                raise
            except Exception as error:
                if not isinstance(error, PayloadError):  # other deliveries go on
                    text = "the event model of %s raised; its delivery is quarantined"
                    extra = delivery_fields(stored, cause=error)
                    logger.exception(text, stored.event_type, extra=extra)
                planned.append(quarantined(stored, error, read_here))
        return planned

    def plan_reading(self, stored: StoredDelivery) -> PlannedDelivery:
        """Read a delivery's event and plan its runs. Raises PayloadError, or ModelFailed, which is one.

        Call it in a thread in which the user's code may run: it calls models and handlers' functions.
        """
        data, every = decode_body(stored.body), self.lists.connected(stored.event_type)
        with guarded(stored.event_type):
            return self._plan_event(stored, data, every, None)

    def _plan_event(
        self, stored: StoredDelivery, data: dict[str, Any], every: list[Handler], read_here: str | None
    ) -> PlannedDelivery:
        """Plan one run for each of these handlers that handles the delivery's source."""
        event = event_of(stored.event_type, data, as_named=stored.sent_as is not None)
        # Most handle all sources, and are not asked.
        handlers = [each for each in every if not each.sources or each.handles(stored.source)]
        options = {
            handler.name: run_options(handler, stored, event)
            for handler in handlers
            if handler.has_run_options
        }
        # `every`: a delivery whose only handlers are for other sources is not logged as unhandled. Once for a
        # type: blinker may have dropped a weakly connected receiver. Two threads may both log it once: not
        # worth a lock.
        logged = self._unhandled_types
        if not every and stored.event_type not in logged and len(logged) < UNHANDLED_TYPES_LIMIT:
            logged.add(stored.event_type)
            text = "no handler for %s: its deliveries are stored and finished without a run"
            logger.info(text, stored.event_type, extra=fields(event_type=stored.event_type))
        names = tuple([handler.name for handler in handlers])
        is_plain = names and not options and self.limits.keys().isdisjoint(names)
        claimable = stored if is_plain else None
        about = event.identifying_values() if isinstance(event, Event) and event.identify else ()
        plan = RunPlan(stored.delivery_id, names, None, options, claimable, about, read_here)
        return PlannedDelivery(plan, stored, event)

    def has_options(self, stored: StoredDelivery) -> bool:
        """Return whether a handler of the delivery has its runs in order, or knows content duplicates.

        For a delivery whose type is not read yet, return whether any handler does.
        """
        if stored.type_field is not None and not stored.event_type:
            handlers = self.handlers.every()
        else:
            handlers = [*self.handlers.by_name(stored.event_type, unique=False).values()]
        return any(handler.has_run_options and handler.handles(stored.source) for handler in handlers)

    def find_handler(self, claim: Claim) -> Handler | None:
        """Return the handler of a claimed run; None if there is none here, or more than one."""
        try:
            return self.handlers.find(claim.delivery.event_type, claim.handler)
        except DuplicateHandlerName as error:  # connected after the start, which would have refused it
            extra = delivery_fields(claim, cause=error)
            logger.error("%s", error, extra=extra)  # noqa: TRY400 - the text says it all
            return None

    def delivery_of(self, claim: Claim) -> Delivery:
        """Return the delivery of a claimed run, as a handler gets it."""
        stored = claim.delivery
        return Delivery(
            id=stored.delivery_id,
            key=stored.key,
            source=stored.source,
            event_type=stored.event_type,
            attempt=claim.attempt,
            received_at=stored.received_at,
            signed_at=stored.signed_at,
            body=stored.body,
            headers=StoredHeaders(stored.headers),
            make_client=self.client,
            variant=stored.variant,
            handler=claim.handler,
            replays=claim.replays,
        )

    def attempt(
        self,
        claim: Claim,
        event: Event | UnknownEvent | HandlerFailure | None = None,
        handler: Handler | None = None,
    ) -> AttemptResult:
        """Call the handler of a claimed run once, or read its delivery. Errors are part of the result.

        `event` and `handler` are given if the caller has them already, so that they are not read or looked up
        again. `event` may also be the error with which reading it failed.
        """
        if is_reading(claim.handler):
            return self.reading.attempt(claim)
        delivery = self.delivery_of(claim)
        # Not kept from the planning: plain receivers may have been connected or dropped since.
        handler = handler or self.find_handler(claim)
        duration_seconds: float | None = None
        missing = False
        attempts = 1 if claim.attempt == 1 else self._schedule_of(handler).attempts
        if claim.attempt - claim.uncounted > attempts:
            # The last attempt ended with its worker's death: calling again would end this worker too.
            error = RuntimeError(
                f"the worker died at the last of {attempts} attempts, "
                "or was silent for longer than BILLHOOK_LEASE_SECONDS: not called again"
            )
            # Of the issue that the lost attempts are.
            died = HandlerFailure.from_exception(error)
            group = died.group and died.group._replace(key=LOST)
            failure: HandlerFailure | None = replace(died, group=group)
        elif handler is None:
            # A failure and not the end: a process with newer code, or the next deployment, may have it. So it
            # is no issue at first, or each deployment would open one where old workers run beside new ones.
            missing, failure = True, HandlerFailure.from_exception(self._missing(claim))
            if claim.attempt < MISSING_ISSUE_ATTEMPT:
                failure = replace(failure, group=None)
        else:
            event = self.read_again(claim) if event is None else event
            if isinstance(event, HandlerFailure):
                failure = event
            else:
                facts = {"delivery": delivery, "handler": delivery.handler}
                if signals.handler_started.receivers:
                    signals.emit(signals.handler_started, self.sender, **facts)
                started = time.monotonic()
                failure = call(handler, self.sender, self.context, event, delivery)
                duration_seconds = time.monotonic() - started
                if signals.handler_ended.receivers:
                    facts |= {"error": failure.exception if failure else None, "duration": duration_seconds}
                    signals.emit(signals.handler_ended, self.sender, **facts)
        return self._result(claim, delivery, failure, handler, duration_seconds, missing=missing)

    def read_again(self, claim: Claim) -> Event | UnknownEvent | HandlerFailure:
        """Read the event of a run again; return it, or the error. Runs claimed as they are planned have it.

        The models may have changed since it was planned, and those of the user may raise anything.
        """
        try:
            if not is_own(claim.delivery.event_type):
                return parse(claim.delivery)
            with guarded(claim.delivery.event_type):
                return parse(claim.delivery)
        except BaseException as error:  # noqa: BLE001 - see above
            raised = error.__cause__ if isinstance(error, ModelFailed) and error.__cause__ else error
            return HandlerFailure.from_exception(raised)

    def _missing(self, claim: Claim) -> LookupError:
        name, event_type = claim.handler, claim.delivery.event_type
        if name in self.handlers.names(event_type):
            return LookupError(f"two handlers are named {name!r} here: give one of them another name=")
        text = f"no handler of {event_type} is named {name!r} here"
        return LookupError(f"{text}: {missing_remedy(name)}")

    def timed_out(
        self, claim: Claim, handler: Handler | None, seconds: float, *, in_model: bool = False
    ) -> AttemptResult:
        """Return the result of an attempt that is past its time-out and still running: failed.

        `in_model`: the handler was not called yet, because the event's model has not returned.
        """
        if is_reading(claim.handler):
            return self.reading.timed_out(claim, seconds)
        what = f"the event model of {claim.delivery.event_type}" if in_model else "the handler"
        error = TimeoutError(f"{what} did not return within {seconds:g} s")
        failure = HandlerFailure.from_exception(error)
        return self._result(claim, self.delivery_of(claim), failure, handler, seconds)

    def crashed(self, claim: Claim, error: BaseException) -> AttemptResult:
        """Return the result of an attempt that ended in an error of billhook's own, not the handler's."""
        if is_reading(claim.handler):
            return self.reading.crashed(claim, error)
        failure = HandlerFailure.from_exception(RuntimeError(type(error).__name__))
        return self._result(claim, self.delivery_of(claim), failure, None)

    def _schedule_of(self, handler: Handler | None) -> RetrySchedule:
        return (handler.retry if handler else None) or self.schedule

    def _result(
        self,
        claim: Claim,
        delivery: Delivery,
        failure: HandlerFailure | None,
        handler: Handler | None,
        duration_seconds: float | None = None,
        *,
        missing: bool = False,
    ) -> AttemptResult:
        now = self.clock.now()
        state, due_at = RunState.SUCCEEDED, None
        told: dict[str, Any] = {}
        put_off_to = None if failure is None else asked_time(failure.exception, now)
        if failure is not None and put_off_to is not None and claim.postponements >= MOST_POSTPONEMENTS:
            failure = HandlerFailure.from_exception(PutOffTooOften(claim.postponements))
            put_off_to = None
        if failure is not None and put_off_to is not None:
            state, due_at = RunState.DUE, put_off_to
            told = {"error": failure.error, "traceback": failure.traceback, "uncounted": True}
            told["not_before"] = put_off_to
        elif failure is not None:
            # One that does not count was ended by us, by a stop or a neighbour's crash: it costs no retry.
            # Nor does one where the handler was missing, which has the default schedule.
            number = claim.attempt if missing else claim.attempt - claim.uncounted
            schedule = self._schedule_of(handler)
            wait_seconds = retry_after(failure.exception, number, schedule, jitter=self.jitter)
            # Of the last attempt too: a Discard is a decision, and no failure.
            if isinstance(failure.exception, Discard):
                state = RunState.DISCARDED
            elif wait_seconds is None:
                state = RunState.DEAD
            else:
                state, due_at = RunState.DUE, now + timedelta(seconds=wait_seconds)
            told = {"error": failure.error, "traceback": failure.traceback}
            told["uncounted"] = missing and state is RunState.DUE
            if failure.group is not None:
                told |= {"group": failure.group.key, "place": failure.group.place}
        result = claim.ended(state, now, due_at=due_at, duration_seconds=duration_seconds, **told)
        return AttemptResult(result, delivery, failure)


def asked_time(error: BaseException, now: datetime) -> datetime | None:
    """Return the time to which a handler postpones its run by `Retry(at=…)`, in 31 days at most; or None."""
    at = getattr(error, "at", None) if isinstance(error, Retry) else None
    # A subclass of Retry may set it to any value, or not at all.
    if not isinstance(at, datetime) or at.utcoffset() is None:
        return None
    return min(max(at, now), now + LONGEST_POSTPONEMENT).astimezone(UTC)


def run_options(handler: Handler, stored: StoredDelivery, event: Event | UnknownEvent) -> RunOptions:
    """Return the order key and the content key of a handler's run for an event."""
    digest = handler.content_digest(stored.source, event)
    content_key = None
    if digest is not None:
        window_seconds = handler.identity_window_seconds
        content_key = ContentKey(digest, handler.identity, stored.received_at, window_seconds)
    order_key = handler.order_key(stored.source, event)
    newest_key = None if order_key is None else handler.newest_key(event)
    return RunOptions(order_key, content_key, handler.newest_only, newest_key)


def parse(stored: StoredDelivery) -> Event | UnknownEvent:
    """Return the event of a delivery. Raises PayloadError, and what a model of the user's raises."""
    return parse_event(stored.event_type, stored.body, as_named=stored.sent_as is not None)


def handler_limits(handlers: ConnectedHandlers) -> dict[str, HandlerLimits]:
    """Return the limits of the handlers that have limits or aliases: see Dispatcher.limits."""
    limits: dict[str, HandlerLimits] = {}
    every = handlers.every()
    own_names = {handler.name for handler in every}
    for handler in every:
        if handler.is_limited or handler.aliases:
            # A name before an alias, as when the handler of a run is looked up.
            names = (handler.name, *(name for name in handler.aliases if name not in own_names))
            these = HandlerLimits(names, handler.at_most, handler.rate, handler.pause_after)
            limits = dict.fromkeys(names, these) | limits | {handler.name: these}
    return limits
