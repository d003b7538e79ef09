"""Which of the runs of one order key is the newest by `newest_key`, and what becomes of the others."""

from __future__ import annotations

from itertools import count

import pytest

from billhook.inbox import RunOptions, RunPlan, RunState
from billhook.inbox.operating.operations import discard, replay
from support.inbox_view import change, column, incoming, value
from support.runs import at, plan, result_of
from support.runs import claim as claim_runs

NUMBERS = count()
NEWER, HANDLED = ", which is newer", ", which is newer and has been handled"


def planned(inbox, *keys, handler="h", order="k"):
    """Deliveries with these values of newest_key, planned in one batch; None: without the option."""
    plans = []
    for key in keys:
        one = inbox.put(incoming(f"m{next(NUMBERS)}")).delivery_id
        options = RunOptions(order_key=order, newest_only=True, newest_key=key)
        plans.append(RunPlan(one, (handler,), options={handler: options}))
    return plan(inbox, *plans)


def settle(inbox, state=RunState.SUCCEEDED, **more):
    (claimed,) = claim_runs(inbox, 100, 0)
    with inbox.transaction("worker") as transaction:
        transaction.settle([result_of(claimed, state, **more)])
        return transaction.superseded


def states(where):
    return column(where, "SELECT state FROM run ORDER BY delivery_id")


def errors(where):
    return column(where, "SELECT last_error FROM run ORDER BY delivery_id")


@pytest.mark.parametrize(
    ("keys", "newest"),
    [
        (["3", "5", "4"], 1),
        (["5", "3", "4"], 0),
        (["3", "4", "5"], 2),
        (["4", "4", "3"], 1),  # equal: by arrival
        (["", "5", "4"], 1),
        (["5", "4", ""], 2),  # does not say: by arrival
        (["5", "", "4"], 1),
        (["", "", ""], 2),
        ([None, "5", "4"], 1),
    ],
)
def test_of_those_that_wait_the_newest_is_handled(inbox, where, keys, newest):
    ids = planned(inbox, *keys)

    found = states(where)

    others = [one for one in range(len(keys)) if one != newest and keys[one] is not None]
    assert found[newest] != "discarded"
    assert [errors(where)[one] for one in others] == [f"superseded by delivery {ids[newest]}{NEWER}"] * len(
        others
    )
    done = column(where, "SELECT state FROM delivery ORDER BY id")
    assert [done[one] for one in others] == ["done"] * len(others)


def test_without_a_key_it_is_the_last_to_arrive(inbox, where):
    planned(inbox, None, None)

    assert (states(where), errors(where)[0]) == (["discarded", "due"], "superseded by delivery 2")


@pytest.mark.parametrize(
    ("first", "late", "goes"),
    [
        ("5", "4", True), ("5", "6", False), ("5", "5", False), ("5", "", False), ("", "4", False),
        (None, "4", False),
    ],
)  # fmt: skip
def test_an_older_one_that_comes_late_is_discarded_once_a_newer_one_has_been_handled(
    inbox, where, first, late, goes
):
    (newer,) = planned(inbox, first)
    settle(inbox)
    planned(inbox, late)

    why = f"superseded by delivery {newer}{HANDLED}"
    assert (states(where)[1], errors(where)[1]) == (("discarded", why) if goes else ("due", None))


def test_it_is_told_by_the_newest_of_those_that_have_been_handled(inbox, where):
    for key in ("5", "7", "6"):
        planned(inbox, key)
        if key != "6":
            settle(inbox)

    assert states(where) == ["succeeded", "succeeded", "discarded"]
    assert errors(where)[2] == f"superseded by delivery 2{HANDLED}"


@pytest.mark.parametrize("end", [RunState.DEAD, RunState.DISCARDED])
def test_a_newer_one_that_is_dead_or_discarded_supersedes_none(inbox, where, end):
    planned(inbox, "5")
    settle(inbox, end, error="no")
    planned(inbox, "4")

    assert states(where) == [end.value, "due"]


def test_while_the_newer_one_is_running_the_older_waits_for_its_end(inbox, where):
    planned(inbox, "5")
    claims = claim_runs(inbox, 100, 0)
    planned(inbox, "4")
    assert states(where) == ["running", "waiting"]

    with inbox.transaction("worker") as transaction:
        transaction.settle([result_of(*claims, RunState.SUCCEEDED)])
        superseded = transaction.superseded

    assert [tuple(one) for one in superseded] == [(2, "h", 1)]
    assert (states(where), errors(where)[1]) == (
        ["succeeded", "discarded"],
        f"superseded by delivery 1{HANDLED}",
    )


def test_and_is_handled_if_that_fails_for_good(inbox, where):
    planned(inbox, "5")
    claims = claim_runs(inbox, 100, 0)
    planned(inbox, "4")

    with inbox.transaction("worker") as transaction:
        transaction.settle([result_of(*claims, RunState.DEAD, error="no")])

    assert states(where) == ["dead", "due"]


def test_one_that_is_retried_gives_way_to_a_newer_one_and_not_to_an_older(inbox, where):
    for order, later in (("k", "6"), ("l", "4")):
        planned(inbox, "5", order=order)
        claims = claim_runs(inbox, 100, 0)
        planned(inbox, later, order=order)
        with inbox.transaction("worker") as transaction:
            transaction.settle([result_of(*claims, RunState.DUE, error="no", due_at=at(60))])

    assert states(where) == ["discarded", "due", "due", "discarded"]


def test_other_keys_and_handlers_supersede_none(inbox, where):
    for handler, order in (("h", "other"), ("g", "k")):
        planned(inbox, "5", handler=handler, order=order)
        settle(inbox)
    planned(inbox, "4")

    assert states(where) == ["succeeded", "succeeded", "due"]


def test_an_interrupted_one_is_repeated_at_its_time(inbox, where):
    planned(inbox, "4")
    change(where, "UPDATE run SET uncounted_attempts = 1")
    planned(inbox, "5")

    assert states(where) == ["due", "waiting"]


def test_a_replay_of_an_older_one_is_superseded_and_one_of_the_newest_is_handled(inbox, where):
    older = planned(inbox, "4")
    settle(inbox, RunState.DEAD, error="no")
    newer = planned(inbox, "5")
    settle(inbox)

    replay(inbox, older, at(10))
    assert states(where) == ["discarded", "succeeded"]
    assert value(where, "SELECT state FROM delivery WHERE id = ?", *older) == "done"

    replay(inbox, newer, at(20), all_handlers=True)
    assert states(where) == ["discarded", "due"]
    discard(inbox, newer, "wrong", at(30))
    replay(inbox, older, at(40), all_handlers=True)
    assert states(where) == ["due", "discarded"]
