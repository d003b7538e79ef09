"""What operators are shown of an inbox: backlog, types, handlers, refusals, workers; and by hour and day."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from billhook.inbox import Counted, RunPlan, RunState, WorkerRecord
from billhook.inbox.counting import counts
from billhook.inbox.counting.counts import DURATION_BOUNDS, Counts
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.watching import overview
from billhook.inbox.watching.overview import percentile, read_overview, read_periods
from support.inbox_view import NOON, incoming, value
from support.runs import claim, settle
from support.runs import plan as plan_as

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def put(inbox, key, event_type="PingTest", minutes=0):
    new = replace(incoming(key), event_type=event_type, received_at=NOON + timedelta(minutes=minutes))
    return inbox.put(replace(new, known=True)).delivery_id


def plan(inbox, delivery_id, *handlers, error=None):
    plan_as(inbox, RunPlan(delivery_id, handlers, error))


def run(inbox, state=RunState.SUCCEEDED, seconds=0.004, due_at=None):
    """Claim and settle what is due."""
    settle(inbox, claim(inbox), state, due_at=due_at, duration_seconds=seconds)


# --- backlog ------------------------------------------------------------------------------------------


def test_the_backlog_is_what_is_unread_in_progress_or_failed(inbox):
    plan(inbox, put(inbox, "dead"), "h")
    run(inbox, RunState.DEAD)
    plan(inbox, put(inbox, "done"), "h")
    run(inbox)
    plan(inbox, put(inbox, "unreadable"), error="e")
    put(inbox, "done", "PaymentFailed")
    plan(inbox, put(inbox, "in progress", minutes=3), "h")
    put(inbox, "unread", minutes=5)

    found = read_overview(inbox, NOON).backlog

    oldest_at = NOON + timedelta(minutes=3)
    unread_at = NOON + timedelta(minutes=5)
    assert found == overview.Backlog(1, 1, oldest_at, unread_at, dead=1, quarantined=2, conflicts=1)
    assert found.waiting == 2


def test_large_numbers_are_counted_up_to_a_limit(inbox, monkeypatch):
    monkeypatch.setattr(overview, "COUNT_LIMIT", 3)
    for number in range(5):
        put(inbox, f"k{number}")

    assert read_overview(inbox, NOON).backlog.unread == 3


# --- types --------------------------------------------------------------------------------------------


def test_each_type_has_its_numbers_and_its_last_delivery(inbox):
    plan(inbox, put(inbox, "a"), "h")
    plan(inbox, put(inbox, "b", minutes=7), "h")
    put(inbox, "a", "PaymentFailed", minutes=8)
    plan(inbox, put(inbox, "c", "PaymentFailed", minutes=9), error="unreadable")
    put(inbox, "unread", "CustomerCreated", minutes=11)
    inbox.count(Counted.DUPLICATE, NOON, source="default", event_type="PingTest")
    inbox._counts.close()

    found = {one.event_type: one for one in read_overview(inbox, NOON).types}

    figures = overview.TypeFigures
    after = timedelta(minutes=1)
    assert found == {
        "PingTest": figures("PingTest", accepted=2, duplicates=1, last_at=NOON + 7 * after),
        "PaymentFailed": figures(
            "PaymentFailed", accepted=1, conflicts=1, quarantined=1, last_at=NOON + 9 * after
        ),
        "CustomerCreated": figures("CustomerCreated", accepted=1, last_at=NOON + 11 * after),
    }
    assert read_overview(inbox, NOON).last_at == NOON + 11 * after


def test_the_last_delivery_is_known_after_retention_has_deleted_it(inbox, where):
    plan(inbox, put(inbox, "a"))
    inbox.prune(Cutoffs(NOON + HOUR, NOON + HOUR, None))
    assert value(where, "SELECT count(*) FROM delivery") == 0

    (found,) = read_overview(inbox, NOON).types

    assert (found.accepted, found.last_at) == (1, NOON)


def test_what_is_older_than_a_day_is_left_out(inbox):
    plan(inbox, put(inbox, "old", minutes=-60 * 5))
    plan(inbox, put(inbox, "new"))

    assert [one.accepted for one in read_overview(inbox, NOON + 20 * HOUR).types] == [1]
    assert [one.accepted for one in read_overview(inbox, NOON + 19 * HOUR).types] == [2]


# --- handlers -----------------------------------------------------------------------------------------


def test_each_handler_has_its_attempts_and_durations(inbox):
    plan(inbox, put(inbox, "a"), "h", "g")
    run(inbox, seconds=0.004)
    plan(inbox, put(inbox, "b"), "h")
    run(inbox, RunState.DUE, seconds=15.0, due_at=NOON + HOUR)
    plan(inbox, put(inbox, "c"), "g")
    run(inbox, RunState.DEAD, seconds=0.15)
    plan(inbox, put(inbox, "d"), "g")
    run(inbox, RunState.DISCARDED, seconds=None)

    g, h = read_overview(inbox, NOON).handlers

    assert (h.name, h.succeeded, h.failed, h.dead, h.discarded) == ("h", 1, 1, 0, 0)
    assert (g.name, g.succeeded, g.failed, g.dead, g.discarded) == ("g", 1, 0, 1, 1)
    # Few calls: those of the runs themselves, not what their steps of duration say (0.005 and 19.0).
    assert (h.p50_seconds, h.p95_seconds) == (pytest.approx(0.004), pytest.approx(15.0))


def test_a_percentile_is_estimated_within_its_step_of_duration():
    assert percentile({}, 0.5) is None
    for buckets, part, expected in [
        ({0: 10}, 0.5, 0.0005),
        ({3: 100}, 0.5, 0.0075),
        ({3: 100}, 1.0, 0.01),
        ({3: 50, 6: 50}, 0.5, 0.01),
        ({3: 50, 6: 50}, 0.95, 0.095),
        ({len(DURATION_BOUNDS): 1}, 0.95, 1000.0),
    ]:
        assert percentile(buckets, part) == pytest.approx(expected), (buckets, part)


# --- refusals, workers, handlers that are paused ------------------------------------------------------


def test_refusals_are_shown_by_cause_with_how_far_their_clocks_were_off(inbox):
    refuse = {"source": "default"}
    inbox.count(Counted.REFUSED, NOON, cause="mismatch", **refuse)
    inbox.count(Counted.REFUSED, NOON, cause="stale", duration_seconds=400, **refuse)
    inbox.count(Counted.REFUSED, NOON, cause="stale", duration_seconds=600, **refuse)
    inbox._counts.close()

    found = read_overview(inbox, NOON)

    assert found.refused == {"mismatch": 1, "stale": 2}
    assert found.refused_seconds == {"stale": pytest.approx(500)}


def test_workers_are_shown_and_those_that_are_silent(inbox):
    for owner, seconds in (("gone:1", -61), ("host:2", -59)):
        seen_at = NOON + timedelta(seconds=seconds)
        inbox.record_worker(WorkerRecord(owner, "worker", 3, NOON - HOUR), seen_at)

    workers = read_overview(inbox, NOON).workers

    assert [(one.owner, one.alive) for one in workers] == [("gone:1", False), ("host:2", True)]


# --- periods ------------------------------------------------------------------------------------------


def test_periods_have_what_happened_in_each_hour_and_day(inbox):
    counted = Counts()
    for hours, what, labels in [
        (0, Counted.ACCEPTED, {"event_type": "PingTest"}),
        (0, Counted.ACCEPTED, {"event_type": "PaymentFailed"}),
        (2, Counted.ACCEPTED, {"event_type": "PingTest"}),
        (2, Counted.REFUSED, {"cause": "stale"}),
        (2, Counted.SUCCEEDED, {"event_type": "PingTest"}),
    ]:
        counted.add(what, NOON + hours * HOUR, source="default", **labels)
    inbox._write_counts(counted)

    hours = read_periods(inbox, NOON, NOON + 3 * HOUR, HOUR)
    (day,) = read_periods(inbox, NOON.replace(hour=0), NOON.replace(hour=0) + 24 * HOUR, 24 * HOUR)

    assert [one.at for one in hours] == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert [dict(one.counted) for one in hours] == [
        {Counted.ACCEPTED: 2},
        {},
        {Counted.ACCEPTED: 1, Counted.REFUSED: 1, Counted.SUCCEEDED: 1},
    ]
    assert hours[2].refused == {"stale": 1}
    assert dict(day.by_type) == {"PingTest": 2, "PaymentFailed": 1}


def test_minutes_are_read_from_the_newest_rows(inbox, monkeypatch):
    for key, minutes in (("before", -1), ("a", 0), ("b", 2), ("c", 2)):
        put(inbox, key, minutes=minutes)
    for delivery_id, state in ((2, RunState.SUCCEEDED), (3, RunState.DUE)):
        plan(inbox, delivery_id, "h", "other")
        run(inbox, state, due_at=NOON + 9 * HOUR)

    def minutes(**more):
        return read_periods(inbox, NOON, NOON + 3 * MINUTE, MINUTE, **more)

    found = minutes()
    assert [one.at for one in found] == [NOON, NOON + MINUTE, NOON + 2 * MINUTE]
    assert [one.counted[Counted.ACCEPTED] for one in found] == [1, 0, 2]
    assert found[0].by_type == {"PingTest": 1}
    assert (found[0].counted[Counted.SUCCEEDED], found[0].counted[Counted.FAILED]) == (2, 2)
    of_it = minutes(handlers=["h"])
    assert dict(of_it[0].counted) == {Counted.SUCCEEDED: 1, Counted.FAILED: 1}
    assert 0.002 < percentile(of_it[0].durations, 0.95) <= 0.005

    monkeypatch.setattr(counts, "ROWS_READ", 1)
    newest = minutes()
    assert [one.counted[Counted.ACCEPTED] for one in newest] == [0, 0, 1]
    assert newest[0].counted[Counted.FAILED] == 1


def test_durations_of_an_hour_are_those_of_its_attempts_where_these_are_few_and_else_estimated(
    inbox, monkeypatch
):
    for key, state, seconds in (
        ("a", RunState.SUCCEEDED, 0.30),
        ("b", RunState.DUE, 0.32),
        ("c", RunState.SUCCEEDED, 0.48),
        ("d", RunState.DISCARDED, None),  # without a call
    ):
        plan(inbox, put(inbox, key), "h")
        run(inbox, state, seconds, due_at=NOON + 9 * HOUR if state is RunState.DUE else None)

    def took():
        before, hour = read_periods(inbox, NOON - HOUR, NOON + HOUR, HOUR, handlers=["h"])
        assert (before.is_estimated, before.took(0.5)) == (False, None)
        return hour.is_estimated, hour.took(0.5), hour.took(0.95)

    assert took() == (False, pytest.approx(0.32), pytest.approx(0.48))
    monkeypatch.setattr(overview, "FEW_CALLS", 2)
    # All three are in the step from 0.2 to 0.5 s.
    assert took() == (True, pytest.approx(0.35), pytest.approx(0.485))
