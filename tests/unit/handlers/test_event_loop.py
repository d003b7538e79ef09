"""Async handlers: one event loop for each thread, and cancellation at the time-out."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from contextlib import nullcontext
from contextvars import ContextVar

import pytest

from billhook.handlers import event_loop
from billhook.handlers.event_loop import EventLoops
from billhook.handlers.handler import Handler, call
from support.processes import together

LONG = 60.0


@pytest.fixture
def loops():
    loops = EventLoops()
    yield loops
    loops.close()


async def running_loop():
    return asyncio.get_running_loop()


def test_a_thread_keeps_a_loop_of_its_own_which_is_closed_with_it(loops):
    first = loops.run(running_loop(), None)
    (elsewhere,) = together(1, lambda _: loops.run(running_loop(), None))

    assert loops.run(running_loop(), None) is first
    assert (elsewhere is first, elsewhere.is_closed()) == (False, True)
    loops.close()
    assert first.is_closed()
    assert not loops.run(running_loop(), None).is_closed()


def test_a_coroutine_runs_in_the_callers_context(loops):
    name = ContextVar("name")

    async def read():
        return name.get()

    seen = []
    for value in ("first", "second"):  # not only in that of the call that made the loop
        name.set(value)
        seen.append(loops.run(read(), None))

    assert seen == ["first", "second"]


def test_a_coroutine_is_cancelled_at_its_time_out(loops):
    cancelled = []

    async def hang():
        try:
            await asyncio.sleep(LONG)
        finally:
            cancelled.append(True)

    started = time.monotonic()
    with pytest.raises(TimeoutError, match=r"^the handler did not return within 0\.05 s, and was cancelled$"):
        loops.run(hang(), 0.05)

    assert cancelled == [True]
    assert time.monotonic() - started < LONG / 2
    assert loops.run(asyncio.sleep(0, "awake"), LONG) == "awake"  # the loop can be used again


def test_a_time_out_of_the_coroutines_own_is_passed_on(loops):
    async def fail():
        raise TimeoutError("the bank is asleep")

    with pytest.raises(TimeoutError, match=r"^the bank is asleep$"):
        loops.run(fail(), LONG)


def test_without_a_time_out_a_coroutine_is_not_cancelled(loops):
    assert loops.run(asyncio.sleep(0.05, "awake"), None) == "awake"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_a_coroutine_is_raised_and_the_loop_replaced(loops, error):
    async def leave():
        raise error

    first = loops.run(running_loop(), None)
    with pytest.raises(type(error)):
        loops.run(leave(), None)

    assert first.is_closed()
    assert loops.run(running_loop(), None) is not first


class SoftTimeLimitError(Exception):
    """Stands for what Celery's signal handler raises wherever the main thread is."""


def test_a_coroutine_left_in_the_middle_does_not_go_on_in_the_next_attempt(loops):
    released, went_on = asyncio.Event(), []
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))

    async def wait():
        timer.start()
        await released.wait()
        went_on.append(True)

    async def release():
        released.set()
        for _ in range(3):
            await asyncio.sleep(0)

    def interrupt(number, frame):
        raise SoftTimeLimitError

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(SoftTimeLimitError):
            loops.run(wait(), None)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    loops.run(release(), None)

    assert went_on == []


def test_in_a_thread_with_a_running_loop_a_coroutine_runs_in_another_thread(loops):
    async def main():
        return loops.run(threaded(), LONG)

    async def threaded():
        return threading.current_thread()

    assert asyncio.run(main()) is not threading.current_thread()


def test_with_greenlets_for_threads_each_coroutine_has_its_own_loop(loops, monkeypatch):
    monkeypatch.setattr(event_loop, "threads_are_greenlets", lambda: True)

    made = [loops.run(running_loop(), LONG) for _ in range(2)]

    assert made[0] is not made[1]
    assert [loop.is_closed() for loop in made] == [True, True]


@pytest.mark.parametrize("seconds", [0.05, LONG])
def test_a_failure_of_an_async_handler_is_shown_with_the_handlers_frames_alone(seconds):
    async def ask_the_bank():
        await asyncio.sleep(0 if seconds == LONG else LONG)
        raise KeyError("account")

    async def handle(event):
        await ask_the_bank()

    failure = call(Handler(handle, timeout_seconds=seconds), None, nullcontext, object(), object())

    shown = failure.traceback.splitlines()
    frames = [line for line in shown if line.startswith("  File ")]
    assert [re.search(r"in (\w+)$", line)[1] for line in frames][:2] == ["handle", "ask_the_bank"]
    assert sum(line.startswith("Traceback") for line in shown) == 1
    assert len(shown) < 12
