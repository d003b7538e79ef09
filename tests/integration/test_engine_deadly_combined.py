"""Handlers that end their process, in worse company: several, slow ones, ordered ones, an operator."""

from __future__ import annotations

import json
import os
import signal

import pytest

from billhook.events import InvoicePaymentStatusChanged, sample
from support.deadly import INNOCENTS, Place, finish, kill, until_done, workers
from support.deadly_handlers import WAYS
from support.inbox_view import not_called_again
from support.processes import alive, children, until


@pytest.fixture
def places(tmp_path):
    """Makes a place on SQLite."""
    made = []

    def make(**options):
        made.append(Place(tmp_path, f"sqlite:///{tmp_path / 'billhook.db'}", **options))
        return made[-1]

    yield make
    for place in made:
        place.inbox.close()


def schedule(attempts):
    return {"BILLHOOK_RETRY_SCHEDULE_SECONDS": ",".join(["0.1"] * (attempts - 1))}


def dead(place):
    return {key.split()[0] for key, state in place.states().items() if state == "dead"}


@pytest.mark.slow
def test_five_handlers_that_kill_their_process_end_dead_alone(places):
    place = places()
    for way in WAYS:
        place.put(way)
    place.put_innocents()

    finish(place, "thread")

    assert dead(place) == set(WAYS)
    assert {place.runs()[f"{way} act"][-1] for way in WAYS} == {not_called_again(3)}
    assert len(place.noted("ended")) == INNOCENTS


@pytest.mark.slow
def test_a_run_with_one_attempt_survives_a_neighbour_that_kills_the_process(places):
    place = places(**schedule(1))
    place.put("exits")
    place.put_innocents()

    finish(place, "worker")

    assert dead(place) == {"exits"}
    assert place.runs()["exits act"][-1] == not_called_again(1)
    assert len(place.noted("ended")) == INNOCENTS


@pytest.mark.long
def test_a_handler_that_kills_its_process_late_ends_dead_alone(places):
    place = places()
    place.put("late-1600")
    place.put_innocents()

    finish(place, "worker")

    assert dead(place) == {"late-1600"}
    assert len(place.noted("ended")) == INNOCENTS


@pytest.mark.long
def test_two_killing_runs_of_an_order_key_release_the_next(places):
    place = places(**schedule(2))
    event = sample(InvoicePaymentStatusChanged)
    body = event.to_json()
    assert json.loads(body)["invoiceId"]
    for key in ("exits-1", "exits-2", "good"):
        place.put(key, "InvoicePaymentStatusChanged", body)

    finish(place, "worker")

    assert place.states() == {
        "exits-1 ordered": "dead",
        "exits-2 ordered": "dead",
        "good ordered": "succeeded",
    }


@pytest.mark.long
def test_a_parent_that_is_killed_takes_nothing_with_it(places):
    place = places()
    place.put("exits")
    place.put_innocents()
    with workers(place, 2) as running:
        until(lambda: len(place.noted("begun")) > 4, 60)
        below = children(running.process.pid)
        os.kill(running.process.pid, signal.SIGKILL)
        until_done(place, running)
        until(lambda: not alive(below), 30)

    assert dead(place) == {"exits"}
    assert len(place.noted("ended")) == INNOCENTS


def more_begun_than(count, place, keep_up):
    until(lambda: keep_up() or place.noted("begun").total() > count, 60)


@pytest.mark.long
def test_innocents_outlive_an_operator_who_kills_their_worker_five_times(places):
    place = places(**schedule(8))
    for number in range(INNOCENTS):
        place.put(f"slow-400-{number}")
    with workers(place, 1) as running:
        for _ in range(5):
            more_begun_than(place.noted("begun").total(), place, running)
            kill(running.process)
        until_done(place, running)

    assert set(place.states().values()) == {"succeeded"}
    assert len(place.noted("ended")) == INNOCENTS
