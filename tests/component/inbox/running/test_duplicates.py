"""Deliveries that came again under another key: known by what they say, marked, and not handled twice."""

from __future__ import annotations

import pytest

from billhook.inbox import ContentKey, DeliveryFilter, RunOptions, RunPlan, UncalledRun
from billhook.inbox.operating.operations import ReplayResult, replay
from billhook.inbox.postgres.dialect import PostgresDialect
from billhook.inbox.reading.deliveries import count, details, page
from support.inbox_view import NOON, change, incoming, rows, value
from support.races import Meanwhile, only_postgres
from support.runs import at
from support.runs import plan as plan_as

DAY = 86_400.0


def like(digest, seconds, window):
    return ContentKey(digest, ("invoice_id", "amount_paid"), at(seconds), window)


def put(inbox, name, seconds=0):
    return inbox.put(incoming(name, at=at(seconds))).delivery_id


def planned(inbox, name, digest="d", *, seconds=0, handler="h", window=DAY, order_key=None):
    """A delivery planned for one handler; its id, and the twins that were found."""
    delivery_id = put(inbox, name, seconds)
    with inbox.transaction("planner") as transaction:
        transaction.plan([plan(delivery_id, digest, seconds, handler, window, order_key)], at(seconds))
        return delivery_id, transaction.duplicates


def plan(delivery_id, digest="d", seconds=0, handler="h", window=DAY, order_key=None):
    terms = RunOptions(order_key, like(digest, seconds, window))
    return RunPlan(delivery_id, (handler,), options={handler: terms})


def runs(where, columns="delivery_id, state, twin_of"):
    return rows(where, f"SELECT {columns} FROM run ORDER BY delivery_id, handler")


def test_a_content_duplicate_is_stored_marked_and_not_handled(inbox, where):
    first, none = planned(inbox, "a")
    second, twins = planned(inbox, "b", seconds=60)
    third, of_third = planned(inbox, "c", seconds=70)

    assert none == []
    assert [*twins, *of_third] == [UncalledRun(second, "h", first), UncalledRun(third, "h", first)]
    assert runs(where) == [
        (first, "due", None), (second, "discarded", first), (third, "discarded", first)
    ]  # fmt: skip
    assert rows(where, "SELECT last_error, finished_at, attempts FROM run WHERE delivery_id = ?", second) == [
        (
            f"content duplicate of delivery {first}: same invoice_id, amount_paid",
            "2026-01-15 12:01:00.000000",
            0,
        )
    ]
    assert rows(where, "SELECT state FROM delivery ORDER BY id") == [("planned",), ("done",), ("done",)]
    assert rows(where, "SELECT count(*) FROM failure") == [(0,)]


def test_a_content_duplicate_is_not_handled_after_any_result_of_the_original(inbox, where):
    first, _ = planned(inbox, "a")
    for state in ("succeeded", "dead", "discarded", "due", "running"):
        change(where, "UPDATE run SET state = ? WHERE delivery_id = ?", state, first)

        again, twins = planned(inbox, f"after {state}")

        assert twins == [UncalledRun(again, "h", first)], state


def test_another_value_handler_or_no_identity_makes_no_content_duplicate(inbox, where):
    planned(inbox, "a")

    assert planned(inbox, "b", "other")[1] == []
    assert planned(inbox, "c", handler="another")[1] == []
    for name in "de":
        plan_as(inbox, RunPlan(put(inbox, name), ("h",)))
    assert [(state, twin) for _, state, twin in runs(where)] == [("due", None)] * 5


def test_after_the_window_a_new_original_begins(inbox):
    first, _ = planned(inbox, "a", window=100)
    second, within = planned(inbox, "b", seconds=100, window=100)
    third, none = planned(inbox, "c", seconds=101, window=100)
    fourth, twins = planned(inbox, "d", seconds=150, window=100)

    assert within == [UncalledRun(second, "h", first)]
    assert none == []
    assert twins == [UncalledRun(fourth, "h", third)]


@pytest.mark.parametrize(("seconds", "is_duplicate"), [(50, True), (3600, True), (3601, False)])
def test_a_delivery_planned_late_is_a_duplicate_of_one_handled_meanwhile(inbox, seconds, is_duplicate):
    late = put(inbox, "late", 0)
    first, _ = planned(inbox, "a", seconds=seconds, window=3600)

    with inbox.transaction("planner") as transaction:
        transaction.plan([plan(late, seconds=0, window=3600)], at(4000))

    assert transaction.duplicates == ([UncalledRun(late, "h", first)] if is_duplicate else [])


def test_the_second_of_two_deliveries_planned_together_is_the_duplicate(inbox, where):
    *ids, other = [put(inbox, name, n) for n, name in enumerate("abcde")]
    plans = [plan(one, digest, n) for n, (one, digest) in enumerate(zip(ids, "dedd", strict=True))]

    with inbox.transaction("planner") as transaction:
        # With one for a handler that has no identity.
        transaction.plan([*plans, RunPlan(other, ("free",))], NOON)

    assert transaction.duplicates == [UncalledRun(ids[2], "h", ids[0]), UncalledRun(ids[3], "h", ids[0])]
    assert [state for _, state, _ in runs(where)] == ["due", "due", "discarded", "discarded", "due"]


def test_a_delivery_planned_by_another_worker_is_not_an_original_here(inbox, where):
    first, _ = planned(inbox, "a", "other")
    second = put(inbox, "b")

    with inbox.transaction("planner") as transaction:
        planned_here = transaction.plan([plan(first, "d"), plan(second, "d")], NOON)

    assert (planned_here, transaction.duplicates) == ([second], [])
    assert runs(where) == [(first, "due", None), (second, "due", None)]


def test_a_duplicate_for_one_handler_is_handled_by_others(inbox, where):
    first, _ = planned(inbox, "a")
    second = put(inbox, "b")

    terms = {"h": RunOptions(content_key=like("d", 0, DAY))}
    plan_as(inbox, RunPlan(second, ("h", "free"), options=terms))

    assert rows(where, "SELECT handler, state FROM run WHERE delivery_id = ? ORDER BY handler", second) == [
        ("free", "due"),
        ("h", "discarded"),
    ]
    assert value(where, "SELECT state FROM delivery WHERE id = ?", second) == "planned"
    assert first != second


def test_a_content_duplicate_takes_no_place_in_an_order(inbox, where):
    planned(inbox, "a", order_key="k")
    _, twins = planned(inbox, "b", order_key="k")
    planned(inbox, "c", "other", order_key="k")

    assert len(twins) == 1
    assert [state for _, state, _ in runs(where)] == ["due", "discarded", "waiting"]


# --- on purpose, and seen from outside ------------------------------------------------------------


def test_a_replayed_duplicate_stays_marked(inbox, where):
    for number, which in enumerate(({"all_handlers": True}, {"handler": "h"})):
        first, second = (
            planned(inbox, f"{name}{number}", str(number), order_key=str(number))[0] for name in "ab"
        )

        plain = replay(inbox, [second], at(5))
        done = replay(inbox, [second], at(5), **which)

        assert plain == ReplayResult()
        assert done == ReplayResult(deliveries=1, runs=1)
        assert runs(where)[-2:] == [(first, "due", None), (second, "waiting", first)]
        assert value(where, "SELECT state FROM delivery WHERE id = ?", second) == "planned"


def test_duplicates_are_selected_counted_and_shown(inbox):
    first, _ = planned(inbox, "a")
    second, _ = planned(inbox, "b")
    twins = DeliveryFilter(twins=True)

    assert [one.id for one in page(inbox, twins, 9)] == [second]
    assert count(inbox, twins) == 1
    assert not twins.is_everything
    (shown,) = details(inbox, [second])
    assert (shown.summary.twin_of, shown.runs[0].twin_of) == (first, first)
    assert "content duplicate of delivery" in shown.runs[0].last_error
    (shown,) = details(inbox, [first])
    assert (shown.summary.twin_of, shown.runs[0].twin_of, shown.runs[0].order_key) == (None, None, None)


# --- at the same time -----------------------------------------------------------------------------


def test_one_of_two_concurrent_plans_finds_the_content_duplicate(inbox, where):
    first, second = put(inbox, "a"), put(inbox, "b")

    def plans(delivery_id):
        return lambda transaction: transaction.plan([plan(delivery_id)], NOON)

    Meanwhile(inbox, where)(plans(first), plans(second))

    assert runs(where) == [(first, "due", None), (second, "discarded", first)]


@only_postgres
def test_without_the_identity_lock_both_content_duplicates_would_be_handled(inbox, where, monkeypatch):
    hold = PostgresDialect.hold
    monkeypatch.setattr(
        PostgresDialect, "hold", lambda own, *to: None if to[1] == "order" else hold(own, *to)
    )

    with pytest.raises(AssertionError, match="due"):
        test_one_of_two_concurrent_plans_finds_the_content_duplicate(inbox, where)
