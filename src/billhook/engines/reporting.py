"""Log and signal what an engine's transaction did, once it is committed.

It waits for the commit because observers must not be notified of what might still be rolled back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Unpack

from billhook import signals
from billhook.basics.printable import first_line
from billhook.basics.type_names import is_reading
from billhook.clock import format_ago, format_time
from billhook.errors import BillhookError
from billhook.errors.program import in_program
from billhook.events import Event, UnknownEvent
from billhook.handlers import Delivery, HandlerFailure
from billhook.inbox import Claim, Inbox, InboxTransaction, RunPlan, RunResult, RunState, StoredDelivery
from billhook.inbox.tables.records import UNSTORABLE_ERROR
from billhook.logs import EscapedTracebacks, Fields, fields

logger = logging.getLogger("billhook.engines")
logger.addFilter(EscapedTracebacks())


class PlannedDelivery(NamedTuple):
    """A plan and the event that it was made from, so that the claim that follows need not parse it again."""

    plan: RunPlan
    stored: StoredDelivery
    event: Event | UnknownEvent | None


class AttemptResult(NamedTuple):
    """One attempt: the result to settle, and what observers get once that is committed.

    `planned` is what a reading has found: its run is deleted, and the plan written instead. One without is
    tried again, `alone` if so. See billhook.engines.reading.
    """

    run_result: RunResult
    delivery: Delivery
    failure: HandlerFailure | None
    planned: PlannedDelivery | None = None
    alone: bool = False

    def without_texts(self) -> AttemptResult:
        """Return the result with none of its error's words, which the database refuses."""
        if self.planned is None:
            return self._replace(run_result=self.run_result.without_texts())
        reason = json.dumps({"error": UNSTORABLE_ERROR, "details": []})
        plan = RunPlan(self.planned.plan.delivery_id, error=reason)
        return self._replace(planned=self.planned._replace(plan=plan, event=None))


def report(
    sender: object,
    transaction: InboxTransaction,
    attempts: Sequence[AttemptResult],
    settled: Collection[tuple[int, int]],
    planned: Sequence[PlannedDelivery] = (),
    planned_here: Collection[int] = (),
) -> None:
    """Log and signal what a transaction did to the runs of one app, once it is committed.

    `sender` is the app, which each signal names as its sender. `settled` are the (run id, fencing token)
    pairs whose lease still held, `planned_here` the ids of the deliveries that this engine was the one to
    plan.
    """
    for attempt in attempts:
        # A lost lease means that another worker has the run, or that an operator discarded it.
        if attempt.run_result.lease in settled:
            if is_reading(attempt.delivery.handler):
                _report_reading(attempt)
            else:
                _report_attempt(sender, attempt)
        else:
            text = "run %d of handler %s is no longer this worker's: its result is not stored"
            delivery, run_id = attempt.delivery, attempt.run_result.lease.run_id
            logger.warning(text, run_id, delivery.handler, extra=delivery_fields(delivery))
    stored = {each.stored.delivery_id: each.stored for each in planned}
    for plan, unread, _ in planned:
        delivery_id = unread.delivery_id
        if plan.error is not None and delivery_id in planned_here:
            text, why = "delivery %d (%s) is quarantined: %s", first_line(json.loads(plan.error)["error"])
            event_type, extra = unread.event_type, delivery_fields(unread, cause="quarantined")
            logger.error(text, delivery_id, event_type or "no type", why, extra=extra)
            facts = {"delivery_id": delivery_id, "event_type": event_type, "error": plan.error}
            signals.emit(signals.delivery_quarantined, sender, **facts)
    for delivery_id, handler, first in transaction.duplicates:
        text = "delivery %d is a content duplicate of delivery %d: handler %s not called"
        extra = delivery_fields(stored[delivery_id], handler=handler, cause="twin")
        logger.info(text, delivery_id, first, handler, extra=extra)
        facts = {"event_type": stored[delivery_id].event_type, "handler": handler, "twin_of": first}
        signals.emit(signals.delivery_twin, sender, delivery_id=delivery_id, **facts)
    for delivery_id, handler, newer in transaction.superseded:
        text = "delivery %d is superseded by delivery %d: handler %s not called"
        extra = fields(delivery_id=delivery_id, handler=handler, cause="superseded")
        logger.info(text, delivery_id, newer, handler, extra=extra)
    for stopped in transaction.paused:
        text = "handler %s paused: %s; its deliveries wait for %s"
        hint = in_program(f"`billhook handlers resume {stopped.name}`")
        why = first_line(stopped.why or "")
        logger.error(text, stopped.name, why, hint, extra=fields(handler=stopped.name, cause="failures"))
        signals.emit(signals.handler_paused, sender, handler=stopped.name, why=stopped.why)


def _report_attempt(sender: object, attempt: AttemptResult) -> None:
    result, failure = attempt.run_result, attempt.failure
    delivery, handler = attempt.delivery, attempt.delivery.handler
    facts: dict[str, Any] = {"delivery": delivery, "handler": handler}
    if failure is None or result.state is RunState.DISCARDED:
        if signals.handler_succeeded.receivers:
            signals.emit(signals.handler_succeeded, sender, **facts)
        return
    facts["error"] = error = failure.exception
    about, why = (handler, result.delivery_id), first_line(failure.error)
    extra = delivery_fields(delivery, cause=error, duration=result.duration_seconds)
    if result.state is RunState.DUE:
        moment = _moment(result.due_at, result.at)
        if result.not_before is not None:
            logger.info("handler %s put delivery %d off, again %s: %s", *about, moment, why, extra=extra)
        else:
            text = "handler %s failed on delivery %d (attempt %d), retrying %s: %s"
            logger.warning(text, *about, result.attempt, moment, why, extra=extra)
        signals.emit(signals.handler_retrying, sender, due_at=result.due_at, **facts)
    else:
        text = "run of handler %s on delivery %d is dead after attempt %d: %s"
        # Only here, not at each attempt before: an error tracker opens an issue for each traceback.
        logger.error(text, *about, result.attempt, why, exc_info=failure.exc_info, extra=extra)
        signals.emit(signals.handler_dead, sender, **facts)


def _report_reading(attempt: AttemptResult) -> None:
    """Log why a delivery is read again. If it has been read, its plan is reported, not the reading."""
    result, failure, delivery = attempt.run_result, attempt.failure, attempt.delivery
    if failure is None:
        return
    text = "delivery %d (%s) could not be read (attempt %d), again %s: %s"
    moment, why = _moment(result.due_at, result.at), first_line(result.error or failure.error)
    extra = delivery_fields(delivery, cause=failure.exception.__cause__ or failure.exception)
    logger.warning(text, result.delivery_id, delivery.event_type, result.attempt, moment, why, extra=extra)


def delivery_fields(about: Delivery | StoredDelivery | Claim, **more: Unpack[Fields]) -> dict[str, object]:
    """Return the `extra` of a log record about a delivery or an attempt, as `billhook.logs.fields` does."""
    delivery = about.delivery if isinstance(about, Claim) else about
    more |= {"source": delivery.source, "key": delivery.key, "event_type": delivery.event_type}
    if not isinstance(about, StoredDelivery):
        more |= {"handler": about.handler, "attempt": about.attempt}
    more["delivery_id"] = delivery.id if isinstance(delivery, Delivery) else delivery.delivery_id
    return fields(**more)


def _moment(due_at: datetime | None, now: datetime) -> str:
    return "" if due_at is None else f"{format_ago(due_at, now)} (at {format_time(due_at)} UTC)"


def log_row_security(inbox: Inbox) -> None:
    """Log what row security keeps this role from: the database says nothing when it skips a statement."""
    if refused := inbox.database.row_security().text:
        text = (
            "row security has no policy for this role for %s: what was received may never be handled, or "
            "never deleted; run %s"
        )
        logger.error(text, refused, in_program("`billhook doctor`"), extra=fields(cause="row-security"))


def log_paused(inbox: Inbox, sender: object) -> None:
    """Log which handlers are paused, when a worker starts: their deliveries wait, and that is on purpose."""
    try:
        paused = inbox.paused_handlers()
    except BillhookError:  # the worker's polls will log why
        return
    for handler in paused:
        why = f" ({first_line(handler.why)})" if handler.why else ""
        text = "handler %s has been paused since %s%s; its deliveries wait for %s"
        hint = in_program(f"`billhook handlers resume {handler.name}`")
        since = handler.since.isoformat()
        logger.warning(text, handler.name, since, why, hint, extra=fields(handler=handler.name))
