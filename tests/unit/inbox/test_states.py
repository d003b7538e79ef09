"""What may follow what: every pair of states, legal or not."""

from __future__ import annotations

from itertools import product

import pytest

from billhook.errors import IllegalTransition
from billhook.inbox import DeliveryState, RunState
from billhook.inbox.states import check

LEGAL = {
    ("received", "planned"),
    ("received", "done"),
    ("received", "quarantined"),
    ("planned", "done"),
    ("planned", "dead"),
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


@pytest.mark.parametrize(("before", "after"), list(product(DeliveryState, repeat=2)))
def test_a_delivery_takes_legal_steps_only(before, after):
    if (before, after) in LEGAL:
        check(before, after)
    else:
        with pytest.raises(
            IllegalTransition, match=f"a delivery in state '{before}' cannot become '{after}'"
        ):
            check(before, after)


@pytest.mark.parametrize(("before", "after"), list(product(RunState, repeat=2)))
def test_a_run_takes_legal_steps_only(before, after):
    if (before, after) in LEGAL_RUNS:
        check(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"a run in state '{before}' cannot become '{after}'"):
            check(before, after)


@pytest.mark.parametrize(
    ("before", "after"), [(DeliveryState.DONE, RunState.DUE), (RunState.DEAD, DeliveryState.RECEIVED)]
)
def test_a_transition_between_delivery_and_run_states_is_illegal(before, after):
    with pytest.raises(IllegalTransition, match="a row in state"):
        check(before, after)


def test_an_illegal_step_carries_its_facts():
    with pytest.raises(IllegalTransition, match="cannot become") as caught:
        check(DeliveryState.QUARANTINED, DeliveryState.DEAD)

    assert (caught.value.kind, caught.value.before, caught.value.after) == ("delivery", "quarantined", "dead")


STEPS_OF_STATEMENTS = [
    (DeliveryState.RECEIVED, DeliveryState.PLANNED),  # plan
    (DeliveryState.RECEIVED, DeliveryState.DONE),
    (DeliveryState.RECEIVED, DeliveryState.QUARANTINED),
    (RunState.DUE, RunState.RUNNING),  # claim
    (RunState.RUNNING, RunState.DUE),  # release, expire
    (RunState.RUNNING, RunState.SUCCEEDED),  # settle
    (RunState.WAITING, RunState.DUE),  # release the next run of an order
    (DeliveryState.PLANNED, DeliveryState.DONE),  # finish
    (DeliveryState.PLANNED, DeliveryState.DEAD),
]


@pytest.mark.parametrize(("before", "after"), STEPS_OF_STATEMENTS)
def test_statements_whose_states_are_constants_take_allowed_steps(before, after):
    check(before, after)
