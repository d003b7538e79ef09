"""Async handlers across a fork: the event loops of the threads that the child has not."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import closing

import pytest

from billhook.handlers.event_loop import EventLoops

LONG = 60.0


@pytest.fixture
def loops():
    with closing(EventLoops()) as loops:
        yield loops


async def running_loop():
    return asyncio.get_running_loop()


def test_a_forked_child_leaves_its_parents_loops_alone(loops):
    """The kernel's list of descriptors is shared with the child: closing a copy would empty the parent's."""
    begun, ended, results = threading.Event(), threading.Event(), []

    async def wake_up_from_another_thread():
        return await asyncio.get_running_loop().run_in_executor(None, lambda: "awake")

    def other_thread():
        loops.run(running_loop(), None)
        begun.set()
        ended.wait(LONG)
        results.append(loops.run(wake_up_from_another_thread(), 5))

    thread = threading.Thread(target=other_thread)
    thread.start()
    begun.wait(LONG)
    own = loops.run(running_loop(), None)
    child = os.fork()
    if child == 0:  # in which the other thread, and with it its local data, has ceased to exist
        code = 1
        try:
            theirs = loops.run(running_loop(), None)
            code = int(theirs is own)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    ended.set()
    thread.join()

    assert os.waitstatus_to_exitcode(status) == 0
    assert results == ["awake"]
    assert loops.run(wake_up_from_another_thread(), 5) == "awake"
