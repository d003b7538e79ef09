"""Handlers that end their process: with `os._exit` here. Nobody beside them suffers.

Each engine as real processes, started again when they end. More in
test_engine_deadly_combined.py; the Celery engine's are in test_engine_deadly_celery.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from billhook.events import InvoiceApproved, sample
from support.deadly import INNOCENTS, Place, finish
from support.inbox_view import not_called_again


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    made = Place(tmp_path, f"sqlite:///{tmp_path / 'billhook.db'}")
    with closing(made.inbox):
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["thread", "worker", pytest.param("processes", marks=pytest.mark.long)])
def test_neighbours_of_a_handler_that_ends_its_process_are_all_done(place, engine):
    place.put("exits")
    place.put_innocents()

    finish(place, engine)

    runs = place.runs()
    state, _, _, error = runs.pop("exits act")
    assert state == "dead"
    assert error == not_called_again(3)
    assert {state for state, *_ in runs.values()} == {"succeeded"}
    assert place.noted("begun")["exits"] in (3, 4)
    assert len(place.noted("ended").keys()) == INNOCENTS


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["worker"])
def test_without_a_suspicion_the_neighbours_would_be_dead(tmp_path, engine):
    # On a busy machine the neighbours may all end before the handler that ends the process has begun.
    assert any(_neighbours_die_without_suspicion(tmp_path / str(number), engine) for number in range(5))


def _neighbours_die_without_suspicion(folder: Path, engine: str) -> bool:
    folder.mkdir()
    place = Place(folder, f"sqlite:///{folder / 'billhook.db'}", DISABLE_SUSPECTS="1")
    with closing(place.inbox):
        place.put("exits")
        place.put_innocents()

        finish(place, engine)

    dead = {key for key, state in place.states().items() if state == "dead"}
    assert "exits act" in dead
    return len(dead) > 1


@pytest.mark.slow
def test_a_handler_is_done_although_its_sibling_ends_the_process_each_time(place):
    place.put("both", "InvoiceApproved", sample(InvoiceApproved).to_json())

    finish(place, "thread")

    assert place.states() == {"both crashes": "dead", "both sibling": "succeeded"}
