"""What an engine found out, and telling it: to the log, and to whoever observes the lifecycle signals."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from billhook import signals
from billhook.dispatch import Delivery, Failed
from billhook.events import Event, UnknownEvent
from billhook.inbox import Outcome, Plan, RunState, Stored, Twin
from billhook.printable import first_line

__all__ = ["Planned", "Report", "announce", "announce_quarantined", "announce_twins"]

logger = logging.getLogger("billhook.engines")


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the event it was made from, so that the claim that follows need not parse again."""

    plan: Plan
    stored: Stored
    event: Event | UnknownEvent | None


@dataclass(frozen=True, slots=True)
class Report:
    """One attempt: what to settle, and what to tell observers once it is settled."""

    outcome: Outcome
    delivery: Delivery
    handler: str
    failed: Failed | None


def announce(sender: object, reports: Sequence[Report], settled: set[tuple[int, int]]) -> None:
    """How attempts ended, of those whose (run id, token) is settled; one that lost its lease has no say."""
    for report in reports:
        outcome, failed = report.outcome, report.failed
        facts = {"delivery": report.delivery, "handler": report.handler}
        if (outcome.run_id, outcome.token) not in settled:
            logger.warning("run %d of %s lost its lease; not settled", outcome.run_id, report.handler)
        elif failed is None or outcome.state is RunState.DISCARDED:
            signals.emit(signals.handler_succeeded, sender, **facts)
        elif outcome.state is RunState.DUE:
            logger.warning(
                "%s failed on delivery %d, attempt %d, again at %s: %s",
                report.handler,
                outcome.delivery_id,
                outcome.attempt,
                outcome.due_at,
                first_line(failed.error),
            )
            facts |= {"error": failed.exception, "due_at": outcome.due_at}
            signals.emit(signals.handler_retrying, sender, **facts)
        else:
            logger.error(
                "%s is dead on delivery %d after attempt %d: %s",
                report.handler,
                outcome.delivery_id,
                outcome.attempt,
                first_line(failed.error),
            )
            signals.emit(signals.handler_dead, sender, error=failed.exception, **facts)


def announce_quarantined(sender: object, planned: Sequence[Planned], won: Sequence[int]) -> None:
    """Which deliveries were set aside, of those that this engine was the one to plan."""
    for one in planned:
        if one.plan.error is not None and one.stored.delivery_id in won:
            logger.error(
                "delivery %d (%s) is quarantined: %s",
                one.stored.delivery_id,
                one.stored.event_type,
                first_line(json.loads(one.plan.error)["error"]),
            )
            signals.emit(
                signals.delivery_quarantined,
                sender,
                delivery_id=one.stored.delivery_id,
                event_type=one.stored.event_type,
                error=one.plan.error,
            )


def announce_twins(sender: object, planned: Sequence[Planned], twins: Sequence[Twin]) -> None:
    """Which runs were discarded as they were planned, because their handler had the like already."""
    types = {one.stored.delivery_id: one.stored.event_type for one in planned}
    for twin in twins:
        logger.info(
            "delivery %d is a twin of delivery %d, and %s is not called",
            twin.delivery_id,
            twin.twin_of,
            twin.handler,
        )
        signals.emit(
            signals.delivery_twin,
            sender,
            delivery_id=twin.delivery_id,
            event_type=types[twin.delivery_id],
            handler=twin.handler,
            twin_of=twin.twin_of,
        )
