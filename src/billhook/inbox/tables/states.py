"""The states of deliveries and runs, and the allowed steps between them:

delivery   received ──► planned ──► done            run   waiting ──► due ◄──► running ──► succeeded
              │  ▲        ▲ │ │                               ▲        ▲          ├──────► discarded
              │  │        │ │ └───► dead                      │        │          └──────► dead
              │  └ replay └ replay ─┘                         └ replay ┴ replay (from any finished state)
              ├──► quarantined ◄──┘ (by a reading)
              └──► done (no handler)           done, dead, quarantined ──► pruned, erased

A run that reads a delivery of a type of the user's own has no finished state: it is deleted when it ends, and
the same transaction plans the runs of the handlers, or quarantines the delivery (billhook.engines.reading).

An operator's discard: any delivery that is not done or pruned ──► done, and any run of it that has not
succeeded ──► discarded. A run that another handler takes over begins again as a first one, in whichever state
it was but running: due, waiting, or discarded as a content duplicate.

A handler that needs the newest only has those discarded that wait or are due before it; a content duplicate
is discarded as it is planned. Marks, each a column, say more of a run that is running or due again:

             queued              runs_alone: a suspect           beside_others: of a suspect
running      waits for a         the attempt before was lost     others run beside it, because
             thread              with its worker                 it takes long
due again    was lost in the     is claimed beside nothing       was lost beside others: it is
             worker's queue                                      claimed after other suspects

A claim sets or clears `queued` and clears `beside_others`; the end of its lease sets `runs_alone`, unless the
run was queued. A result, a release, a replay and a discard clear `queued` and `beside_others`; a result and a
replay clear `runs_alone`. That a handler is paused is in its own row.
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
    DeliveryState.PLANNED: frozenset({DeliveryState.DONE, DeliveryState.DEAD, DeliveryState.QUARANTINED}),
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
    """Raise IllegalTransition unless the tables above allow the step.

    Called where an operator's action, or retention, has read the state before it from a row. Statements whose
    two states are constants are covered by the test of the tables.
    """
    if isinstance(before, DeliveryState) and isinstance(after, DeliveryState):
        allowed, kind = after in DELIVERY_STEPS[before], "delivery"
    elif isinstance(before, RunState) and isinstance(after, RunState):
        allowed, kind = after in RUN_STEPS[before], "run"
    else:
        allowed, kind = False, "row"
    if not allowed:
        raise IllegalTransition(kind, before.value, after.value)


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


def delivery_status(state: str, runs: Iterable[str]) -> DeliveryStatus:
    """Return the status of a delivery in this stored state, whose runs stand so.

    A run that waits because its handler is paused is "paused", one that failed and waits "retrying".
    """
    if state != DeliveryState.PLANNED:
        return DeliveryStatus(state)
    found = {*runs}
    decisive = (DeliveryStatus.PAUSED, DeliveryStatus.RETRYING, DeliveryStatus.RUNNING)
    return next((status for status in decisive if status in found), DeliveryStatus.WAITING)
