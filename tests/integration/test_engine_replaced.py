"""A gunicorn process in which no handler can do its work any more ends in order, and another one starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from billhook.engines.worker import MAX_ABANDONED_THREADS
from billhook.events import PaymentFailed, sample
from support.deadly import Place
from support.processes import until
from support.server import gunicorn

HANDLERS = """
import os, resource, time
from pathlib import Path
from billhook import Handlers
from billhook.events import PaymentFailed, PingTest

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
handlers = Handlers()
notes = os.open("notes.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
kept = []

def note(word):
    os.write(notes, f"{word} {os.getpid()}\\n".encode())

@handlers.on(PingTest, name="act", retry=[0.05] * 30)
def act(event, delivery):
    note(delivery.key)
    if delivery.key == "takes" and (kept or not Path("taken").exists()):
        if not kept:
            Path("taken").touch()
        while True:  # until there are none left, and for good
            kept.append(os.open(os.devnull, os.O_RDONLY))

@handlers.on(PaymentFailed, name="hangs", retry=[], timeout_seconds=0.2)
def hangs(event, delivery):
    note("hangs")
    time.sleep(10_000)
"""


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    path = tmp_path / "handlers.py"
    path.write_text(HANDLERS)
    url = f"sqlite:///{tmp_path / 'billhook.db'}"
    made = Place(
        tmp_path, url, BILLHOOK_ENGINE="thread", BILLHOOK_HANDLERS=str(path), BILLHOOK_LEASE_SECONDS="30"
    )
    with closing(made.inbox):
        yield made


def served(place):
    return gunicorn(place.folder, "--config", "python:billhook.gunicorn_conf", workers=1, **place.options)


def noted(place, word):
    """The process in which it was called, each time."""
    lines = (place.folder / "notes.txt").read_text().splitlines()
    return [pid for noted, pid in map(str.split, lines) if noted == word]


@pytest.mark.slow
def test_a_worker_process_without_descriptors_is_replaced(place):
    with served(place) as server:
        place.put("takes")
        until(lambda: not place.unfinished(), 60)
        assert server.post().status == 200

    calls = noted(place, "takes")
    assert len(set(calls)) == 2
    assert len(calls) >= 6
    assert place.states()["takes act"] == "succeeded"
    assert "worker stopping: out of file descriptors" in place.log()


@pytest.mark.long
def test_a_worker_process_with_only_hung_threads_is_replaced(place):
    body = sample(PaymentFailed).to_json()
    with served(place):
        for number in range(MAX_ABANDONED_THREADS + 4):
            place.put(f"hanging-{number}", "PaymentFailed", body)
        until(lambda: not place.unfinished(), 120)
        place.put("good")
        until(lambda: not place.unfinished(), 60)

    states = place.states()
    assert states.pop("good act") == "succeeded"
    assert set(states.values()) == {"dead"}
    assert noted(place, "good")[0] != noted(place, "hangs")[0]
    assert "too many handlers never returned" in place.log()
