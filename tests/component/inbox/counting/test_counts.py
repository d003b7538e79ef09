"""What is counted, and how; the counts by hour, day and year; refusals in memory."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from billhook.errors import InboxUnavailable, SchemaMismatch
from billhook.inbox import Counted, Lease, RunPlan, RunState
from billhook.inbox.counting import compaction
from billhook.inbox.counting import counts as counts_of_inbox
from billhook.inbox.counting.counts import DURATION_BOUNDS, Counts, Sum
from billhook.inbox.operating import operations
from billhook.inbox.storing import buffered_counts
from billhook.inbox.storing.buffered_counts import BufferedCounts
from billhook.inbox.watching.overview import read_totals
from support.figures import advance, totals
from support.inbox_view import NOON, column, hung, incoming, open_inbox, rows, upgraded, value
from support.postgres import only_sqlite
from support.processes import in_children, together, until
from support.runs import OWNER, at, claim, planned, result_of
from support.runs import plan as plan_as


def plan(inbox, key="k", handlers=("h",), *, error=None):
    return planned(inbox, *handlers, key=key, seconds=1, error=error)


def result(one, state=RunState.SUCCEEDED, duration_seconds=None, **facts):
    return result_of(one, state, 3, duration_seconds=duration_seconds, **facts)


def settle(inbox, *results):
    with inbox.transaction(OWNER) as transaction:
        return transaction.settle(results)


ACCEPTED = ("PingTest", "", "accepted")


# --- deliveries ---------------------------------------------------------------------------------------


def test_a_delivery_is_counted_from_its_receipt_in_the_hour_of_it(inbox, where):
    inbox.put(replace(incoming("k"), received_at=NOON + timedelta(minutes=59)))

    assert totals(inbox) == {ACCEPTED: 1}
    advance(inbox, at(3600))

    found = rows(where, "SELECT hour, source, event_type, what, number, last_at FROM billhook_count")
    last = "2026-01-15 12:59:00.000000"
    assert found == [("2026-01-15 12:00:00.000000", "default", "PingTest", "accepted", 1, last)]
    assert totals(inbox) == {ACCEPTED: 1}


@pytest.mark.parametrize("counted", [False, True])
def test_a_delivery_that_is_planned_again_after_a_replay_is_not_accepted_again(inbox, where, counted):
    delivery_id = plan(inbox, handlers=(), error="unreadable")
    if counted:
        advance(inbox, at(3600))
    operations.replay(inbox, [delivery_id], at(2))
    assert value(where, "SELECT state FROM delivery") == "received"

    assert plan_as(inbox, RunPlan(delivery_id, ("h",)), seconds=3) == [delivery_id]
    assert totals(inbox) == {ACCEPTED: 1, ("PingTest", "", "quarantined"): 1}


def test_a_delivery_that_is_read_as_another_type_is_counted_under_the_type_that_it_came_with(inbox):
    delivery_id = plan(inbox, handlers=(), error="unreadable")
    before = totals(inbox)

    operations.replay(inbox, [delivery_id], at(2), as_type="PaymentFailed")

    assert totals(inbox) == before == {ACCEPTED: 1, ("PingTest", "", "quarantined"): 1}


def test_a_conflict_and_an_untyped_delivery_are_counted_when_they_are_stored_and_not_accepted_too(inbox):
    plan(inbox)
    conflict = inbox.put(replace(incoming("k"), event_type="PaymentFailed", known=True)).delivery_id
    inbox.put(replace(incoming("k"), event_type="Invented", known=False))
    untyped = inbox.put(replace(incoming("other"), event_type="")).delivery_id

    kinds = (("*", "", "conflict"), ("PaymentFailed", "", "conflict"), ("", "", "untyped"))
    expected = dict.fromkeys((ACCEPTED, *kinds), 1)
    assert totals(inbox) == expected
    # An operator has them handled.
    operations.replay(inbox, [conflict], at(2))
    operations.replay(inbox, [untyped], at(2), as_type="PingTest")
    assert plan_as(inbox, RunPlan(conflict, ("h",)), RunPlan(untyped, ("h",)), seconds=3) == [
        conflict,
        untyped,
    ]
    assert totals(inbox) == expected
    advance(inbox, at(3600))
    assert totals(inbox) == expected


def test_types_without_a_model_are_counted_together(where):
    inbox = open_inbox(where)
    inbox.known_types = {"PingTest"}
    for number in range(3):
        inbox.put(replace(incoming(f"k{number}"), event_type=f"Invented{number}"))
    inbox.put(incoming("known"))

    assert totals(inbox) == {ACCEPTED: 1, ("*", "", "accepted"): 3}
    advance(inbox, at(3600))
    assert totals(inbox) == {ACCEPTED: 1, ("*", "", "accepted"): 3}
    assert value(where, "SELECT count(*) FROM billhook_count") == 2


# --- runs ---------------------------------------------------------------------------------------------


def test_attempts_are_counted_by_handler_result_and_duration(inbox):
    for number in range(4):
        plan(inbox, f"k{number}")
    one, two, three, four = claim(inbox, seconds=2)

    settle(
        inbox,
        result(one, duration_seconds=0.004),
        result(two, duration_seconds=0.005),
        result(three, RunState.DUE, 2000.0, due_at=at(60), error="e"),
        result(four, RunState.DEAD, error="e"),
    )

    def found():
        of_handler = [(key, sums) for key, sums in read_totals(inbox).items() if key.handler == "h"]
        return sorted((key.what, key.bucket, sums.number, sums.seconds) for key, sums in of_handler)

    five_ms = DURATION_BOUNDS.index(0.005)
    expected = [
        ("dead", -1, 1, 0.0),
        ("failed", len(DURATION_BOUNDS), 1, 2000.0),
        ("succeeded", five_ms, 2, pytest.approx(0.009, abs=2e-6)),
    ]
    before = found()
    assert before == expected
    advance(inbox, at(3600))
    assert found() == before


def test_each_duration_is_in_the_step_that_its_bounds_say(inbox):
    durations = [0.0, *DURATION_BOUNDS, *(bound * 1.0001 for bound in DURATION_BOUNDS)]
    for number in range(len(durations)):
        plan(inbox, f"k{number}")
    claims = claim(inbox, len(durations), 2)

    settle(inbox, *(result(one, duration_seconds=each) for one, each in zip(claims, durations, strict=True)))

    found = {key.bucket: sums.number for key, sums in read_totals(inbox).items() if key.handler == "h"}
    assert found == dict(Counter(bisect_left(DURATION_BOUNDS, each) for each in durations))


def test_a_run_remembers_when_its_handler_was_called_and_for_how_long(inbox, where):
    plan(inbox)
    (one,) = claim(inbox, seconds=2)
    query = "SELECT started_at, duration_seconds, finished_at FROM run"
    assert rows(where, query) == [("2026-01-15 12:00:02.000000", None, None)]

    settle(inbox, result(one, duration_seconds=0.25))

    assert rows(where, query) == [("2026-01-15 12:00:02.750000", 0.25, "2026-01-15 12:00:03.000000")]


@only_sqlite
def test_results_of_one_transaction_keep_their_own_moments(inbox, where):
    plan(inbox, "a")
    plan(inbox, "b")
    one, two = claim(inbox, seconds=2)

    settle(inbox, result(one), result(two)._replace(at=at(7)))

    found = column(where, "SELECT finished_at FROM run ORDER BY id")
    assert found == ["2026-01-15 12:00:03.000000", "2026-01-15 12:00:07.000000"]


def test_a_result_that_is_written_late_has_the_time_of_writing_and_is_counted(inbox, where):
    """The database was away: what happened until then has been counted meanwhile."""
    for key in "abc":
        plan(inbox, key)
    one, two, three = claim(inbox, seconds=2)
    settle(inbox, result(three)._replace(at=at(600)))
    advance(inbox, at(700))
    late = result(one, duration_seconds=0.5), result(two, RunState.DUE, due_at=at(900), error="e")

    with inbox.transaction(OWNER) as transaction:
        transaction.settle(late, lambda: at(700))

    found = rows(where, "SELECT started_at, finished_at FROM run WHERE duration_seconds IS NOT NULL")
    assert found == [("2026-01-15 12:00:02.500000", "2026-01-15 12:11:40.000000")]
    assert value(where, "SELECT failed_at FROM failure") == "2026-01-15 12:11:40.000000"
    counted = totals(inbox)
    assert (counted["", "h", "succeeded"], counted["", "h", "failed"]) == (2, 1)
    advance(inbox, at(1500))
    assert totals(inbox) == counted


def test_a_result_that_is_written_soon_has_the_time_when_its_handler_ended(inbox, where):
    plan(inbox)
    (one,) = claim(inbox, seconds=2)

    with inbox.transaction(OWNER) as transaction:
        transaction.settle([result(one)], lambda: at(3.9))

    assert value(where, "SELECT finished_at FROM run") == "2026-01-15 12:00:03.000000"


def test_a_failed_attempt_keeps_its_duration(inbox, where):
    plan(inbox)
    (one,) = claim(inbox, seconds=2)

    settle(inbox, result(one, RunState.DUE, 1.5, due_at=at(60), error="e"))

    assert rows(where, "SELECT attempt, duration_seconds FROM failure") == [(1, 1.5)]


def test_a_result_whose_lease_is_lost_and_an_attempt_that_a_stop_interrupted_are_not_counted(inbox):
    plan(inbox)
    (one,) = claim(inbox, seconds=2)

    lost = settle(inbox, result(one)._replace(lease=Lease(one.run_id, one.token - 1)))
    settled = settle(inbox, result(one, RunState.DUE, due_at=at(60), error="stopped", uncounted=True))

    assert (lost, settled) == (set(), {one.lease})
    assert totals(inbox) == {ACCEPTED: 1}


def test_an_attempt_that_is_lost_with_its_worker_is_not_counted(inbox, where):
    plan(inbox)
    claim(inbox, seconds=2)

    claim(inbox, 1, 100)

    assert value(where, "SELECT count(*) FROM failure") == 1
    assert totals(inbox) == {ACCEPTED: 1}


# --- many writers -------------------------------------------------------------------------------------


def test_every_thing_is_counted_once_by_writers_side_by_side(inbox, where):
    """Without the sorted order of rows, or with a read before the write, some would deadlock or be lost."""

    def count(_):
        for number in range(25):
            counts = Counts()
            for name in ["A", "B"] if number % 2 else ["B", "A"]:
                counts.add(Counted.REFUSED, at(number), source="s", cause=name)
            inbox._write_counts(counts)

    assert together(6, count) == [None] * 6
    found = rows(where, "SELECT cause, number FROM billhook_count ORDER BY cause")
    assert [(name, int(number)) for name, number in found] == [("A", 150), ("B", 150)]


# --- compaction ---------------------------------------------------------------------------------------


def write(inbox, moments, what=Counted.DUPLICATE):
    counts = Counts()
    for moment in moments:
        counts.add(what, moment, source="default", event_type="PingTest")
    inbox._write_counts(counts)


def compact(inbox, now):
    return list(iter(lambda: inbox.compact_counts(now), 0))


def test_hours_become_days_after_three_days_and_one_sum_after_13_months(inbox, where):
    hours = [NOON - timedelta(hours=number) for number in range(24 * 5)]
    hours += [NOON - timedelta(days=number) for number in range(5, 420)]
    write(inbox, hours)

    compact(inbox, NOON)

    found = rows(where, "SELECT hour, number FROM billhook_count ORDER BY hour")
    assert sum(number for _, number in found) == len(hours)
    days = [hour for hour, _ in found if hour < "2026-01-12"]
    assert all(hour.endswith("00:00:00.000000") for hour in days)
    assert (days[0], days[1]) == ("1970-01-01 00:00:00.000000", "2024-12-15 00:00:00.000000")
    assert len(days) == 1 + 393
    assert len(found) - len(days) == 24 * 3 + 13
    assert compact(inbox, NOON) == []


def test_what_is_counted_late_is_added_to_its_day(inbox, where):
    day = NOON - timedelta(days=10)
    write(inbox, [day])
    compact(inbox, NOON)
    write(inbox, [day + timedelta(minutes=5)])

    compact(inbox, NOON)

    assert rows(where, "SELECT hour, number, last_at FROM billhook_count") == [
        ("2026-01-05 00:00:00.000000", 2, "2026-01-05 12:05:00.000000")
    ]


def test_the_sum_of_durations_is_the_same_after_rows_are_merged(inbox, where):
    """Prometheus takes a sum that falls by a rounding error for a restart, and counts all of it again."""
    for name in range(20):
        counts = Counts()
        for number in range(24 * 5):
            seconds = (0.1, 0.7, 300.3, 0.0013)[number % 4] * (name + 1)
            facts = {"source": "s", "cause": f"c{name}", "duration_seconds": seconds}
            counts.add(Counted.REFUSED, NOON - timedelta(hours=number), **facts)
        inbox._write_counts(counts)
    before = read_totals(inbox)

    assert compact(inbox, NOON + timedelta(days=30))

    assert read_totals(inbox) == before


def test_compaction_waits_for_no_transaction_that_counts(postgres_url):
    """A process holds the rows that it counts in until its commit: compaction passes over them."""
    inbox = open_inbox(upgraded(postgres_url))
    write(inbox, [NOON - timedelta(days=5), NOON - timedelta(days=5, hours=1)])

    with inbox.database.write() as connection:
        counts = Counts()
        counts.add(Counted.DUPLICATE, NOON - timedelta(days=5), source="default", event_type="PingTest")
        counts.write(connection)
        taken = compact(inbox, NOON)

    assert taken == [1]
    assert compact(inbox, NOON) == [1]


def test_one_process_compacts_at_a_time(postgres_url):
    inbox = open_inbox(upgraded(postgres_url))
    write(inbox, [NOON - timedelta(days=5)])

    with inbox.database.write() as connection:
        assert compaction.compact(connection, NOON) == 1
        assert compact(inbox, NOON) == []

    assert value(postgres_url, "SELECT count(*) FROM billhook_count") == 1


# --- refusals and duplicates --------------------------------------------------------------------------


def refuse(buffered, cause="mismatch", number=1):
    for _ in range(number):
        buffered.add(Counted.REFUSED, NOON, source="default", cause=cause)


@only_sqlite
def test_refusals_are_written_together_some_time_later(inbox, where, monkeypatch):
    monkeypatch.setattr(inbox._counts, "_every_seconds", 0.05)
    refuse(inbox._counts, number=1000)
    refuse(inbox._counts, "stale")

    query = "SELECT cause, number FROM billhook_count WHERE what = 'refused' ORDER BY cause"
    until(lambda: rows(where, query) == [("mismatch", 1000), ("stale", 1)])


@only_sqlite
def test_refusals_are_written_when_the_process_ends(inbox, where):
    refuse(inbox._counts, number=3)

    inbox.close()

    assert rows(where, "SELECT cause, number FROM billhook_count") == [("mismatch", 3)]


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (InboxUnavailable("away"), True),
        # As in a process that was not restarted yet: with a traceback strangers could fill its log.
        (SchemaMismatch("0999", "0009"), True),
        # Not kept: they would be tried for ever, and fail those that are counted later.
        (ValueError("not a number"), False),
    ],
)
def test_counts_that_cannot_be_written_wait_in_memory_and_those_that_never_can_are_given_up(
    monkeypatch, caplog, error, is_kept
):
    monkeypatch.setattr(buffered_counts, "LIMIT", 5)
    monkeypatch.setattr(buffered_counts, "PAUSE_FACTOR", 0)
    trying, counted, written = threading.Event(), threading.Event(), []

    def write(counts):
        if not trying.is_set():
            trying.set()
            counted.wait(300)  # all others are counted while the first is tried
            raise error
        written.append({key.cause for key in counts})

    buffered = BufferedCounts(write, every_seconds=0.0)
    refuse(buffered, "first")
    trying.wait(300)
    for number in range(100):
        refuse(buffered, f"c{number}")
    counted.set()
    until(lambda: written)
    buffered.close()

    later = {f"c{number}" for number in range(5)}
    assert written == [later | {"first"} if is_kept else later]
    assert [record.levelname for record in caplog.records] == ([] if is_kept else ["ERROR"])


def test_after_a_slow_write_counts_wait_longer_for_the_next(monkeypatch):
    monkeypatch.setattr(buffered_counts, "PAUSE_FACTOR", 1e9)
    written = []

    def write(counts):
        written.append(counts)
        if len(written) == 1:
            refuse(buffered, "stale")

    buffered = BufferedCounts(write, every_seconds=0.01)
    refuse(buffered)
    until(lambda: written)
    buffered._thread.join(0.1)
    before = len(written)
    buffered.close()

    assert (before, len(written)) == (1, 2)


def test_a_process_that_ends_does_not_wait_for_a_write_that_hangs(monkeypatch):
    monkeypatch.setattr(buffered_counts, "CLOSE_SECONDS", 0.01)
    go_on = threading.Event()
    buffered = BufferedCounts(lambda counts: go_on.wait(60))
    refuse(buffered)
    giving_up = threading.Timer(10, go_on.set)
    giving_up.start()

    buffered.close()

    assert not go_on.is_set()
    giving_up.cancel()
    go_on.set()


def test_counts_are_written_where_their_thread_was_lost():
    """As where it had no memory even for its errors."""
    written = []
    buffered = BufferedCounts(written.append)
    buffered._thread = threading.Thread(target=lambda: None)
    buffered._thread.start()
    buffered._thread.join()

    refuse(buffered, number=3)
    buffered.close()

    assert [sum(each.number for each in counts.values()) for counts in written] == [3]


def test_a_child_writes_none_of_the_counts_of_its_parent():
    written = []
    buffered = BufferedCounts(written.append, every_seconds=60)
    refuse(buffered, number=3)

    def count_and_close(_):
        refuse(buffered, number=4)
        buffered.close()
        return repr([sum(each.number for each in counts.values()) for counts in written]).encode()

    in_child = in_children(1, count_and_close)
    buffered.close()

    assert in_child == [b"[4]"]
    assert [sum(each.number for each in counts.values()) for counts in written] == [3]


def test_counts_go_on_after_an_inbox_was_closed_and_opened_again():
    written = []
    buffered = BufferedCounts(written.append, every_seconds=0.0)
    buffered.close()
    buffered.reopen()

    refuse(buffered)

    until(lambda: written)


def test_counts_wait_in_memory_while_there_is_no_thread_and_the_log_says_so_once(monkeypatch, caplog):
    written = []
    buffered = BufferedCounts(written.append, every_seconds=0.0)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
        for _ in range(3):
            refuse(buffered)

    refuse(buffered)
    until(lambda: written)

    assert [sum(each.number for each in counts.values()) for counts in written] == [4]
    (message,) = caplog.messages
    assert message.startswith("counts not written yet, kept in memory: the thread billhook-counts cannot be")


def raising(error):
    def call(*_):
        raise error

    return call


@only_sqlite
def test_counting_never_waits_for_a_database_that_hangs(inbox, where, monkeypatch):
    monkeypatch.setattr(inbox._counts, "_every_seconds", 0.01)
    with hung(where):
        refuse(inbox._counts, number=100)
    until(lambda: rows(where, "SELECT sum(number) FROM billhook_count") == [(100,)])


def test_moments_of_any_zone_are_counted_in_their_hour_of_utc():
    counts = Counts()
    counts.add(Counted.ACCEPTED, datetime.fromisoformat("2026-01-15T12:30:00+05:30"), source="s")

    (key,) = counts

    assert key.hour == NOON - timedelta(hours=5)


def test_a_sum_has_the_latest_moment_whatever_comes_last():
    counts = Counts()
    for seconds in (1, 3, 2):
        counts.add(Counted.REFUSED, at(seconds), source="s")

    assert [*counts.values()] == [Sum(3, 0.0, at(3))]


def test_a_duration_is_added_to_its_step_in_parts_of_a_microsecond():
    counts = Counts()
    for seconds in (1.5, 1.1):
        counts.add(Counted.REFUSED, NOON, source="s", duration_seconds=seconds)

    ((key, added),) = counts.items()

    assert (key.bucket, added.number) == (bisect_left(DURATION_BOUNDS, 1.5), 2)
    assert added.seconds == pytest.approx(2.6, abs=1e-6)
    assert added.seconds * 2**20 == round(added.seconds * 2**20)


def test_a_row_of_counts_has_the_latest_moment_whatever_is_written_last(inbox, where):
    for seconds in (1, 3, 2):
        counts = Counts()
        counts.add(Counted.REFUSED, at(seconds), source="s")
        with inbox.database.write() as connection:
            counts.write(connection)

    assert rows(where, "SELECT number, last_at FROM billhook_count") == [(3, "2026-01-15 12:00:03.000000")]


def test_the_bounds_of_durations_are_those_of_the_rows_that_are_stored():
    """Rows have the numbers of these steps: with another bound they would mean other durations."""
    steps = [first * 10**exponent / 1000 for exponent in range(6) for first in (1, 2, 5)]

    assert [*DURATION_BOUNDS] == [*steps, 1000.0]


def test_figures_by_the_minute_are_read_from_so_many_of_the_newest_rows(inbox, monkeypatch):
    monkeypatch.setattr(counts_of_inbox, "ROWS_READ", 2)
    for number in range(3):
        plan(inbox, f"k{number}", handlers=(), error="no event")

    with inbox.database.read() as connection:
        found = counts_of_inbox.read_counts(connection, None, ("what",), NOON, by_minute=True)

    assert {key.what: each.number for key, each in found.items()} == {"accepted": 2, "quarantined": 2}
