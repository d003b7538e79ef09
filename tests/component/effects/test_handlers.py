"""`delivery.once` in handlers, and after a replay; engines/test_every_engine.py has failed attempts."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from billhook import Handlers, effects
from billhook.events import InvoiceApproved, PingTest, sample
from billhook.extension import get_state
from billhook.inbox.operating.operations import replay
from support.apps import deliver, inbox_at
from support.inbox_view import rows


class Books:
    """A database of the user's, and a handler that books there once; its first attempts fail afterwards."""

    def __init__(self, path):
        self.path = path
        self.attempts: list[tuple[int, int]] = []
        self.failing = 0
        with self.opened() as connection:
            effects.create_all(connection)
            connection.execute("CREATE TABLE payment (amount INTEGER)")

    def opened(self):
        return closing(sqlite3.connect(self.path, timeout=20))

    def book(self, event, delivery):
        with self.opened() as connection, connection:
            if delivery.once(connection):
                connection.execute("INSERT INTO payment VALUES (3)")
        self.attempts.append((delivery.replays, delivery.attempt))
        if delivery.attempt <= self.failing:
            raise ConnectionError("after the effect")

    def booked(self):
        with self.opened() as connection:
            return connection.execute("SELECT count(*) FROM payment").fetchone()[0]


@pytest.fixture
def books(tmp_path):
    return Books(tmp_path / "own.db")


@pytest.fixture
def shop(books, app_with, frozen_clock):
    """An app that has handled one delivery, with success after so many failures."""

    def make(failing=0, types=(InvoiceApproved,), **options):
        books.failing, handlers = failing, Handlers()
        handlers.on(*types, name="book", retry=[0.01, 0.01, 0.01], **options)(books.book)
        app = app_with(handlers=[handlers], clock=frozen_clock, BILLHOOK_ENGINE="inline")
        deliver(app, sample(InvoiceApproved).to_json(), "InvoiceApproved", message_id="msg_1")
        return app

    return make


def replayed(app, clock, delivery_id=1, **how):
    """Replay a delivery, and handle what is due then."""
    done = replay(get_state(app).inbox, [delivery_id], clock.now(), **how)
    get_state(app).handle_due()
    return done.runs


@pytest.mark.usefixtures("inbox_url")
@pytest.mark.parametrize("options", [{}, {"ordered_by": "invoice_id"}])
def test_a_replay_of_a_finished_run_is_a_new_time(shop, books, frozen_clock, options):
    app = shop(**options)

    assert replayed(app, frozen_clock, handler="book") == 1
    assert replayed(app, frozen_clock, all_handlers=True) == 1

    assert books.attempts == [(0, 1), (1, 1), (2, 1)]
    assert books.booked() == 3


def test_a_replay_of_a_dead_run_is_a_new_time(shop, books, frozen_clock):
    app = shop(failing=99)
    for _ in range(3):
        frozen_clock.advance(seconds=1)
        get_state(app).handle_due()
    assert rows(inbox_at(app), "SELECT state FROM run") == [("dead",)]
    assert books.booked() == 1

    assert replayed(app, frozen_clock) == 1

    assert books.booked() == 2
    assert books.attempts[-1] == (1, 1)


@pytest.mark.parametrize("how", [{}, {"all_handlers": True}])
def test_a_hastened_retry_does_not_repeat_the_effect(shop, books, frozen_clock, how):
    app = shop(failing=1)
    assert rows(inbox_at(app), "SELECT state FROM run") == [("due",)]

    assert replayed(app, frozen_clock, **how) == 1

    assert books.attempts == [(0, 1), (0, 1)]
    assert books.booked() == 1


def test_a_conflict_that_is_replayed_has_an_effect_of_its_own(shop, books, frozen_clock):
    app = shop(types=(InvoiceApproved, PingTest))
    deliver(app, message_id="msg_1")
    assert books.booked() == 1

    replayed(app, frozen_clock, 2)

    assert books.booked() == 2
