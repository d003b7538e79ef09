"""What people are told of a delivery: its state and, while it is planned, how its runs fare."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from sqlalchemy import ColumnElement, and_, exists, or_, select

from billhook.inbox.clauses import in_state
from billhook.inbox.schema import delivery, run
from billhook.inbox.states import DeliveryState, RunState

__all__ = ["Standing", "in_standing", "standing"]


class Standing(StrEnum):
    """How a delivery fares; `waiting`, `running` and `retrying` are the stored state `planned`."""

    RECEIVED = "received"  # stored, not yet read
    WAITING = "waiting"  # its handlers have not begun, or wait for their turn
    RUNNING = "running"  # a handler is at work, and none has failed
    RETRYING = "retrying"  # a handler failed and will be called again
    DONE = "done"
    DEAD = "dead"
    QUARANTINED = "quarantined"
    PRUNED = "pruned"


# What a partial index says must be said in its own words too, or the whole table is walked.
_OPEN_RUN = in_state(run.c.state, RunState.DUE, RunState.RUNNING)
_RETRYING = and_(run.c.state == RunState.DUE.value, run.c.attempts > 0)
_RUNNING = run.c.state == RunState.RUNNING.value


def standing(state: str, runs: Iterable[tuple[str, int]]) -> Standing:
    """How a delivery in this stored state fares whose runs have these states and numbers of attempts."""
    if state != DeliveryState.PLANNED:
        return Standing(state)
    known = list(runs)
    if any(of_run == RunState.DUE and attempts > 0 for of_run, attempts in known):
        return Standing.RETRYING
    return Standing.RUNNING if any(of_run == RunState.RUNNING for of_run, _ in known) else Standing.WAITING


def in_standing(name: str) -> list[ColumnElement[bool]]:
    """As SQL, over `delivery`: in this standing, or in the stored state `planned`. ValueError for others."""
    if name not in (*Standing, DeliveryState.PLANNED):
        raise ValueError(name)
    if name not in (DeliveryState.PLANNED, Standing.WAITING, Standing.RUNNING, Standing.RETRYING):
        return [delivery.c.state == name]
    planned = [
        in_state(delivery.c.state, DeliveryState.RECEIVED, DeliveryState.PLANNED),
        delivery.c.state == DeliveryState.PLANNED.value,
    ]
    if name == DeliveryState.PLANNED:
        return planned
    own = run.c.delivery_id == delivery.c.id
    if name == Standing.WAITING:
        return [*planned, ~exists().where(own, or_(_RETRYING, _RUNNING))]
    # By the runs that are under way, not by the deliveries: of a long queue few fail.
    which = _RETRYING if name == Standing.RETRYING else _RUNNING
    found = [*planned, delivery.c.id.in_(select(run.c.delivery_id).where(_OPEN_RUN, which))]
    return found if name == Standing.RETRYING else [*found, ~exists().where(own, _RETRYING)]
