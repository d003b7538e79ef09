"""The body of every engine's loop: read what came, call who must handle it, say how that ended.

No thread, no loop and no SQL here: `plan` and `attempt` decide, the engine writes it to the inbox.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial

from billhook.clock import Clock
from billhook.dispatch import (
    Decision,
    Delivery,
    Failed,
    Headers,
    RetrySchedule,
    Subscriber,
    Subscribers,
    call,
    decide,
)
from billhook.engines.forked import in_one_process
from billhook.engines.reports import Planned, Report, announce, announce_quarantined, announce_twins
from billhook.engines.terms import terms_of
from billhook.errors import DuplicateHandlerName, PayloadError
from billhook.events import Event, UnknownEvent, parse_event
from billhook.inbox import Claim, Outcome, Plan, RunState, Stored, Twin

__all__ = ["Cycle"]

logger = logging.getLogger("billhook.engines")

_MOST_UNHEARD = 1_000
"""Of so many types a process remembers that it said that nobody handles them: senders make up new ones."""


class Cycle:
    """One app's side of the loop. `sender` is the app, `context` pushes its app context."""

    def __init__(
        self,
        subscribers: Subscribers,
        clock: Clock,
        schedule: RetrySchedule,
        *,
        sender: object,
        context: Callable[[], AbstractContextManager[object]],
        client: Callable[[], object] | None = None,
    ) -> None:
        """`client` gives what handlers find as `delivery.client`; it is called when one asks for that."""
        self.clock = clock
        self._subscribers = subscribers
        self._schedule = schedule
        self._sender = sender
        self._context = context
        self._client = client
        self._unheard: set[str] = set()

    def count_handlers(self) -> int:
        """Return how many handlers there are now: plain subscribers may come and go."""
        return self._subscribers.count()

    def plan(self, received: Iterable[Stored]) -> list[Planned]:
        """One run per subscriber of the event's signal; a body that is not its type is set aside."""
        planned = []
        for stored in received:
            every = self._subscribers.each(stored.event_type)
            subscribers = [one for one in every if one.handles(stored.source)]
            try:
                event = _read(stored)
                terms = {one.name: terms_of(one, stored, event) for one in subscribers if one.has_terms}
            except Exception as error:
                details = error.details if isinstance(error, PayloadError) else []
                if not isinstance(error, PayloadError):  # a user's own event model; it must not stop the rest
                    logger.exception("the model of %s failed", stored.event_type)
                reason = json.dumps({"error": str(error), "details": details})
                planned.append(Planned(Plan(stored.delivery_id, error=reason), stored, None))
            else:
                if not every:
                    self._note_unheard(stored.event_type)
                names = tuple(one.name for one in subscribers)
                planned.append(Planned(Plan(stored.delivery_id, names, terms=terms), stored, event))
        return planned

    def _note_unheard(self, event_type: str) -> None:
        """Say once that nobody listens: it may be meant, or a subscriber that blinker let go of."""
        if event_type not in self._unheard and len(self._unheard) < _MOST_UNHEARD:
            self._unheard.add(event_type)
            logger.info("nobody handles %s: its deliveries are stored, and done", event_type)

    def attempt(self, claim: Claim, event: Event | UnknownEvent | None = None) -> Report:
        """Call the handler of a claimed run, whatever comes of it."""
        delivery = _delivery(claim, self._client)
        subscriber = self._subscriber(claim)
        schedule = (subscriber.retry if subscriber else None) or self._schedule
        failed: Failed | None
        if claim.attempt - claim.excused > schedule.attempts:
            # It took its worker along at the last attempt: calling again would take this one too.
            failed = Failed.by(
                RuntimeError(
                    f"the worker died at the last of {schedule.attempts} attempts, "
                    "or was silent for longer than its lease: not called again"
                )
            )
        elif subscriber is None:
            failed = Failed.by(LookupError(f"there is not one handler named {claim.handler!r} here"))
        else:
            failed = self._call(subscriber, claim.delivery, delivery, event)
        return self._report(claim, delivery, failed, schedule)

    def overdue(self, claim: Claim, seconds: float) -> Report:
        """The report of an attempt that is still running after its time: given up, and failed."""
        subscriber = self._subscriber(claim)
        schedule = (subscriber.retry if subscriber else None) or self._schedule
        failed = Failed.by(TimeoutError(f"the handler did not return within {seconds:g} s"))
        return self._report(claim, _delivery(claim), failed, schedule)

    def broken(self, claim: Claim, error: BaseException) -> Report:
        """The report of an attempt that ended in an error which is not the handler's."""
        return self._report(
            claim, _delivery(claim), Failed.by(RuntimeError(type(error).__name__)), self._schedule
        )

    def cut_off(self, claim: Claim, due_at: datetime) -> Outcome:
        """How an attempt ends that runs still when its process must end in order: due again, excused."""
        return Outcome(
            run_id=claim.run_id,
            token=claim.token,
            delivery_id=claim.delivery.delivery_id,
            attempt=claim.attempt,
            state=RunState.DUE,
            at=self.clock.now(),
            due_at=due_at,
            error="the worker was stopped, and the handler did not return within the grace",
            excused=True,
        )

    def timeout_seconds(self, claim: Claim) -> float | None:
        """How long the claimed handler may run."""
        subscriber = self._subscriber(claim)
        return subscriber.timeout_seconds if subscriber else None

    def _subscriber(self, claim: Claim) -> Subscriber | None:
        try:
            return self._subscribers.find(claim.delivery.event_type, claim.handler)
        except DuplicateHandlerName as error:  # connected after the start, where it would have been refused
            logger.error("%s", error)  # noqa: TRY400 - says it all
            return None

    def _call(
        self, subscriber: Subscriber, stored: Stored, delivery: Delivery, event: Event | UnknownEvent | None
    ) -> Failed | None:
        try:
            event = _read(stored) if event is None else event
        except Exception as error:  # noqa: BLE001 - readable when it was planned: the models changed since
            return Failed.by(error)
        context = partial(in_one_process, self._context)
        return call(subscriber, self._sender, context, event, delivery)

    def _report(
        self, claim: Claim, delivery: Delivery, failed: Failed | None, schedule: RetrySchedule
    ) -> Report:
        now = self.clock.now()
        decision = decide(failed.exception, claim.attempt - claim.excused, schedule) if failed else None
        due_at = None
        if decision is not None and decision.retry_after_seconds is not None:
            due_at = now + timedelta(seconds=decision.retry_after_seconds)
        outcome = Outcome(
            run_id=claim.run_id,
            token=claim.token,
            delivery_id=claim.delivery.delivery_id,
            attempt=claim.attempt,
            state=_state(decision),
            at=now,
            due_at=due_at,
            error=failed.error if failed else None,
            traceback=failed.traceback if failed else None,
        )
        return Report(outcome, delivery, claim.handler, failed)

    def announce(self, reports: Sequence[Report], settled: set[tuple[int, int]]) -> None:
        """Tell observers and the log how attempts ended, once that is committed: by (run id, token)."""
        announce(self._sender, reports, settled)

    def announce_quarantined(self, planned: Sequence[Planned], won: Sequence[int]) -> None:
        """Tell observers and the log of deliveries that were set aside, once that is committed."""
        announce_quarantined(self._sender, planned, won)

    def announce_twins(self, planned: Sequence[Planned], twins: Sequence[Twin]) -> None:
        """Tell observers and the log of deliveries that came again, once that is committed."""
        announce_twins(self._sender, planned, twins)


def _read(stored: Stored) -> Event | UnknownEvent:
    return parse_event(stored.event_type, stored.body, as_named=stored.sent_as is not None)


def _state(decision: Decision | None) -> RunState:
    if decision is None:
        return RunState.SUCCEEDED
    if decision.discarded:
        return RunState.DISCARDED
    return RunState.DEAD if decision.dead else RunState.DUE


def _delivery(claim: Claim, client: Callable[[], object] | None = None) -> Delivery:
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
        headers=_headers(stored.headers),
        make_client=client,
        slot=stored.slot,
    )


def _headers(text: str) -> Headers:
    return Headers({name.replace("_", "-").title(): value for name, value in json.loads(text).items()})
