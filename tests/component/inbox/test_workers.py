"""The table of workers, on both databases: who is in it, and for how long."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest

from billhook.engines.maintenance import (
    CLOSE_SECONDS,
    REGISTRATION_SECONDS,
    Maintenance,
    MaintenanceOptions,
    WorkerRegistration,
)
from billhook.inbox import RunPlan, WorkerRecord
from billhook.inbox.inbox import WORKER_KEPT_FOR
from support.inbox_view import NOON, change, incoming, rows
from support.postgres import only_sqlite

SECOND = timedelta(seconds=1)
ROW = "SELECT owner, engine, handlers, started_at, seen_at FROM billhook_worker ORDER BY owner"


def owners(where):
    return [owner for (owner,) in rows(where, "SELECT owner FROM billhook_worker ORDER BY owner")]


def test_a_worker_is_one_row_with_the_time_it_was_last_seen(inbox, where):
    inbox.record_worker(WorkerRecord("a", "worker", 2, NOON), NOON)
    inbox.record_worker(WorkerRecord("b", "celery", None, NOON), NOON)
    inbox.record_worker(WorkerRecord("a", "worker", 3, NOON), NOON + 20 * SECOND)

    assert rows(where, ROW) == [
        ("a", "worker", 3, "2026-01-15 12:00:00.000000", "2026-01-15 12:00:20.000000"),
        ("b", "celery", None, "2026-01-15 12:00:00.000000", "2026-01-15 12:00:00.000000"),
    ]
    assert inbox.worker_seen_at() == NOON + 20 * SECOND


def test_a_worker_that_ended_in_order_is_removed_from_the_table(inbox, where):
    assert inbox.worker_seen_at() is None
    inbox.record_worker(WorkerRecord("a", "worker", 2, NOON), NOON)

    inbox.remove_worker("another")
    assert owners(where) == ["a"]
    inbox.remove_worker("a")

    assert inbox.worker_seen_at() is None


def test_a_worker_not_seen_for_a_day_is_removed_by_the_next_one(inbox, where):
    inbox.record_worker(WorkerRecord("older", "worker", 2, NOON), NOON)
    inbox.record_worker(WorkerRecord("old", "worker", 2, NOON), NOON + SECOND)

    inbox.record_worker(WorkerRecord("new", "worker", 2, NOON), NOON + WORKER_KEPT_FOR + SECOND)

    assert owners(where) == ["new", "old"]


def test_what_is_due_later_than_any_wait_may_take_is_made_due(inbox, where):
    """As after a clock that was years ahead; a long wait is left as it is, and a lease."""
    far = "2031-01-15 12:00:00.000000"
    for number, due_at in enumerate([far, "2026-03-10 12:00:00.000000", far]):
        stored = inbox.put(incoming(f"k{number}")).delivery_id
        with inbox.transaction("a") as transaction:
            transaction.plan([RunPlan(stored, ("h",))], NOON)
        change(where, "UPDATE run SET due_at = ? WHERE delivery_id = ?", due_at, stored)
    change(where, "UPDATE run SET state = 'running' WHERE delivery_id = ?", stored)

    inbox.record_worker(WorkerRecord("a", "worker", 2, NOON), NOON)

    found = [due_at for (due_at,) in rows(where, "SELECT due_at FROM run ORDER BY id")]
    assert found == ["2026-01-15 12:00:00.000000", "2026-03-10 12:00:00.000000", far]


@pytest.fixture
def registration(inbox):
    return WorkerRegistration(inbox, "a", "thread", lambda: 4, lambda: registration_time[0])


registration_time = [50.0]


@only_sqlite
def test_a_row_is_written_at_start_and_every_twenty_seconds_and_deleted_at_the_end(
    inbox, where, registration
):
    # The times of closing and pruning are of another clock, which stands still.
    maintenance = Maintenance(inbox, MaintenanceOptions(), registration=registration, monotonic=lambda: 0.0)

    assert maintenance.run_if_due(NOON) == CLOSE_SECONDS
    registration_time[0] += REGISTRATION_SECONDS - 1
    assert maintenance.run_if_due(NOON + 19 * SECOND) == 1
    assert inbox.worker_seen_at() == NOON
    registration_time[0] += 1
    maintenance.run_if_due(NOON + 20 * SECOND)
    assert inbox.worker_seen_at() == NOON + 20 * SECOND
    assert rows(where, ROW)[0][:4] == ("a", "thread", 4, "2026-01-15 12:00:00.000000")
    maintenance.close()

    assert owners(where) == []


@only_sqlite
def test_a_failed_worker_registration_is_logged_and_ignored(inbox, registration, caplog):
    with inbox.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE billhook_worker")

    assert registration.refresh(NOON) == REGISTRATION_SECONDS
    registration.remove()

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "could not register this worker, retrying in 20 s",
        "could not remove this worker's registration",
    ]


@only_sqlite
def test_a_worker_that_never_registered_deletes_nothing(inbox, registration):
    with inbox.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE billhook_worker")

    registration.remove()


@pytest.fixture
def gone():
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@only_sqlite
@pytest.mark.parametrize(
    ("owner", "seconds", "is_told"),
    [
        ("{host}:{gone}:aaa", 3, True),
        ("{host}:{own}:aaa", 3, True),  # a container starts its process with the same id again
        ("{host}:{gone}:aaa", 3_600, False),
        ("{host}:1:aaa", 3, False),  # it runs
        ("another:{gone}:aaa", 3, False),
        ("nonsense", 3, False),
    ],
)
def test_the_next_worker_logs_that_its_predecessor_is_gone(inbox, owner, seconds, is_told, gone, caplog):
    host = socket.gethostname()
    owner = owner.format(host=host, gone=gone, own=os.getpid())
    seen = NOON - seconds * SECOND
    inbox.record_worker(WorkerRecord(owner, "worker", 1, seen - 2 * SECOND), seen)

    registration = WorkerRegistration(inbox, f"{host}:{os.getpid()}:bbb", "worker", lambda: 1)
    registration.refresh(NOON)
    registration.refresh(NOON)  # at its start, and not again

    text = f"worker {owner} is gone: started 5 s ago, last seen 3 s ago, it did not stop in order"
    assert caplog.text.count(text) == is_told
    assert caplog.text.count("is gone") == is_told
