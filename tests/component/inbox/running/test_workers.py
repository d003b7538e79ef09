"""The table of workers, on both databases: who is in it, and for how long."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from billhook.basics.process_identity import ProcessIdentity, own_process
from billhook.engines.maintenance import (
    COUNT_SECONDS,
    REGISTRATION_SECONDS,
    Maintenance,
    MaintenanceOptions,
    WorkerRegistration,
)
from billhook.handlers.retry import LONGEST_SECONDS
from billhook.inbox import RunState, WorkerRecord
from billhook.inbox.running.handler_lists import HandlerList
from billhook.inbox.running.workers import WORKER_KEPT_FOR, read_sharing, record_stop
from billhook.inbox.watching.overview import read_state
from support.handler_lists import lists_of
from support.inbox_view import NOON, change, column, open_inbox, rows
from support.postgres import only_sqlite
from support.runs import claim, planned, settle

SECOND = timedelta(seconds=1)
ROW = "SELECT owner, engine, handlers, started_at, seen_at FROM billhook_worker ORDER BY owner"


def owners(where):
    return column(where, "SELECT owner FROM billhook_worker ORDER BY owner")


def test_a_worker_is_one_row_with_the_time_it_was_last_seen(inbox, where):
    inbox.record_worker(WorkerRecord("a", "worker", 2, NOON), NOON)
    inbox.record_worker(WorkerRecord("b", "celery", None, NOON), NOON)
    inbox.record_worker(WorkerRecord("a", "worker", 3, NOON), NOON + 20 * SECOND)

    assert rows(where, ROW) == [
        ("a", "worker", 3, "2026-01-15 12:00:00.000000", "2026-01-15 12:00:20.000000"),
        ("b", "celery", None, "2026-01-15 12:00:00.000000", "2026-01-15 12:00:00.000000"),
    ]
    assert inbox.worker_seen_at() == NOON + 20 * SECOND


def test_the_live_workers_of_an_engine_with_one_list_share_the_sweep(inbox, where):
    lists = [HandlerList({"PingTest": {name: ()}, "": {}}, {}) for name in ("one", "other")]
    for owner, engine, own in (
        ("b", "celery", lists[0]),
        ("a", "celery", lists[0]),
        ("another list", "celery", lists[1]),
        ("another engine", "rq", lists[0]),
        ("asked to stop", "celery", lists[0]),
        ("died", "celery", lists[0]),
    ):
        inbox.record_worker(WorkerRecord(owner, engine, 1, NOON), NOON, own)
    inbox.record_worker(WorkerRecord("silent", "celery", 1, NOON), NOON - 60 * SECOND, lists[0])
    inbox.record_stopping("asked to stop")
    change(where, "UPDATE billhook_worker SET died_at = seen_at WHERE owner = 'died'")
    number = inbox.record_list(lists[0], NOON)

    with inbox.database.read() as connection:
        assert read_sharing(connection, "celery", number, NOON) == ("a", "b")


def test_a_worker_that_stopped_in_order_is_no_longer_looked_for(inbox, where):
    assert inbox.worker_seen_at() is None
    inbox.record_worker(WorkerRecord("a", "worker", 2, NOON), NOON)

    inbox.record_stop("another")
    assert inbox.worker_seen_at() == NOON
    inbox.record_stop("a")

    assert inbox.worker_seen_at() is None
    assert read_state(inbox, NOON).workers == []
    assert owners(where) == ["a"]


@pytest.mark.parametrize(("seconds", "expected"), [(60, NOON), (61, None)])
def test_one_that_was_lost_is_not_missed_when_the_last_has_stopped_in_order(inbox, seconds, expected):
    """Seen within a minute before, it may be alive."""
    for owner in ("lost", "last"):
        inbox.record_worker(WorkerRecord(owner, "worker", 2, NOON), NOON)

    with inbox.database.write() as connection:
        record_stop(connection, "last", NOON + seconds * SECOND)

    assert inbox.worker_seen_at() == expected


def test_a_worker_that_goes_on_has_not_stopped(inbox):
    inbox.record_worker(WorkerRecord("a", "worker", 2, NOON), NOON)
    inbox.record_stop("a")

    inbox.record_worker(WorkerRecord("a", "worker", 2, NOON), NOON + SECOND)

    assert inbox.worker_seen_at() == NOON + SECOND


def test_a_worker_has_its_host_its_threads_and_the_name_of_its_release(where):
    inbox = open_inbox(where, release="2026-01-14.2")
    record = WorkerRecord("a", "worker", 2, NOON, host="web-1", pid=7, threads=4)
    inbox.record_worker(record, NOON)
    inbox.record_worker(record, NOON + SECOND)
    (found,) = read_state(inbox, NOON).workers

    assert (found.host, found.pid, found.threads, found.release) == ("web-1", 7, 4, "2026-01-14.2")
    assert rows(where, "SELECT name FROM billhook_release") == [("2026-01-14.2",)]


def test_a_run_keeps_its_last_worker_and_release_and_each_failure_its_own(where):
    def attempt(release, owner, state, seconds, **more):
        inbox = open_inbox(where, release=release)
        settle(inbox, claim(inbox, 1, seconds, owner=owner), state, 1, owner=owner, **more)

    planned(open_inbox(where), "h")
    attempt("one", "a", RunState.DUE, 1, due=10)
    attempt("two", "b", RunState.DUE, 20, due=30)
    attempt("two", "c", RunState.SUCCEEDED, 40)

    named = "worker, name FROM {} JOIN billhook_release AS r ON r.id = release_id"
    assert rows(where, f"SELECT {named.format('run')}") == [("c", "two")]
    assert rows(where, f"SELECT {named.format('failure')} ORDER BY attempt") == [("a", "one"), ("b", "two")]


def test_a_lost_attempt_is_a_failure_of_the_worker_that_lost_it(inbox, where):
    planned(inbox, "h")
    claim(inbox, 1, owner="dies")

    claim(inbox, 0, 31, owner="another")

    release = "(SELECT id FROM billhook_release WHERE name = '')"
    assert rows(where, f"SELECT worker, release_id = {release} FROM failure") == [("dies", True)]


def test_a_worker_not_seen_for_a_day_is_removed_by_the_next_one(inbox, where):
    inbox.record_worker(WorkerRecord("older", "worker", 2, NOON), NOON)
    inbox.record_worker(WorkerRecord("old", "worker", 2, NOON), NOON + SECOND)

    inbox.record_worker(WorkerRecord("new", "worker", 2, NOON), NOON + WORKER_KEPT_FOR + SECOND)

    assert owners(where) == ["new", "old"]


def test_what_is_due_later_than_any_wait_may_take_is_made_due(inbox, where):
    """As after a clock that was ahead; a lease is left, and the longest wait with the most jitter."""
    longest = NOON + 2 * timedelta(seconds=LONGEST_SECONDS)
    far, longest = (f"{moment:%Y-%m-%d %H:%M:%S.%f}" for moment in (longest + SECOND, longest))
    for number, due_at in enumerate([far, longest, far]):
        stored = planned(inbox, "h", key=f"k{number}")
        change(where, "UPDATE run SET due_at = ? WHERE delivery_id = ?", due_at, stored)
    change(where, "UPDATE run SET state = 'running' WHERE delivery_id = ?", stored)

    inbox.record_worker(WorkerRecord("a", "worker", 2, NOON), NOON)

    found = column(where, "SELECT due_at FROM run ORDER BY id")
    assert found == ["2026-01-15 12:00:00.000000", longest, far]


@pytest.fixture
def registration(inbox):
    return WorkerRegistration(inbox, "a", "thread", lists_of(inbox), lambda: registration_time[0])


registration_time = [50.0]


@only_sqlite
def test_a_row_is_written_at_start_and_every_twenty_seconds_and_says_at_the_end_that_it_stopped(
    inbox, where, registration
):
    # The times of closing and pruning are of another clock, which stands still.
    maintenance = Maintenance(inbox, MaintenanceOptions(), registration=registration, monotonic=lambda: 0.0)

    assert maintenance.run_if_due(NOON) == COUNT_SECONDS
    registration_time[0] += REGISTRATION_SECONDS - 1
    assert maintenance.run_if_due(NOON + 19 * SECOND) == 1
    assert inbox.worker_seen_at() == NOON
    registration_time[0] += 1
    maintenance.run_if_due(NOON + 20 * SECOND)
    assert inbox.worker_seen_at() == NOON + 20 * SECOND
    assert rows(where, ROW)[0][:4] == ("a", "thread", 4, "2026-01-15 12:00:00.000000")
    maintenance.close()

    assert inbox.worker_seen_at() is None


@only_sqlite
def test_a_failed_worker_registration_is_logged_and_ignored(inbox, registration, caplog):
    with inbox.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE billhook_worker")

    assert registration.refresh(NOON) == REGISTRATION_SECONDS
    registration.stop()

    (record,) = caplog.records
    assert record.getMessage().startswith("could not register this worker, retrying in 20 s: ")


@only_sqlite
def test_a_worker_that_never_registered_writes_nothing(inbox, registration):
    with inbox.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE billhook_worker")

    registration.stop()


@pytest.fixture
def gone():
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@only_sqlite
@pytest.mark.parametrize(
    ("space", "pid", "seconds", "is_told"),
    [
        ("own", "gone", 3, True),
        ("own", "own", 3, True),  # another process had this one's id
        ("own", "gone", 3_600, False),
        ("own", "runs", 3, False),
        ("another", "gone", 3, False),  # two containers of one host name
        ("another", "own", 3, False),
        (None, "gone", 3, False),  # of a system that does not say where its ids are valid
    ],
)
def test_the_next_worker_logs_that_its_predecessor_is_gone(inbox, space, pid, seconds, is_told, gone, caplog):
    owner, seen = "the last", NOON - seconds * SECOND
    own = own_process()
    process = {
        "gone": ProcessIdentity(gone, own.pid_space, 1),
        "own": own._replace(pid_ticks=1),
        "runs": own,
    }[pid]
    spaces = {"own": own.pid_space, "another": "another boot/4026531836"}
    record = replace(WorkerRecord(owner, "worker", 1, seen - 2 * SECOND), **process._asdict())
    inbox.record_worker(replace(record, pid_space=spaces.get(space), host=socket.gethostname()), seen)

    registration = WorkerRegistration(inbox, "the next", "worker", lists_of(inbox))
    registration.refresh(NOON)
    registration.refresh(NOON)  # at its start, and not again

    text = f"worker {owner} is gone: started 5 s ago, last seen 3 s ago, it did not stop in order"
    assert caplog.text.count(text) == is_told
    assert caplog.text.count("is gone") == is_told
