"""`replay --handler OLD --to NEW` at the inbox: runs of a handler that is gone become those of another."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billhook.inbox import ContentKey, RunOptions, RunState
from billhook.inbox.operating.operations import ReplayResult
from billhook.inbox.operating.takeover import take_over
from billhook.inbox.running.handler_lists import HandlerList
from billhook.inbox.watching.overview import read_totals
from support.inbox_view import NOON, column, rows
from support.runs import at, claim, failed, planned, settle

LATER = NOON + timedelta(hours=1)


def moved(inbox, ids, options=lambda *_: RunOptions(), names=("new",), **how):
    return take_over(inbox, ids, LATER, handler="old", to="new", to_names=names, options=options, **how)


def runs(where):
    return rows(where, "SELECT delivery_id, handler, state FROM run ORDER BY delivery_id, id")


def states(where):
    return column(where, "SELECT state FROM delivery ORDER BY id")


def test_dead_runs_are_the_others_and_due_and_keep_their_failures(inbox, where):
    ids = [failed(inbox, name, error="e", handler="old") for name in "ab"]
    before = runs(where)
    asked = []

    def options(stored, handlers):
        asked.append(stored.key)
        return RunOptions()

    would = moved(inbox, ids, options, dry_run=True)
    assert runs(where) == before
    done = moved(inbox, ids, options)

    assert done == would == ReplayResult(deliveries=2, runs=2)
    assert asked == ["a", "b"] * 2
    assert runs(where) == [(ids[0], "new", "due"), (ids[1], "new", "due")]
    assert states(where) == ["planned"] * 2
    columns = "attempts, replays, last_error, finished_at, due_at, duration_seconds"
    assert rows(where, f"SELECT DISTINCT {columns} FROM run") == [
        (0, 1, None, None, "2026-01-15 13:00:00.000000", None)
    ]
    assert column(where, "SELECT error FROM failure") == ["e", "e"]
    assert [one.handler for one in claim(inbox, seconds=3_600)] == ["new"] * 2
    assert moved(inbox, ids) == ReplayResult()


def test_what_is_running_is_left_and_what_only_waits_goes_too(inbox, where):
    running, due = planned(inbox, "old", key="running"), planned(inbox, "old", key="due")
    claimed = claim(inbox, only=running)
    retried = failed(inbox, "retried", state=RunState.DUE, error="e", handler="old")

    assert moved(inbox, [running, due, retried], only_failed=True) == ReplayResult(1, runs=1)
    assert moved(inbox, [running, due, retried]) == ReplayResult(1, runs=1)

    assert runs(where) == [(running, "old", "running"), (due, "new", "due"), (retried, "new", "due")]
    assert column(where, "SELECT replays FROM run") == [0, 0, 0]  # none of them was finished
    assert len(settle(inbox, claimed)) == 1


def test_a_late_result_of_the_former_handler_changes_nothing(inbox, where):
    delivery_id = planned(inbox, "old", key="a")
    late = claim(inbox)
    claim(inbox, seconds=60, lease=timedelta(seconds=1))  # the first claim is lost
    with inbox.transaction("host:1") as transaction:
        transaction.release([], at(100))
    settle(inbox, claim(inbox, seconds=200), RunState.DEAD, 201)

    moved(inbox, [delivery_id])

    assert settle(inbox, late) == set()
    assert runs(where) == [(delivery_id, "new", "due")]


def test_a_delivery_that_the_other_has_had_is_passed_over_under_a_former_name_too(inbox, where):
    both, former = planned(inbox, "old", "new", key="both"), planned(inbox, "old", "newish", key="former")
    plain = planned(inbox, "old", key="plain")
    settle(inbox, claim(inbox, 100), RunState.DEAD)
    names = ("new", "newish", "old")  # the former handler may be an alias of the other
    before = runs(where)[:4]

    assert moved(inbox, [both, former, plain], names=names) == ReplayResult(1, runs=1, had_already=2)

    assert runs(where) == [*before, (plain, "new", "due")]
    assert states(where) == ["dead", "dead", "planned"]


def test_a_delivery_that_the_other_does_not_handle_is_passed_over(inbox, where):
    ids = [failed(inbox, name, error="e", handler="old") for name in "ab"]

    def options(stored, _):
        return RunOptions() if stored.key == "b" else None

    assert moved(inbox, ids, options) == ReplayResult(1, runs=1, unfit=1)

    assert runs(where) == [(ids[0], "old", "dead"), (ids[1], "new", "due")]


def test_the_others_order_holds_and_the_former_order_goes_on(inbox, where):
    ordered = RunOptions("k")
    first, second, third = (planned(inbox, "old", key=name, options=ordered) for name in "abc")
    new = planned(inbox, "new", key="d", options=RunOptions("n"))
    settle(inbox, claim(inbox, 1, only=new))

    assert moved(inbox, [first, second], lambda *_: RunOptions("n")) == ReplayResult(2, runs=2)

    assert runs(where) == [
        (first, "new", "due"),
        (second, "new", "waiting"),
        (third, "old", "due"),
        (new, "new", "succeeded"),
    ]
    settle(inbox, claim(inbox, 1, seconds=3_600, only=first), seconds=3_601)
    assert runs(where)[1] == (second, "new", "due")


def test_of_an_order_that_needs_the_newest_only_the_older_are_discarded(inbox, where):
    ids = [failed(inbox, name, error="e", handler="old") for name in "abc"]

    moved(inbox, ids, lambda *_: RunOptions("n", newest_only=True))

    assert runs(where) == [(ids[0], "new", "discarded"), (ids[1], "new", "discarded"), (ids[2], "new", "due")]
    assert states(where) == ["done", "done", "planned"]


def test_a_content_duplicate_of_what_the_other_has_had_is_discarded(inbox, where):
    content = RunOptions(content_key=ContentKey("same", ("x",), NOON, 60))
    had = planned(inbox, "new", key="had", options=content)
    settle(inbox, claim(inbox))
    dead = failed(inbox, "dead", error="e", handler="old")

    moved(inbox, [dead], lambda *_: content)

    assert rows(where, "SELECT handler, state, twin_of, last_error FROM run WHERE twin_of IS NOT NULL") == [
        ("new", "discarded", had, f"content duplicate of delivery {had}: same x")
    ]
    assert states(where) == ["done", "done"]


def test_a_run_under_a_former_name_is_no_content_duplicate_of_itself(inbox, where):
    content = RunOptions(content_key=ContentKey("same", ("x",), NOON, 60))
    inbox.record_list(HandlerList({"PingTest": {"new": ()}, "": {}}, {"new": ("old",)}), NOON)
    dead = planned(inbox, "old", key="dead", options=content)
    settle(inbox, claim(inbox), RunState.DEAD)

    moved(inbox, [dead], lambda *_: content)

    assert runs(where) == [(dead, "new", "due")]


@pytest.mark.parametrize("counted_before", [False, True])
def test_each_attempt_is_counted_once_as_the_former_handlers(inbox, where, counted_before):
    delivery_id = planned(inbox, "old", key="a")
    settle(inbox, claim(inbox), RunState.DUE, 1, due=2, error="e", group="bug")
    settle(inbox, claim(inbox, seconds=3), RunState.DEAD, 4, error="e", group="bug")
    totals = read_totals(inbox)
    if counted_before:
        for seconds in (600, 620, 640):
            inbox.advance_watermark(at(seconds))

    moved(inbox, [delivery_id])
    assert read_totals(inbox) == totals
    for seconds in (4_000, 4_020, 4_040):
        inbox.advance_watermark(at(seconds))

    assert read_totals(inbox) == totals
