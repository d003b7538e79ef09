"""The table of workers, on both databases: who is in it, and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest
from kit import NOON, rows

from billhook.engines.registration import EVERY_SECONDS, Registration
from billhook.engines.upkeep import Upkeep
from billhook.inbox.workers import KEPT, Worker

SECOND = timedelta(seconds=1)
ROW = "SELECT owner, engine, handlers, started_at, seen_at FROM billhook_worker ORDER BY owner"


def owners(where):
    return [owner for (owner,) in rows(where, "SELECT owner FROM billhook_worker ORDER BY owner")]


def test_a_worker_is_one_row_that_says_when_it_was_last_seen(inbox, where):
    inbox.note_worker(Worker("a", "worker", 2, NOON), NOON)
    inbox.note_worker(Worker("b", "celery", None, NOON), NOON)
    inbox.note_worker(Worker("a", "worker", 3, NOON), NOON + 20 * SECOND)

    assert rows(where, ROW) == [
        ("a", "worker", 3, "2026-01-15 12:00:00.000000", "2026-01-15 12:00:20.000000"),
        ("b", "celery", None, "2026-01-15 12:00:00.000000", "2026-01-15 12:00:00.000000"),
    ]
    assert inbox.worker_seen_at() == NOON + 20 * SECOND


def test_one_that_ended_in_order_is_none_any_more(inbox, where):
    assert inbox.worker_seen_at() is None
    inbox.note_worker(Worker("a", "worker", 2, NOON), NOON)

    inbox.forget_worker("another")
    assert owners(where) == ["a"]
    inbox.forget_worker("a")

    assert inbox.worker_seen_at() is None


def test_one_that_was_not_seen_for_a_day_is_let_go_of_by_the_next(inbox, where):
    inbox.note_worker(Worker("older", "worker", 2, NOON), NOON)
    inbox.note_worker(Worker("old", "worker", 2, NOON), NOON + SECOND)

    inbox.note_worker(Worker("new", "worker", 2, NOON), NOON + KEPT + SECOND)

    assert owners(where) == ["new", "old"]


@pytest.fixture
def registration(inbox):
    return Registration(inbox, "a", "thread", lambda: 4, lambda: registration_time[0])


registration_time = [50.0]


def test_a_row_is_written_at_start_and_every_twenty_seconds_and_deleted_at_the_end(
    inbox, where, registration
):
    upkeep = Upkeep(inbox, retention_days=30, registration=registration)

    assert upkeep.step(NOON) == EVERY_SECONDS
    registration_time[0] += EVERY_SECONDS - 1
    assert upkeep.step(NOON + 19 * SECOND) == 1
    assert inbox.worker_seen_at() == NOON
    registration_time[0] += 1
    upkeep.step(NOON + 20 * SECOND)
    assert inbox.worker_seen_at() == NOON + 20 * SECOND
    assert rows(where, ROW)[0][:4] == ("a", "thread", 4, "2026-01-15 12:00:00.000000")
    upkeep.end()

    assert owners(where) == []


def test_a_table_that_cannot_be_written_is_told_and_stops_nothing(inbox, registration, caplog):
    with inbox.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE billhook_worker")

    assert registration.step(NOON) == EVERY_SECONDS
    registration.end()

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "it is not noted that this worker runs",
        "it is not noted that this worker ended",
    ]


def test_one_that_has_not_begun_has_nothing_to_delete(inbox, registration):
    with inbox.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE billhook_worker")

    registration.end()
