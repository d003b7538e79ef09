"""What may follow what, over every pair of states."""

from __future__ import annotations

from itertools import product

import pytest

from billhook.errors import IllegalTransition
from billhook.inbox import DeliveryState, RunState
from billhook.inbox.tables.states import check

LEGAL = {
    ("received", "planned"),
    ("received", "done"),
    ("received", "quarantined"),
    ("planned", "done"),
    ("planned", "dead"),
    ("planned", "quarantined"),
    ("done", "received"),
    ("done", "planned"),
    ("dead", "received"),
    ("dead", "planned"),
    ("quarantined", "received"),
    ("dead", "done"),
    ("quarantined", "done"),
    *product(("done", "dead", "quarantined"), ("pruned", "erased")),
}
LEGAL_RUNS = {
    ("waiting", "due"),
    ("due", "running"),
    *((before, "discarded") for before in ("waiting", "due", "dead")),
    *(("running", after) for after in ("due", "running", "succeeded", "discarded", "dead")),
    *product(("succeeded", "discarded", "dead"), ("due", "waiting")),
}


def is_allowed(before, after):
    try:
        check(before, after)
    except IllegalTransition:
        return False
    return True


@pytest.mark.parametrize(("states", "legal"), [(DeliveryState, LEGAL), (RunState, LEGAL_RUNS)])
def test_legal_steps_are_taken_and_no_others(states, legal):
    assert {pair for pair in product(states, repeat=2) if is_allowed(*pair)} == legal


@pytest.mark.parametrize(
    ("before", "after"), [(DeliveryState.DONE, RunState.DUE), (RunState.DEAD, DeliveryState.RECEIVED)]
)
def test_a_transition_between_delivery_and_run_states_is_illegal(before, after):
    with pytest.raises(IllegalTransition, match="a row in state"):
        check(before, after)


def test_an_illegal_step_carries_its_facts():
    with pytest.raises(IllegalTransition, match="a delivery in state 'quarantined' cannot") as caught:
        check(DeliveryState.QUARANTINED, DeliveryState.DEAD)
    with pytest.raises(IllegalTransition, match="a run in state 'due' cannot become 'dead'"):
        check(RunState.DUE, RunState.DEAD)

    assert (caught.value.kind, caught.value.before, caught.value.after) == ("delivery", "quarantined", "dead")
