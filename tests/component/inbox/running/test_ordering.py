"""Runs that take turns: who is due, who waits, and that nobody waits for ever. On both databases."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import pytest

from billhook.inbox import InboxTransaction, RunOptions, RunPlan, RunState, UncalledRun
from billhook.inbox.operating.operations import replay
from billhook.inbox.postgres.dialect import PostgresDialect
from billhook.inbox.running import ordering
from billhook.inbox.running.ordering import OrderKey
from billhook.inbox.running.superseding import discard_superseded
from billhook.inbox.tables import locks
from billhook.inbox.tables.sql import TextOfTables
from support.inbox_view import NOON, change, column, incoming, postgres, rows, value
from support.processes import together
from support.races import Meanwhile, only_postgres
from support.runs import at, plan, result_of
from support.runs import claim as claim_runs


def ordered(key, *, newest_only=False):
    return {"h": RunOptions(order_key=key, newest_only=newest_only)}


def put(inbox, name):
    return inbox.put(incoming(name)).delivery_id


def planned(inbox, *names, key="k", seconds=0, newest_only=False):
    """Deliveries planned for the ordered handler `h`, in one batch; their ids."""
    ids = [put(inbox, name) for name in names]
    options = ordered(key, newest_only=newest_only)
    return plan(inbox, *(RunPlan(one, ("h",), options=options) for one in ids), seconds=seconds)


def claim(inbox, seconds=0):
    return claim_runs(inbox, 100, seconds)


def settle(inbox, claimed, state=RunState.SUCCEEDED, **more):
    """Returns the deliveries that were released."""
    with inbox.transaction("worker") as transaction:
        assert transaction.settle([result_of(claimed, state, **more)]) == {claimed.lease}
        return transaction.released


def states(where, handler="h"):
    return column(where, "SELECT state FROM run WHERE handler = ? ORDER BY delivery_id", handler)


# --- taking turns ---------------------------------------------------------------------------------


def test_one_run_per_order_key_is_due_and_none_while_one_is_running(inbox, where):
    planned(inbox, "a", "b")

    assert states(where) == ["due", "waiting"]
    assert [one.delivery.key for one in claim(inbox)] == ["a"]
    planned(inbox, "c")
    assert states(where) == ["running", "waiting", "waiting"]
    assert claim(inbox) == []
    assert value(where, "SELECT state FROM delivery WHERE key = 'c'") == "planned"


@pytest.mark.parametrize(
    ("handler", "key", "state", "is_superseded"),
    [
        ("h", "k", "waiting", True), ("h", "k", "running", True), ("g", "k", "waiting", False),
        ("h", "other", "waiting", False), ("h", "k", "succeeded", False),
    ],
    ids=["a newer one waits", "a newer one runs", "of another handler", "of another key", "finished"],
)  # fmt: skip
def test_a_retry_is_discarded_where_only_the_newest_counts_and_a_newer_one_waits(
    inbox, where, handler, key, state, is_superseded
):
    (first,) = planned(inbox, "a", key="k", newest_only=True)
    settle(inbox, *claim(inbox), RunState.DUE, due=600, error="away")
    (newer,) = planned(inbox, "b")
    newer_one = "UPDATE run SET handler = ?, order_key = ?, state = ? WHERE delivery_id = ?"
    change(where, newer_one, handler, key, state, newer)

    with inbox.database.write() as connection:
        keys = [OrderKey("h", "k", newest_only=True), OrderKey("h", "k")]
        found = discard_superseded(connection, keys, at(5))

    assert found == ([UncalledRun(first, "h", newer)] if is_superseded else [])
    assert states(where)[0] == ("discarded" if is_superseded else "due")


def test_an_attempt_that_fails_while_a_newer_one_waits_is_not_repeated_where_only_the_newest_counts(
    inbox, where
):
    planned(inbox, "a", newest_only=True)
    (running,) = claim(inbox)
    planned(inbox, "b", newest_only=True)

    settle(inbox, running, RunState.DUE, due=600, error="away")

    assert states(where) == ["discarded", "due"]


@pytest.mark.parametrize(
    ("interrupted", "after"), [(True, ["due", "waiting"]), (False, ["discarded", "due"])]
)
def test_a_newer_one_supersedes_a_retry_at_once_but_no_interrupted_attempt(inbox, where, interrupted, after):
    planned(inbox, "a", newest_only=True)
    settle(inbox, *claim(inbox), RunState.DUE, due=600, error="away", uncounted=interrupted)

    planned(inbox, "b", newest_only=True)

    assert states(where) == after


def test_of_those_that_are_replayed_only_the_newest_is_handled_where_only_that_counts(inbox, where):
    ids = []
    for name in ("a", "b"):
        ids += planned(inbox, name, newest_only=True)
        settle(inbox, *claim(inbox), RunState.DEAD, error="no")

    replay(inbox, ids, at(10))

    assert states(where) == ["discarded", "due"]
    settle(inbox, *claim(inbox, 10), seconds=11)
    replay(inbox, ids[:1], at(20), all_handlers=True)  # no newer one waits
    assert states(where) == ["due", "succeeded"]


def test_what_was_planned_before_the_option_is_handled(inbox, where):
    planned(inbox, "a", "b")
    planned(inbox, "c", "d", newest_only=True)

    assert states(where) == ["due", "waiting", "discarded", "waiting"]


@only_postgres
def test_one_whose_delivery_another_transaction_has_is_left_to_wait(inbox, where):
    planned(inbox, "a", key="k", newest_only=True)
    (running,) = claim(inbox)
    (older,) = planned(inbox, "b", key="k", newest_only=True)

    with postgres(where) as other, other.transaction():
        other.execute("SELECT 1 FROM delivery WHERE id = %s FOR UPDATE", (older,))
        planned(inbox, "c", key="k", newest_only=True)
        assert states(where) == ["running", "waiting", "waiting"]

    settle(inbox, running)
    assert states(where) == ["succeeded", "discarded", "due"]


def test_a_finished_run_makes_the_next_of_its_order_due_at_once(inbox, where):
    ends = [RunState.SUCCEEDED, RunState.DISCARDED, RunState.DEAD]
    ids = [planned(inbox, *(f"{name} {end}" for name in "abc"), key=end) for end in ends]

    claims = claim(inbox)
    released = [settle(inbox, one, end, seconds=5, error="e") for one, end in zip(claims, ends, strict=True)]

    assert released == [[second] for _, second, _ in ids]
    assert states(where) == [state for end in ends for state in (end, "due", "waiting")]
    due_at = rows(where, "SELECT DISTINCT due_at FROM run WHERE state = 'due'")
    assert due_at == [("2026-01-15 12:00:05.000000",)]
    assert [one.delivery.key for one in claim(inbox, 5)] == [f"b {end}" for end in ends]


def release(inbox, claimed):
    with inbox.transaction("worker") as transaction:
        transaction.release([claimed.lease], at(1))


def claim_again(inbox, claimed):
    assert [one.delivery.key for one in claim(inbox, 31)] == ["a"]


def settle_a_stale_result(inbox, claimed):
    claim(inbox, 31)
    with inbox.transaction("worker") as transaction:
        assert transaction.settle([result_of(claimed)]) == set()
        assert transaction.released == []


@pytest.mark.parametrize(
    ("what", "state"),
    [
        (lambda inbox, one: settle(inbox, one, RunState.DUE, due=3600, error="not now"), "due"),
        (release, "due"),
        (claim_again, "running"),
        (settle_a_stale_result, "running"),
    ],
    ids=["to be retried", "released", "its lease expired", "a stale result"],
)
def test_a_run_that_did_not_finish_stays_first_of_its_order_key(inbox, where, what, state):
    planned(inbox, "a", "b")

    what(inbox, *claim(inbox))

    assert states(where) == [state, "waiting"]
    assert [one.delivery.key for one in claim(inbox, 3600)] == ["a"]


def test_other_keys_other_handlers_and_unordered_runs_do_not_wait(inbox, where):
    terms = {"x": RunOptions(order_key="k"), "y": RunOptions(order_key="k"), "free": RunOptions()}
    for name, key in (("a", "k"), ("b", "k"), ("c", "other")):
        options = {**terms, "x": RunOptions(order_key=key)}
        plan(inbox, RunPlan(put(inbox, name), ("x", "y", "free"), options=options))

    assert states(where, "x") == ["due", "waiting", "due"]
    assert states(where, "y") == ["due", "waiting", "waiting"]
    assert states(where, "free") == ["due", "due", "due"]
    by_handler = {one.handler: one for one in claim(inbox) if one.delivery.key == "a"}
    assert settle(inbox, by_handler["x"]) == [2]
    assert states(where, "y") == ["running", "waiting", "waiting"]


def test_the_order_is_that_of_receipt_and_not_of_planning(inbox, where):
    ids = [put(inbox, name) for name in "abcd"]
    for one in (ids[3], ids[1], ids[2], ids[0]):  # the first was read by somebody slow
        plan(inbox, RunPlan(one, ("h",), options=ordered("k")))

    order = []
    while claims := claim(inbox, 1):
        order += [one.delivery.key for one in claims]
        settle(inbox, claims[0])

    assert order == ["d", "a", "b", "c"]  # who was alone went ahead; nobody who waited was passed


# --- replay ---------------------------------------------------------------------------------------


def test_a_replayed_run_waits_for_the_running_one_and_precedes_later_ones(inbox, where):
    (first,) = planned(inbox, "a")
    settle(inbox, claim(inbox)[0], RunState.DEAD, error="e")
    planned(inbox, "b", "c")
    (second,) = claim(inbox, 1)

    replay(inbox, [first], at(2))

    assert states(where) == ["waiting", "running", "waiting"]
    assert settle(inbox, second, seconds=3) == [first]
    assert states(where) == ["due", "succeeded", "waiting"]


# --- at the same time -----------------------------------------------------------------------------


@pytest.fixture
def meanwhile(inbox, where):
    return Meanwhile(inbox, where)


def check_a_run_planned_while_the_one_before_it_ends_is_not_left_waiting(inbox, where, meanwhile):
    planned(inbox, "a")
    (first,) = claim(inbox)
    second = put(inbox, "b")

    meanwhile(
        lambda transaction: transaction.settle([result_of(first)]),
        lambda transaction: transaction.plan([RunPlan(second, ("h",), options=ordered("k"))], at(1)),
    )

    assert states(where) == ["succeeded", "due"]


def check_a_run_replayed_while_the_one_before_it_ends_is_not_left_waiting(inbox, where, meanwhile):
    ids = planned(inbox, "a", "b")
    settle(inbox, claim(inbox)[0])
    (second,) = claim(inbox, 1)

    def again(transaction):
        connection = transaction.connection
        locks.lock_order(connection)
        locks.lock_deliveries(connection, [ids[0]])
        connection.execute(
            TextOfTables("UPDATE $run SET state = 'waiting', finished_at = NULL WHERE state = 'succeeded'")
        )
        ordering.release_next(connection, [OrderKey("h", "k")], at(2))

    meanwhile(lambda transaction: transaction.settle([result_of(second)]), again)

    assert "due" in states(where)


def check_two_that_settle_the_last_two_runs_conclude_the_delivery(inbox, where, meanwhile):
    plan(inbox, RunPlan(put(inbox, "a"), ("x", "y")))
    one, other = claim(inbox)

    meanwhile(
        lambda transaction: transaction.settle([result_of(one)]),
        lambda transaction: transaction.settle([result_of(other)]),
    )

    assert value(where, "SELECT state FROM delivery") == "done"


CHECKS = [
    check_a_run_planned_while_the_one_before_it_ends_is_not_left_waiting,
    check_a_run_replayed_while_the_one_before_it_ends_is_not_left_waiting,
    check_two_that_settle_the_last_two_runs_conclude_the_delivery,
]


@pytest.mark.parametrize("check", CHECKS)
def test_two_transactions_at_one_time_leave_nothing_waiting(inbox, where, meanwhile, check):
    check(inbox, where, meanwhile)


@only_postgres
@pytest.mark.parametrize(
    ("check", "lock", "left"),
    [(CHECKS[0], "order", "waiting"), (CHECKS[2], "deliveries", "planned")],
)
def test_without_its_lock_a_check_fails(inbox, where, meanwhile, monkeypatch, check, lock, left):
    hold = PostgresDialect.hold
    monkeypatch.setattr(PostgresDialect, "hold", lambda own, *to: None if to[1] == lock else hold(own, *to))

    with pytest.raises(AssertionError, match=left):
        check(inbox, where, meanwhile)


@pytest.mark.parametrize("fails", [False, True])
def test_the_second_of_two_planners_plans_what_the_first_has_not_committed(inbox, where, meanwhile, fails):
    ids = [put(inbox, name) for name in "abc"]
    plans = [RunPlan(delivery_id, ("h",), options=ordered("k")) for delivery_id in ids]
    planned_here = []

    def first(transaction):
        planned_here.append(transaction.plan(plans[:1], NOON))
        if fails:
            raise KeyError

    with pytest.raises(KeyError) if fails else nullcontext():
        meanwhile(first, lambda transaction: planned_here.append(transaction.plan(plans, at(1))))

    assert planned_here == [ids[:1], ids if fails else ids[1:]]
    assert states(where) == ["due", "waiting", "waiting"]


def crossing(inbox, first, lock):
    """Two turns that each settle a run of one delivery and would plan both; what came of them."""
    ids = [put(inbox, name) for name in "ab"]
    plans = [RunPlan(delivery_id, ("h",)) for delivery_id in ids]
    plan(inbox, *plans)
    claims = sorted(claim(inbox), key=lambda one: one.delivery.delivery_id)
    barrier = threading.Barrier(2)

    def one(number):
        own = result_of(claims[first - number])
        with inbox.transaction(f"turn{number}") as transaction:
            if lock:
                transaction.lock([own], plans)
            transaction.settle([own])
            if not lock:
                barrier.wait(10)
            transaction.plan(plans, NOON)

    return [str(error) for error in together(2, one) if error]


@only_postgres
@pytest.mark.parametrize("first", [0, 1])
def test_transactions_that_lock_everything_first_do_not_deadlock(inbox, where, first):
    assert crossing(inbox, first, lock=True) == []
    assert states(where) == ["succeeded", "succeeded"]


@only_postgres
def test_control_transactions_that_lock_step_by_step_deadlock(inbox):
    (error,) = crossing(inbox, 0, lock=False)

    assert "deadlock detected" in error


# --- what waiting costs ---------------------------------------------------------------------------


def test_no_keys_are_no_work(inbox):
    with inbox.database.write() as connection:
        assert ordering.release_next(connection, [], NOON) == []
        InboxTransaction(connection, "w").lock((), ())
