"""The pipe that wakes a worker up: it blocks no thread that writes, and a byte ends one wait only."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest

from billhook.engines import worker
from billhook.engines.worker import Wakeup

PIPE_BYTES = 65_536


class DeafWaker:
    """Of an inbox that cannot notify other processes."""

    def fileno(self):
        raise OSError("away")


@pytest.fixture
def wakeup():
    made = Wakeup(SimpleNamespace(waker=DeafWaker()))
    yield made
    made.close()


def test_a_wake_up_ends_one_wait(wakeup, monkeypatch):
    """A second one sleeps: else a worker that was woken up once would never sleep again."""
    found, wait = [], worker.wait_readable
    monkeypatch.setattr(worker, "wait_readable", lambda of, _: found.append(wait(of, 0)) or found[-1])

    wakeup.set()
    wakeup.clear()  # as each poll does
    wakeup.wait(60.0)
    wakeup.wait(60.0)

    assert found == [{wakeup._read}, set()]


def test_a_full_pipe_blocks_no_thread_that_wakes_the_worker(wakeup):
    """A worker with work polls at once, and reads nothing from the pipe between two wake-ups."""

    def fill():
        for _ in range(PIPE_BYTES + 1):
            wakeup.set()
            wakeup._is_set = False

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    thread.join(10)
    blocked = thread.is_alive()
    while thread.is_alive():
        os.read(wakeup._read, PIPE_BYTES)
        thread.join(0.1)

    assert not blocked
