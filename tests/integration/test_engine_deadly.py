"""Handlers that end their process, each engine in real processes: nobody beside them suffers.

A process that ended is started again. In Celery's pool of processes each has one handler at a time, so that
the control is about threads alone.
"""

from __future__ import annotations

import pytest

from billhook.events import InvoiceApproved, sample
from support.deadly import INNOCENTS, Place, finish
from support.deadly_handlers import WAYS
from support.inbox_view import not_called_again

pytestmark = pytest.mark.slow


@pytest.fixture
def places(tmp_path):
    """Makes a place on SQLite."""
    made = []

    def make(**options):
        folder = tmp_path / f"place-{len(made)}"
        folder.mkdir()
        made.append(Place(folder, f"sqlite:///{folder / 'billhook.db'}", **options))
        return made[-1]

    yield make
    for place in made:
        place.inbox.close()


@pytest.mark.parametrize(
    ("engine", "ways", "schedule"),
    [
        ("thread", [*WAYS], "0.1,0.1"),
        ("worker", ["exits"], ""),
        pytest.param("processes", ["exits"], "0.1,0.1", marks=pytest.mark.long),
        pytest.param("worker", ["late-1600"], "0.1,0.1", marks=pytest.mark.long),
        pytest.param("celery prefork", [*WAYS], "0.1,0.1", marks=pytest.mark.long),
        ("celery threads", ["late-300"], ""),
    ],
)
def test_neighbours_of_handlers_that_end_their_process_are_all_done(places, engine, ways, schedule):
    place = places(BILLHOOK_RETRY_SCHEDULE_SECONDS=schedule)
    for way in ways:
        place.put(way)
    place.put_innocents()

    finish(place, engine)

    attempts = 1 + len(schedule.split(",")) if schedule else 1
    assert place.dead() == set(ways)
    assert {place.runs()[f"{way} act"][-1] for way in ways} == {not_called_again(attempts)}
    assert len(place.noted("ended")) == INNOCENTS


@pytest.mark.parametrize(
    ("engine", "way", "schedule"), [("worker", "exits", "0.1,0.1"), ("celery threads", "late-300", "")]
)
def test_without_a_suspicion_the_neighbours_would_be_dead(places, engine, way, schedule):
    def dead_of_one_try(_):
        place = places(DISABLE_SUSPECTS="1", BILLHOOK_RETRY_SCHEDULE_SECONDS=schedule)
        place.put(way)
        place.put_innocents()
        finish(place, engine)
        return place.dead()

    # On a busy machine the neighbours may all end before the handler that ends the process has begun.
    assert any(len(dead_of_one_try(number)) > 1 for number in range(5))


def test_a_handler_is_done_although_its_sibling_ends_the_process_each_time(places):
    place = places()
    place.put("both", "InvoiceApproved", sample(InvoiceApproved).to_json())

    finish(place, "thread")

    assert place.states() == {"both crashes": "dead", "both sibling": "succeeded"}
