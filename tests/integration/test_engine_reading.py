"""Event models that raise, hang or end their process, each engine in real processes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import list_issues
from support.deadly import ENGINES, Place
from support.inbox_view import rows
from support.processes import until
from support.timeouts import scaled

pytestmark = pytest.mark.slow
MODELS = Path(__file__).parents[1] / "support" / "reading_models.py"


@pytest.fixture
def place(tmp_path, inbox_url):
    """A place with the models, on each database."""
    made = Place(tmp_path, inbox_url, BILLHOOK_HANDLERS=str(MODELS))
    yield made
    made.close()
    made.inbox.close()


def put(place, key, event_type="Worst", way=None):
    body = b"{}" if event_type == "PingTest" else json.dumps({"way": way or key}).encode()
    place.put(key, event_type, body)


def states(place):
    return dict(rows(place.where, "SELECT key, state FROM delivery"))


def error(place, key):
    ((text,),) = rows(place.where, "SELECT error FROM delivery WHERE key = ?", key)
    return json.loads(text)["error"]


@pytest.mark.parametrize("engine", ["worker", "thread"])
def test_a_model_that_raises_outside_exception_stops_no_process(place, engine):
    put(place, "raises")
    for number in range(5):
        put(place, f"good-{number}", "PingTest")

    with ENGINES[engine](place) as keep_up:
        until(lambda: keep_up() or {*states(place).values()} == {"done", "quarantined"}, 60)

    assert error(place, "raises") == "the event model of Worst raised BaseException: boo"
    assert place.noted("read") == {"raises": 1}
    assert len(place.started) <= 1


@pytest.mark.parametrize(("engine", "way"), [("worker", "exits"), ("thread", "faults")])
def test_a_model_that_ends_its_process_is_read_alone_and_quarantined(place, engine, way):
    put(place, way)
    for number in range(5):
        put(place, f"good-{number}", "Harmless")
        put(place, f"ping-{number}", "PingTest")

    with ENGINES[engine](place) as keep_up:
        until(lambda: keep_up() or {*states(place).values()} == {"done", "quarantined"}, 90)

    assert states(place)[way] == "quarantined"
    assert error(place, way).startswith("the worker died at the last of 3 readings as Worst")
    # Lost beside others it does not count, and nobody beside it is given up for it.
    assert 3 <= place.noted("read")[way] <= 5
    update_issues(place.inbox, place.inbox.now())
    assert "Worst" in {one.subject for one in list_issues(place.inbox)}


@pytest.mark.parametrize("engine", ["worker", "thread"])
def test_beside_a_model_that_hangs_others_are_handled_at_once(place, engine):
    with ENGINES[engine](place) as keep_up:
        for number in range(3):
            put(place, f"hangs-{number}", way="hangs")
        until(lambda: keep_up() or place.noted("read")["hangs"] == 3, 30)
        began = time.monotonic()
        put(place, "own", "Harmless")
        put(place, "ping", "PingTest")
        until(lambda: len(place.noted("ended")) == 2, 15)
        assert time.monotonic() - began < scaled(2)
        assert place.noted("read") == {"hangs": 3}
        place.close()
