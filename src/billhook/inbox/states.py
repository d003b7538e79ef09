"""The states of deliveries and runs, and the allowed steps between them.

`check` raises for an illegal step where an operator's action, or retention, has read the state before it from
a row. Statements whose two states are constants are covered by the test of the tables.

delivery   received ──► planned ──► done            run   waiting ──► due ◄──► running ──► succeeded
              │  ▲        ▲ │                                 ▲        ▲          ├──────► discarded
              │  │        │ └─────► dead                      │        │          └──────► dead
              │  └ replay └ replay ─┘                         └ replay ┴ replay (from any finished state)
              ├──► quarantined
              └──► done (no handler)           done, dead, quarantined ──► pruned, erased

An operator's discard: any delivery that is not done or pruned ──► done, and any run of it that has not
succeeded ──► discarded.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from billhook.errors import IllegalTransition


class DeliveryState(StrEnum):
    """State of a delivery."""

    RECEIVED = "received"  # stored, not yet read
    PLANNED = "planned"  # read; its runs are under way
    DONE = "done"  # every handler succeeded, discarded, or none listens
    DEAD = "dead"  # every handler finished, at least one of them dead
    QUARANTINED = "quarantined"  # authentic, but not readable as its type
    PRUNED = "pruned"  # body and runs are gone; the key still identifies a duplicate
    ERASED = "erased"  # an operator removed all content; the key still identifies a duplicate


class RunState(StrEnum):
    """State of a run, the execution of one handler for one delivery."""

    WAITING = "waiting"  # ordered: due when the run before it is finished
    DUE = "due"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DISCARDED = "discarded"
    DEAD = "dead"


_EMPTY = (DeliveryState.PRUNED, DeliveryState.ERASED)
DELIVERY_STEPS: dict[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.RECEIVED: frozenset({DeliveryState.PLANNED, DeliveryState.DONE, DeliveryState.QUARANTINED}),
    DeliveryState.PLANNED: frozenset({DeliveryState.DONE, DeliveryState.DEAD}),
    DeliveryState.DONE: frozenset({DeliveryState.RECEIVED, DeliveryState.PLANNED, *_EMPTY}),
    DeliveryState.DEAD: frozenset(
        {DeliveryState.RECEIVED, DeliveryState.PLANNED, DeliveryState.DONE, *_EMPTY}
    ),
    DeliveryState.QUARANTINED: frozenset({DeliveryState.RECEIVED, DeliveryState.DONE, *_EMPTY}),
    DeliveryState.PRUNED: frozenset(),
    DeliveryState.ERASED: frozenset(),
}

RUN_STEPS: dict[RunState, frozenset[RunState]] = {
    RunState.WAITING: frozenset({RunState.DUE, RunState.DISCARDED}),
    RunState.DUE: frozenset({RunState.RUNNING, RunState.DISCARDED}),
    # RUNNING again: the lease ran out, and another worker claimed it.
    RunState.RUNNING: frozenset(set(RunState) - {RunState.WAITING}),
    RunState.SUCCEEDED: frozenset({RunState.WAITING, RunState.DUE}),
    RunState.DISCARDED: frozenset({RunState.WAITING, RunState.DUE}),
    RunState.DEAD: frozenset({RunState.WAITING, RunState.DUE, RunState.DISCARDED}),
}


def check(before: DeliveryState | RunState, after: DeliveryState | RunState) -> None:
    """Raise IllegalTransition unless the tables above allow the step."""
    if isinstance(before, DeliveryState) and isinstance(after, DeliveryState):
        allowed, kind = after in DELIVERY_STEPS[before], "delivery"
    elif isinstance(before, RunState) and isinstance(after, RunState):
        allowed, kind = after in RUN_STEPS[before], "run"
    else:
        allowed, kind = False, "row"
    if not allowed:
        raise IllegalTransition(kind, before.value, after.value)


# --- as operators see it ------------------------------------------------------------------------------


class DeliveryStatus(StrEnum):
    """The status of a delivery; `waiting` to `retrying` are stored as `planned`."""

    RECEIVED = "received"  # stored, not yet read
    WAITING = "waiting"  # its runs have not started, or wait in their order
    PAUSED = "paused"  # a handler of it is paused, and has it still before it
    RUNNING = "running"  # a handler is at work, and none has failed
    RETRYING = "retrying"  # a handler failed and will be called again
    DONE = "done"
    DEAD = "dead"
    QUARANTINED = "quarantined"
    PRUNED = "pruned"
    ERASED = "erased"


def delivery_status(state: str, runs: Iterable[tuple[str, int]]) -> DeliveryStatus:
    """Return the status of a delivery in this stored state, whose runs have these states and attempts.

    The state of a run that waits because its handler is paused is "paused".
    """
    if state != DeliveryState.PLANNED:
        return DeliveryStatus(state)
    known = list(runs)
    if any(of_run == DeliveryStatus.PAUSED for of_run, _ in known):
        return DeliveryStatus.PAUSED
    if any(of_run == RunState.DUE and attempts > 0 for of_run, attempts in known):
        return DeliveryStatus.RETRYING
    return (
        DeliveryStatus.RUNNING
        if any(of_run == RunState.RUNNING for of_run, _ in known)
        else DeliveryStatus.WAITING
    )
