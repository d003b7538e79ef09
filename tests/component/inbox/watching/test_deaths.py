"""Which workers are known to have died, on both databases: by their process ids, and by their parent."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import pytest

from billhook.basics.process_identity import own_process
from billhook.inbox import WorkerRecord
from billhook.inbox.reading.worker_list import WorkerState, list_workers
from billhook.inbox.watching import deaths
from billhook.inbox.watching.deaths import lost_before, record_death_of_child, record_deaths
from billhook.inbox.watching.overview import read_state
from support.inbox_view import NOON, rows

SECOND = timedelta(seconds=1)
OWN = own_process()
ANOTHER = "another boot/4026531836"
ROW = "SELECT owner, died_at FROM billhook_worker ORDER BY owner"


def seen(inbox, owner, *, space=OWN.pid_space, ticks=1, pid=OWN.pid, host="a machine", at=NOON):
    """A worker that has this process's id; of another time it has ended."""
    record = WorkerRecord(owner, "worker", 1, at, host=host, pid=pid, pid_space=space, pid_ticks=ticks)
    inbox.record_worker(record, at)
    return record


@pytest.mark.parametrize(("seconds", "died"), [(3, "12:00:03"), (20, "12:00:20"), (3_600, "12:00:20")])
def test_a_worker_has_died_by_the_time_that_is_proven_or_when_it_was_to_be_seen_again(
    inbox, where, seconds, died
):
    seen(inbox, "gone")
    seen(inbox, "runs", ticks=OWN.pid_ticks)

    (dead,) = record_deaths(inbox, NOON + seconds * SECOND)

    assert (dead.owner, dead.started_at) == ("gone", NOON)
    assert rows(where, ROW) == [("gone", f"2026-01-15 {died}.000000"), ("runs", None)]
    assert record_deaths(inbox, NOON + seconds * SECOND) == []


@pytest.mark.parametrize("space", [ANOTHER, None])
def test_a_process_id_of_another_place_proves_nothing(inbox, where, space):
    seen(inbox, "of another pod", space=space)

    assert record_deaths(inbox, NOON + SECOND) == []
    assert rows(where, ROW) == [("of another pod", None)]


def test_a_worker_that_stopped_in_order_has_not_died(inbox):
    seen(inbox, "stopped")
    inbox.record_stop("stopped")

    assert record_deaths(inbox, NOON + SECOND) == []


def test_a_worker_that_is_seen_again_has_not_died(inbox, where):
    record = seen(inbox, "a")
    record_deaths(inbox, NOON + SECOND)

    inbox.record_worker(record, NOON + 2 * SECOND)

    assert rows(where, ROW) == [("a", None)]


def test_a_worker_that_died_is_lost_at_once(inbox):
    seen(inbox, "gone")
    record_deaths(inbox, NOON + SECOND)

    (listed,) = list_workers(inbox, NOON + SECOND)
    (figures,) = read_state(inbox, NOON + SECOND).workers

    assert (listed.state, listed.ended_at) == (WorkerState.LOST, NOON + SECOND)
    assert not figures.alive


def test_two_incarnations_of_a_pod_are_told_apart(inbox):
    """The same host and process id: the one that runs is not taken for dead, nor for its successor."""
    seen(inbox, "first", space=ANOTHER)
    seen(inbox, "second", ticks=OWN.pid_ticks, at=NOON + SECOND)

    assert record_deaths(inbox, NOON + 2 * SECOND) == []
    assert {one.state for one in list_workers(inbox, NOON + 2 * SECOND)} == {WorkerState.RUNNING}


def test_of_workers_that_died_the_last_are_kept(inbox, where, monkeypatch):
    monkeypatch.setattr(deaths, "_KEPT", 3)
    for number in range(9):
        seen(inbox, f"w{number}", at=NOON + number * SECOND)
        record_deaths(inbox, NOON + number * SECOND)
    seen(inbox, "runs", ticks=OWN.pid_ticks)

    assert [owner for owner, _ in rows(where, ROW)] == ["runs", "w6", "w7", "w8"]


@pytest.mark.parametrize("has_row", [True, False])
def test_the_death_of_a_child_is_recorded_with_or_without_a_row(inbox, where, has_row):
    if has_row:
        seen(inbox, "its own", pid=7, at=NOON + SECOND)
    seen(inbox, "had the same id before", pid=7, at=NOON - SECOND)
    inbox.record_stop("had the same id before")

    record_death_of_child(inbox, 7, NOON, NOON + 2 * SECOND)

    found = {
        row[0]: row[1:] for row in rows(where, "SELECT owner, engine, handlers, died_at FROM billhook_worker")
    }
    del found["had the same id before"]
    ((owner, row),) = found.items()
    assert row == ("worker", 1 if has_row else None, "2026-01-15 12:00:02.000000")
    assert owner.startswith("its own" if has_row else f"{socket.gethostname()}:7:")


def test_a_child_that_stopped_in_order_has_not_died(inbox, where):
    seen(inbox, "a", pid=7)
    inbox.record_stop("a")

    record_death_of_child(inbox, 7, NOON, NOON + SECOND)

    assert rows(where, ROW) == [("a", None)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, True),  # it has died
        ({"ticks": OWN.pid_ticks}, False),  # it runs
        ({"space": ANOTHER}, False),
        ({"space": ANOTHER, "host": socket.gethostname()}, True),  # it may have died
        ({"space": None, "host": socket.gethostname()}, True),
        ({"at": NOON - 3_600 * SECOND}, False),
    ],
)
def test_workers_died_before_this_one_or_may_have_where_it_starts(inbox, how, expected):
    seen(inbox, "another", **how)
    seen(inbox, "own", ticks=OWN.pid_ticks, host=socket.gethostname(), pid=os.getpid())
    record_deaths(inbox, NOON)

    assert lost_before(inbox, "own", NOON) == expected
