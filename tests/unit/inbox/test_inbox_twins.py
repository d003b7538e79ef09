"""Deliveries that came again under another key: known by what they say, marked, and not handled twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from inbox_races import Meanwhile, only_postgres
from kit import NOON, incoming, rows, value
from sqlalchemy import event

from billhook.inbox import Likeness, Plan, Terms, Twin, admin, locks
from billhook.inbox.replay import Replayed, replay
from billhook.inbox.twins import find_twins

DAY = 86_400.0


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def like(digest, seconds, window):
    return Likeness(digest, ("invoice_id", "amount_paid"), at(seconds), window)


def put(inbox, name, seconds=0):
    return inbox.put(incoming(name, at=at(seconds))).delivery_id


def planned(inbox, name, digest="d", *, seconds=0, handler="h", window=DAY, order_key=None):
    """A delivery planned for one handler; its id, and the twins that were found."""
    delivery_id = put(inbox, name, seconds)
    with inbox.turn("planner") as turn:
        turn.plan([plan(delivery_id, digest, seconds, handler, window, order_key)], at(seconds))
        return delivery_id, turn.twins


def plan(delivery_id, digest="d", seconds=0, handler="h", window=DAY, order_key=None):
    terms = Terms(order_key, like(digest, seconds, window))
    return Plan(delivery_id, (handler,), terms={handler: terms})


def runs(where, columns="delivery_id, state, twin_of"):
    return rows(where, f"SELECT {columns} FROM run ORDER BY delivery_id, handler")


def test_a_twin_is_stored_and_marked_and_not_handled(inbox, where):
    first, none = planned(inbox, "a")
    second, twins = planned(inbox, "b", seconds=60)

    assert none == []
    assert twins == [Twin(second, "h", first)]
    assert runs(where) == [(first, "due", None), (second, "discarded", first)]
    assert rows(where, "SELECT last_error, finished_at, attempts FROM run WHERE delivery_id = ?", second) == [
        (f"twin of delivery {first}: same invoice_id, amount_paid", "2026-01-15 12:01:00.000000", 0)
    ]
    assert rows(where, "SELECT state FROM delivery ORDER BY id") == [("planned",), ("done",)]
    assert rows(where, "SELECT count(*) FROM failure") == [(0,)]


@pytest.mark.parametrize("state", ["succeeded", "dead", "discarded", "due", "running"])
def test_whatever_became_of_the_original_its_twin_is_not_handled(inbox, where, state):
    first, _ = planned(inbox, "a")
    with inbox.database.write() as connection:
        connection.exec_driver_sql(f"UPDATE run SET state = '{state}'")

    second, twins = planned(inbox, "b")

    assert twins == [Twin(second, "h", first)]


def test_all_twins_are_those_of_the_first_and_none_of_a_twin(inbox):
    first, _ = planned(inbox, "a")
    second, _ = planned(inbox, "b", seconds=10)
    third, twins = planned(inbox, "c", seconds=20)

    assert twins == [Twin(third, "h", first)]
    assert [one.twin_of for one in admin.page(inbox, admin.Selection(), 9)] == [first, first, None]
    assert second != first


def test_another_value_another_handler_and_who_does_not_ask_are_no_twins(inbox, where):
    planned(inbox, "a")

    assert planned(inbox, "b", "other")[1] == []
    assert planned(inbox, "c", handler="another")[1] == []
    assert [state for _, state, _ in runs(where)] == ["due"] * 3


@pytest.mark.parametrize(("seconds", "known"), [(3600, True), (3601, False)])
def test_a_delivery_is_known_for_as_long_as_the_window(inbox, seconds, known):
    planned(inbox, "a")

    _, twins = planned(inbox, "b", seconds=seconds, window=3600)

    assert bool(twins) is known


def test_after_the_window_a_new_original_begins(inbox):
    first, _ = planned(inbox, "a", window=100)
    planned(inbox, "b", seconds=90, window=100)
    third, none = planned(inbox, "c", seconds=110, window=100)
    _, twins = planned(inbox, "d", seconds=150, window=100)

    assert none == []
    assert [one.twin_of for one in twins] == [third]
    assert first != third


def test_one_that_is_read_late_is_a_twin_of_what_was_handled_meanwhile(inbox):
    late = put(inbox, "late", 0)
    first, _ = planned(inbox, "a", seconds=50)

    with inbox.turn("planner") as turn:
        turn.plan([plan(late, seconds=0)], at(90))

    assert turn.twins == [Twin(late, "h", first)]


def test_one_that_is_read_late_is_no_twin_of_what_came_long_after_it(inbox):
    late = put(inbox, "late", 0)
    planned(inbox, "a", seconds=3601, window=3600)

    with inbox.turn("planner") as turn:
        turn.plan([plan(late, seconds=0, window=3600)], at(4000))

    assert turn.twins == []


def test_of_two_that_are_planned_together_the_second_is_the_twin(inbox, where):
    ids = [put(inbox, name, n) for n, name in enumerate("abcd")]
    digests = ["d", "e", "d", "d"]

    with inbox.turn("planner") as turn:
        turn.plan(
            [plan(one, digest, n) for n, (one, digest) in enumerate(zip(ids, digests, strict=True))], NOON
        )

    assert turn.twins == [Twin(ids[2], "h", ids[0]), Twin(ids[3], "h", ids[0])]
    assert [state for _, state, _ in runs(where)] == ["due", "due", "discarded", "discarded"]


def test_one_that_somebody_else_planned_is_not_the_original_of_this_batch(inbox, where):
    first, _ = planned(inbox, "a", "other")
    second = put(inbox, "b")

    with inbox.turn("planner") as turn:
        won = turn.plan([plan(first, "d"), plan(second, "d")], NOON)

    assert (won, turn.twins) == ([second], [])
    assert runs(where) == [(first, "due", None), (second, "due", None)]


def test_a_delivery_that_is_a_twin_for_one_handler_is_handled_by_the_others(inbox, where):
    first, _ = planned(inbox, "a")
    second = put(inbox, "b")

    with inbox.turn("planner") as turn:
        terms = {"h": Terms(likeness=like("d", 0, DAY))}
        turn.plan([Plan(second, ("h", "free"), terms=terms)], NOON)

    assert rows(where, "SELECT handler, state FROM run WHERE delivery_id = ? ORDER BY handler", second) == [
        ("free", "due"),
        ("h", "discarded"),
    ]
    assert value(where, "SELECT state FROM delivery WHERE id = ?", second) == "planned"
    assert first != second


def test_a_twin_takes_no_turn_and_is_waited_for_by_nobody(inbox, where):
    planned(inbox, "a", order_key="k")
    _, twins = planned(inbox, "b", order_key="k")
    planned(inbox, "c", "other", order_key="k")

    assert len(twins) == 1
    assert [state for _, state, _ in runs(where)] == ["due", "discarded", "waiting"]


def test_who_was_registered_without_identity_notices_nothing(inbox, where):
    for name in "ab":
        with_one = put(inbox, name)
        with inbox.turn("planner") as turn:
            turn.plan([Plan(with_one, ("h",))], NOON)

    assert rows(where, "SELECT identity, twin_of, state FROM run") == [(None, None, "due")] * 2


# --- on purpose, and seen from outside ------------------------------------------------------------


@pytest.mark.parametrize("which", [{"all_handlers": True}, {"handler": "h"}])
def test_a_twin_can_be_handled_on_purpose_and_stays_marked(inbox, where, which):
    first, _ = planned(inbox, "a", order_key="k")
    second, _ = planned(inbox, "b", order_key="k")

    done = replay(inbox, [second], at(5), **which)

    assert done == Replayed(deliveries=1, runs=1)
    assert runs(where) == [(first, "due", None), (second, "waiting", first)]
    assert value(where, "SELECT state FROM delivery WHERE id = ?", second) == "planned"


def test_a_plain_replay_leaves_a_twin_alone(inbox, where):
    planned(inbox, "a")
    second, _ = planned(inbox, "b")

    assert replay(inbox, [second], at(5)) == Replayed()
    assert [state for _, state, _ in runs(where)] == ["due", "discarded"]


def test_twins_are_selected_counted_and_shown(inbox):
    first, _ = planned(inbox, "a")
    second, _ = planned(inbox, "b")
    twins = admin.Selection(twins=True)

    assert [one.id for one in admin.page(inbox, twins, 9)] == [second]
    assert admin.count(inbox, twins) == 1
    assert not twins.is_everything
    (shown,) = admin.details(inbox, [second])
    assert (shown.summary.twin_of, shown.runs[0].twin_of) == (first, first)
    assert "twin of delivery" in shown.runs[0].last_error
    (shown,) = admin.details(inbox, [first])
    assert (shown.summary.twin_of, shown.runs[0].twin_of, shown.runs[0].order_key) == (None, None, None)


# --- at the same time -----------------------------------------------------------------------------


def check_of_two_that_come_at_once_one_is_the_twin(inbox, where):
    first, second = put(inbox, "a"), put(inbox, "b")

    def plans(delivery_id):
        return lambda turn: turn.plan([plan(delivery_id)], NOON)

    Meanwhile(inbox, where)(plans(first), plans(second))

    assert runs(where) == [(first, "due", None), (second, "discarded", first)]


def test_of_two_that_come_at_once_one_is_the_twin(inbox, where):
    check_of_two_that_come_at_once_one_is_the_twin(inbox, where)


@only_postgres
def test_without_the_lock_both_would_be_handled(inbox, where, monkeypatch):
    monkeypatch.setattr(locks, "lock_order", lambda *_: None)

    with pytest.raises(AssertionError, match="due"):
        check_of_two_that_come_at_once_one_is_the_twin(inbox, where)


def test_the_originals_are_found_by_the_index(inbox, where):
    asked = []
    with inbox.database.write() as connection:
        event.listen(connection, "before_cursor_execute", lambda *facts: asked.append(facts[2:4]))
        assert find_twins(connection, [plan(1)]) == {}
        if isinstance(where, str):
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # of an empty table nothing else
        how = "EXPLAIN" if isinstance(where, str) else "EXPLAIN QUERY PLAN"
        shown = str(connection.exec_driver_sql(f"{how} {asked[0][0]}", asked[0][1]).all())

    assert "run_identity_idx" in shown
