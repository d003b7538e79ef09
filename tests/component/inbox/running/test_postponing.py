"""Runs that are not called before a time: whatever makes them due, and whoever asked for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billhook.inbox import HandlerLimits, RunOptions, RunState, WorkerRecord
from billhook.inbox.operating.operations import discard, replay
from billhook.inbox.operating.postpone import PostponeResult, postpone
from billhook.inbox.operating.takeover import take_over
from billhook.inbox.running.due import FARTHEST
from billhook.inbox.watching.backlog_pace import first_untried_at
from billhook.inbox.watching.handler_backlogs import read_handler_backlogs
from billhook.inbox.watching.overview import read_state
from support.inbox_view import NOON, change, rows, value
from support.runs import LEASE, OWNER, at, claim, planned, result_of, settle

HOUR = 3_600
DAY = 24 * HOUR


def put_off(inbox, ids, until, now=0, **more) -> PostponeResult:
    return postpone(inbox, ids, at(now), at(until), **more)


def look_at_far_times(inbox, seconds) -> None:
    """Make due what is due later than any wait may take, as a worker does when it is recorded."""
    inbox.record_worker(WorkerRecord("a", "worker", 1, at(seconds)), at(seconds))


def is_claimed(inbox, seconds, delivery_id) -> bool:
    """Whether a worker is given a run of the delivery at a time; the run stays as it is."""
    claims = claim(inbox, 1, seconds, only=delivery_id)
    with inbox.transaction(OWNER) as transaction:
        transaction.release([one.lease for one in claims], at(seconds))
    return bool(claims)


def test_a_run_is_called_at_its_time_and_not_before(inbox, where):
    delivery_id = planned(inbox, "h")

    done = put_off(inbox, [delivery_id], HOUR)

    assert done == PostponeResult(1, runs=1)
    assert inbox.next_times({}).due_at == at(HOUR)
    assert not is_claimed(inbox, HOUR - 1, delivery_id)
    assert is_claimed(inbox, HOUR, delivery_id)
    assert value(where, "SELECT not_before FROM run") is None  # its time has come


def test_it_may_be_put_off_again_for_longer_or_less_or_be_due_at_once(inbox, where):
    delivery_id = planned(inbox, "h")

    for until in (2 * HOUR, HOUR, 3 * HOUR):
        put_off(inbox, [delivery_id], until)
        assert inbox.next_times({}).due_at == at(until)
    put_off(inbox, [delivery_id], 0, now=60)

    assert inbox.next_times({}).due_at == at(60)
    assert value(where, "SELECT not_before FROM run") is None


def test_a_retry_that_is_later_stays_so_and_an_earlier_one_is_put_off(inbox):
    late, soon = (planned(inbox, "h", key=key) for key in ("late", "soon"))
    for one in claim(inbox, 2):
        due = 9 * HOUR if one.delivery.delivery_id == late else 60
        settle(inbox, [one], RunState.DUE, due=due)

    put_off(inbox, [late, soon], HOUR)

    assert not is_claimed(inbox, 9 * HOUR - 1, late)
    assert is_claimed(inbox, 9 * HOUR, late)
    assert not is_claimed(inbox, HOUR - 1, soon)
    assert is_claimed(inbox, HOUR, soon)


def test_only_what_is_unfinished_and_not_running_is_put_off(inbox, where):
    running = planned(inbox, "h", key="running")
    claim(inbox, 1)
    done = planned(inbox, "h", key="done")
    settle(inbox, claim(inbox, 1, only=done))
    both = planned(inbox, "h", "other", key="both")
    before = rows(where, "SELECT * FROM run ORDER BY id")

    counted = put_off(inbox, [running, done, both, 99], HOUR, handler="other", dry_run=True)
    assert rows(where, "SELECT * FROM run ORDER BY id") == before
    of_one = put_off(inbox, [running, done, both, 99], HOUR, handler="other")
    of_all = put_off(inbox, [running, done, both, 99], HOUR)

    assert counted == of_one == PostponeResult(1, runs=1)
    assert of_all == PostponeResult(1, runs=2, running=1)
    put_off_runs = rows(
        where, "SELECT delivery_id, handler FROM run WHERE not_before IS NOT NULL ORDER BY id"
    )
    assert put_off_runs == [(both, "h"), (both, "other")]


def test_what_waits_behind_it_in_its_order_is_counted_and_waits_with_it(inbox):
    ordered = RunOptions("customer")
    first, second, third = (planned(inbox, "h", key=key, options=ordered) for key in "abc")
    planned(inbox, "h", key="other order", options=RunOptions("another"))

    done = put_off(inbox, [first], HOUR)
    second_too = put_off(inbox, [first, second], HOUR, dry_run=True)

    assert (done.behind, second_too.behind) == (2, 1)
    assert not is_claimed(inbox, HOUR - 1, second)
    settle(inbox, claim(inbox, 1, HOUR, only=first), seconds=HOUR)
    assert is_claimed(inbox, HOUR, second)
    assert not is_claimed(inbox, HOUR, third)


@pytest.mark.parametrize("names", [(), ("h", "former")])
def test_one_that_waits_in_its_order_is_due_at_its_time_when_its_turn_comes_before(inbox, where, names):
    ordered = RunOptions("customer")
    first, second = (planned(inbox, "h", key=key, options=ordered) for key in "ab")
    if names:
        change(where, "INSERT INTO billhook_handler (name, renamed_to) VALUES ('former', 'h')")
    put_off(inbox, [second], HOUR)

    claims = claim(inbox, 1, 0, only=first)
    limits = {name: HandlerLimits(names) for name in names}
    with inbox.transaction(OWNER, limits) as transaction:
        transaction.settle([result_of(one, seconds=1) for one in claims])

    assert not is_claimed(inbox, HOUR - 1, second)
    assert is_claimed(inbox, HOUR, second)


def test_a_suspect_that_is_put_off_is_not_called_before_its_time(inbox, where):
    delivery_id = planned(inbox, "h")
    claim(inbox, 1)
    lost_at = LEASE.total_seconds() + 1
    claim(inbox, 0, lost_at)  # its worker died: it is a suspect now
    assert value(where, "SELECT runs_alone FROM run") == 1

    put_off(inbox, [delivery_id], HOUR, now=lost_at)

    for seconds, is_due in ((HOUR - 1, False), (HOUR, True)):
        with inbox.transaction(OWNER) as transaction:
            suspect = transaction.claim_suspect(at(seconds), at(seconds) + LEASE)
        assert (suspect is not None) is is_due


def test_a_late_result_of_an_attempt_that_was_taken_for_lost_keeps_the_time(inbox):
    delivery_id = planned(inbox, "h")
    claims = claim(inbox, 1)
    claim(inbox, 0, 60)
    put_off(inbox, [delivery_id], HOUR, now=61)

    assert settle(inbox, claims, RunState.DUE, 62, due=70)  # the lease is still its own

    assert not is_claimed(inbox, HOUR - 1, delivery_id)
    assert is_claimed(inbox, HOUR, delivery_id)


def test_a_late_result_that_puts_it_off_for_less_keeps_the_time_until_an_operator_ends_it(inbox, where):
    delivery_id = planned(inbox, "h")
    claims = claim(inbox, 1)
    claim(inbox, 0, 60)
    put_off(inbox, [delivery_id], HOUR, now=61)

    late = result_of(claims[0], RunState.DUE, 62, due=70, not_before=at(70), error="later")
    with inbox.transaction(OWNER) as transaction:
        transaction.settle([late])

    assert value(where, "SELECT count(*) FROM run WHERE not_before = due_at") == 1
    put_off(inbox, [delivery_id], 0, now=80)
    assert is_claimed(inbox, 80, delivery_id)


@pytest.mark.parametrize("days_back", [0, 40])
def test_the_reset_of_times_that_are_too_far_makes_none_due_early(inbox, where, days_back):
    delivery_id, mistaken = planned(inbox, "h"), planned(inbox, "h", key="mistaken")
    put_off(inbox, [delivery_id], 31 * DAY)
    change(where, "UPDATE run SET due_at = ? WHERE delivery_id = ?", at(200 * DAY), mistaken)
    now = -days_back * DAY

    look_at_far_times(inbox, now)

    assert not is_claimed(inbox, 31 * DAY - 1, delivery_id)
    assert is_claimed(inbox, now, mistaken)
    assert days_back == 0 or timedelta(days=31 + days_back) > FARTHEST


def test_a_time_that_was_written_beyond_any_wait_is_reset_to_the_one_that_was_named(inbox, where):
    delivery_id = planned(inbox, "h")
    put_off(inbox, [delivery_id], HOUR)
    change(where, "UPDATE run SET due_at = ?", at(200 * DAY))

    look_at_far_times(inbox, 0)

    assert inbox.next_times({}).due_at == at(HOUR)


def test_a_replay_and_a_takeover_end_it(inbox, where):
    delivery_id = planned(inbox, "h", key="replayed")
    settle(inbox, claim(inbox, 1), RunState.DUE, due=60)
    put_off(inbox, [delivery_id], HOUR)
    replay(inbox, [delivery_id], at(1))
    assert is_claimed(inbox, 1, delivery_id)

    put_off(inbox, [delivery_id], HOUR)
    take_over(
        inbox, [delivery_id], at(2), handler="h", to="new", to_names=("new",), options=lambda *_: RunOptions()
    )
    assert is_claimed(inbox, 2, delivery_id)


def test_no_figure_takes_it_for_waiting_and_it_waits_from_its_time_on(inbox):
    delivery_id = planned(inbox, "h")
    put_off(inbox, [delivery_id], DAY)

    def look(seconds):
        with inbox.database.read() as connection:
            (backlog,) = read_handler_backlogs(connection, at(seconds), {})
            untried = first_untried_at(connection, ["h"], at(seconds))
        return read_state(inbox, at(seconds)).waiting_since, backlog, untried

    since, backlog, untried = look(DAY - 1)
    assert (since, untried) == (None, None)
    assert (backlog.retrying, backlog.waiting, backlog.oldest_due_at) == (1, 0, None)
    assert (backlog.through_at, backlog.last_put_off) == (at(DAY), True)

    since, backlog, untried = look(DAY + 60)
    assert (since, untried) == (at(DAY), at(DAY))
    assert (backlog.waiting, backlog.last_put_off) == (1, False)


def test_a_retry_that_is_the_last_is_no_postponement(inbox):
    first, last = (planned(inbox, "h", key=key) for key in "ab")
    put_off(inbox, [first], HOUR)
    settle(inbox, claim(inbox, 1, only=last), RunState.DUE, due=2 * HOUR)

    with inbox.database.read() as connection:
        (backlog,) = read_handler_backlogs(connection, NOON, {})

    assert (backlog.through_at, backlog.last_put_off) == (at(2 * HOUR), False)


def test_what_is_put_off_is_discarded_like_any_other(inbox, where):
    delivery_id = planned(inbox, "h")
    put_off(inbox, [delivery_id], HOUR)

    discard(inbox, [delivery_id], "over", at(1))

    assert rows(where, "SELECT state FROM run") == [("discarded",)]
    replay(inbox, [delivery_id], at(2), handler="h")
    assert is_claimed(inbox, 2, delivery_id)


def test_a_replay_for_later_calls_nothing_before_its_time(inbox):
    dead = [planned(inbox, "h", key=key) for key in "abc"]
    settle(inbox, claim(inbox, 3), RunState.DEAD)

    would = replay(inbox, dead, at(60), not_before=at(HOUR), dry_run=True)
    done = replay(inbox, dead[:2], at(60), not_before=at(HOUR))
    paced = replay(inbox, dead[2:], at(60), not_before=at(HOUR), due=lambda _: at(2 * HOUR))

    assert (would.runs, done.runs, paced.runs) == (3, 2, 1)
    assert not is_claimed(inbox, HOUR - 1, dead[0])
    assert is_claimed(inbox, HOUR, dead[1])
    assert not is_claimed(inbox, 2 * HOUR - 1, dead[2])  # a later turn of a rate stays later


def test_without_a_time_the_same_replay_is_due_at_once(inbox):
    delivery_id = planned(inbox, "h")
    settle(inbox, claim(inbox, 1), RunState.DEAD)

    replay(inbox, [delivery_id], at(60))

    assert is_claimed(inbox, 60, delivery_id)


def test_a_replay_for_later_of_an_order_first_runs_and_a_takeover_wait_as_well(inbox):
    options = RunOptions(order_key="k")
    ordered = [planned(inbox, "h", key=key, options=options) for key in "ab"]
    for _ in ordered:
        settle(inbox, claim(inbox, 1), RunState.DEAD)

    replay(inbox, ordered, at(60), not_before=at(HOUR))
    new = replay(
        inbox, ordered, at(60), handler="new", backfill=lambda *_: RunOptions(), not_before=at(HOUR)
    )  # fmt: skip
    assert not any(is_claimed(inbox, HOUR - 1, one) for one in ordered)
    taken = take_over(
        inbox, ordered, at(60), handler="h", to="n", to_names=["n"], options=lambda *_: RunOptions(),
        not_before=at(2 * HOUR),
    )  # fmt: skip

    assert (new.added, taken.runs) == (2, 2)
    assert [one.handler for one in claim(inbox, 9, HOUR)] == ["new", "new"]


def test_a_replay_for_later_leaves_what_has_no_run_that_could_have_a_time(inbox, where):
    unread = planned(inbox, error="the body is not JSON")

    done = replay(inbox, [unread], at(60), not_before=at(HOUR))

    assert (done.deliveries, done.without_runs) == (0, 1)
    assert value(where, "SELECT state FROM delivery") == "quarantined"
