"""What is done now and then: when, how much of it at a time, and that it stops nothing when it fails."""

from __future__ import annotations

import logging
import math
from datetime import timedelta

import pytest

from billhook.engines import maintenance
from billhook.engines.maintenance import (
    EVERY_SECONDS,
    FAILED_SECONDS,
    FIRST_SECONDS,
    Maintenance,
    MaintenanceOptions,
)
from support.inbox_view import NOON, change, incoming, rows, value
from support.timeouts import Seconds

LONG_AGO = NOON - timedelta(days=100)


@pytest.fixture
def bare_url(tmp_path) -> str:
    """Of a file alone: what is asked of the database is tested beside the inbox, on each kind."""
    (tmp_path / "billhook.db").touch(0o600)
    return f"sqlite:///{tmp_path / 'billhook.db'}"


@pytest.fixture(autouse=True)
def _without_other_steps(request, monkeypatch):
    """Counting has steps of its own between these."""
    if "counting" not in request.node.name:
        monkeypatch.setattr(maintenance, "COUNT_SECONDS", math.inf)


@pytest.fixture
def clock():
    return Seconds()


@pytest.fixture
def made(inbox, clock):
    """A maintenance whose first look is due."""
    made = Maintenance(inbox, MaintenanceOptions(retention_days=7), monotonic=clock)
    clock.now += 2 * FIRST_SECONDS
    return made


def old(inbox, where, count, *, at=LONG_AGO):
    known = left(where)
    inbox.database.insert_new([incoming(f"k{known + number}", at=at) for number in range(count)])
    change(where, "UPDATE delivery SET state = 'done'")


def left(where):
    return value(where, "SELECT count(*) FROM delivery")


def passes(made, clock, now=NOON):
    """Step after step until one has to be waited for long; the pauses."""
    pauses = []
    while not pauses or pauses[-1] < FIRST_SECONDS:
        pauses.append(made.run_if_due(now))
        clock.now += pauses[-1]
    return pauses


def test_the_first_look_is_soon_and_not_at_the_same_time_in_every_process(inbox, clock, where):
    old(inbox, where, 1)
    made = [Maintenance(inbox, MaintenanceOptions(), monotonic=clock) for _ in range(20)]

    pauses = [one.run_if_due(NOON) for one in made]

    assert left(where) == 1
    assert all(FIRST_SECONDS <= pause <= 2 * FIRST_SECONDS for pause in pauses)
    assert max(pauses) - min(pauses) > 1


def test_pruning_runs_in_small_batches_is_logged_once_and_rests_for_an_hour(
    inbox, made, clock, where, caplog
):
    caplog.set_level(logging.INFO, "billhook")
    number = inbox.database.prune_rows * 5 // 2
    old(inbox, where, number)

    pauses = passes(made, clock)

    assert left(where) == 0
    assert len(pauses) == 4  # the last but one merged the hours that pruning had added to the counts
    assert all(pause >= maintenance.MIN_PAUSE_SECONDS for pause in pauses[:-1])
    assert pauses[-1] == pytest.approx(EVERY_SECONDS)
    passes(made, clock)
    told = [message for message in caplog.messages if "retention" in message]
    assert told == [f"pruned {number} deliveries past their retention"]


@pytest.mark.parametrize(("seconds", "share"), [(0.04, 1 / 4), (2.0, 1 / 10)], ids=["quick", "slow disk"])
def test_pruning_takes_a_share_of_the_databases_time(inbox, made, clock, where, monkeypatch, seconds, share):
    old(inbox, where, 2)
    monkeypatch.setattr(inbox.database, "prune_rows", 1)
    prune = inbox.prune

    def slow(*arguments):
        clock.now += seconds
        return prune(*arguments)

    monkeypatch.setattr(inbox, "prune", slow)

    pause = made.run_if_due(NOON)

    assert seconds / (seconds + pause) == pytest.approx(share)


@pytest.mark.parametrize(
    ("took", "more", "pause"),
    [
        (0.0, False, maintenance.COUNT_SECONDS),
        (0.0, True, maintenance.MIN_PAUSE_SECONDS),
        (2.0, True, 2.0 * maintenance.PAUSE_FACTOR),
    ],
    ids=["all", "more", "slow disk"],
)
def test_counting_goes_on_every_few_seconds_soon_if_there_is_more_and_less_often_on_a_slow_disk(
    inbox, clock, where, monkeypatch, took, more, pause
):
    made, advance = Maintenance(inbox, MaintenanceOptions(), monotonic=clock), inbox.advance_watermark

    def advance_slowly(now):
        clock.now += took
        return advance(now) or more

    monkeypatch.setattr(inbox, "advance_watermark", advance_slowly)
    old(inbox, where, 1)
    assert made.run_if_due(NOON) == maintenance.COUNT_SECONDS
    clock.now += maintenance.COUNT_SECONDS

    assert made.run_if_due(NOON) == pytest.approx(pause)
    assert rows(where, "SELECT what, number FROM billhook_count") == [("accepted", 1)]


def test_before_its_time_a_step_does_nothing(inbox, made, clock, where):
    made.run_if_due(NOON)
    old(inbox, where, 1)

    clock.now += 100
    pause = made.run_if_due(NOON)

    assert pause == EVERY_SECONDS - 100
    assert left(where) == 1


def test_keys_without_a_signed_time_are_kept_for_key_days(inbox, clock, where):
    old(inbox, where, 3)
    change(where, "UPDATE delivery SET signed_at = NULL")
    for_ever = Maintenance(inbox, MaintenanceOptions(), monotonic=clock)
    for_40_days = Maintenance(inbox, MaintenanceOptions(key_days=40), monotonic=clock)
    clock.now += 2 * FIRST_SECONDS

    passes(for_ever, clock)
    kept = rows(where, "SELECT DISTINCT state FROM delivery"), left(where)
    passes(for_40_days, clock)

    assert kept == ([("pruned",)], 3)
    assert left(where) == 0


def test_deliveries_that_were_unfinished_are_pruned_within_a_day(inbox, made, clock, where):
    old(inbox, where, 3)
    change(where, "UPDATE delivery SET state = 'planned' WHERE key = 'k0'")
    passes(made, clock)
    change(where, "UPDATE delivery SET state = 'done'")

    hours = 0
    while left(where):
        hours += 1
        passes(made, clock)

    assert 1 < hours <= 25  # the hours between look on from where the last ended


def test_a_storage_failure_is_logged_and_pruning_retried(inbox, made, clock, where, caplog):
    old(inbox, where, 3)

    change(where, "ALTER TABLE delivery RENAME TO gone")
    pause = made.run_if_due(NOON)
    change(where, "ALTER TABLE gone RENAME TO delivery")
    clock.now += pause
    passes(made, clock)

    assert pause == FAILED_SECONDS
    assert "retention pass failed, retrying in 300 s: the inbox" in caplog.text
    assert left(where) == 0


def test_an_unexpected_error_is_logged_with_its_traceback_and_retried(made, caplog):
    pause = made.run_if_due("no time at all")

    assert pause == FAILED_SECONDS
    assert caplog.records[-1].exc_info
    assert made.run_if_due(NOON) == FAILED_SECONDS
