"""The status of a delivery as operators see it: its state and, while it is planned, that of its runs."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import ColumnElement, and_, exists, or_, select

from billhook.inbox.schema import delivery, run
from billhook.inbox.sql import in_states
from billhook.inbox.states import DeliveryState, RunState

__all__ = ["DeliveryStatus", "delivery_status", "has_status"]


class DeliveryStatus(StrEnum):
    """The status of a delivery; `waiting`, `running` and `retrying` are stored as `planned`."""

    RECEIVED = "received"  # stored, not yet read
    WAITING = "waiting"  # its runs have not started, or wait in their order
    RUNNING = "running"  # a handler is at work, and none has failed
    RETRYING = "retrying"  # a handler failed and will be called again
    DONE = "done"
    DEAD = "dead"
    QUARANTINED = "quarantined"
    PRUNED = "pruned"


# In the words of the partial index too, or the whole table is walked.
_OPEN_RUN = in_states(run.c.state, RunState.DUE, RunState.RUNNING)
_RETRYING = and_(run.c.state == RunState.DUE.value, run.c.attempts > 0)
_RUNNING = run.c.state == RunState.RUNNING.value


def delivery_status(state: str, runs: Iterable[tuple[str, int]]) -> DeliveryStatus:
    """Return the status of a delivery in this stored state, whose runs have these states and attempts."""
    if state != DeliveryState.PLANNED:
        return DeliveryStatus(state)
    known = list(runs)
    if any(of_run == RunState.DUE and attempts > 0 for of_run, attempts in known):
        return DeliveryStatus.RETRYING
    return (
        DeliveryStatus.RUNNING
        if any(of_run == RunState.RUNNING for of_run, _ in known)
        else DeliveryStatus.WAITING
    )


def has_status(name: str) -> list[ColumnElement[bool]]:
    """Return SQL conditions for this status, or the state `planned`. ValueError for other names."""
    if name not in (*DeliveryStatus, DeliveryState.PLANNED):
        raise ValueError(name)
    if name not in (
        DeliveryState.PLANNED,
        DeliveryStatus.WAITING,
        DeliveryStatus.RUNNING,
        DeliveryStatus.RETRYING,
    ):
        return [delivery.c.state == name]
    planned = [
        in_states(delivery.c.state, DeliveryState.RECEIVED, DeliveryState.PLANNED),
        delivery.c.state == DeliveryState.PLANNED.value,
    ]
    if name == DeliveryState.PLANNED:
        return planned
    own = run.c.delivery_id == delivery.c.id
    if name == DeliveryStatus.WAITING:
        return [*planned, ~exists().where(own, or_(_RETRYING, _RUNNING))]
    # By the open runs, not by the deliveries: of a long queue few fail.
    which = _RETRYING if name == DeliveryStatus.RETRYING else _RUNNING
    found = [*planned, delivery.c.id.in_(select(run.c.delivery_id).where(_OPEN_RUN, which))]
    return found if name == DeliveryStatus.RETRYING else [*found, ~exists().where(own, _RETRYING)]
