"""Async handlers in every engine, on every database: one event loop a thread, cancelled at their time-out."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from billhook import Handlers
from billhook.engines.celery.executor import DeliveryExecutor
from billhook.events import PingTest
from billhook.extension import get_state
from support.apps import deliver, inbox_at
from support.inbox_view import rows
from support.processes import until

pytestmark = pytest.mark.usefixtures("inbox_url")

CANCELLED = "TimeoutError: the handler did not return within 0.1 s, and was cancelled"
ABANDONED = "TimeoutError: the handler did not return within 0.1 s"
LONG = 60.0


@pytest.fixture(params=["worker", "celery", "inline"])
def handle(request, app_with, running):
    """A function that stores deliveries, has one engine handle them in one thread, and returns the app."""

    def by_worker(handlers, count):
        app = running(handlers, threads=1, BILLHOOK_LEASE_SECONDS=30)
        for _ in range(count):
            deliver(app)
        until(lambda: states(app, "delivery").count("done") + states(app, "delivery").count("dead") == count)
        return app

    def by_celery(handlers, count):
        app = app_with(handlers=[handlers])
        state = get_state(app)
        executor = DeliveryExecutor(
            state.inbox, state.dispatcher, lease_seconds=30.0, publish=lambda delivery_id: None
        )
        for _ in range(count):
            deliver(app)
        for (delivery_id,) in rows(inbox_at(app), "SELECT id FROM delivery ORDER BY id"):
            executor.execute(delivery_id)
        return app

    def inline(handlers, count):
        app = app_with(handlers=[handlers], BILLHOOK_ENGINE="inline")
        for _ in range(count):
            deliver(app)
        return app

    return {"worker": by_worker, "celery": by_celery, "inline": inline}[request.param]


def states(app, table="run"):
    return [state for (state,) in rows(inbox_at(app), f"SELECT state FROM {table} ORDER BY id")]


@pytest.mark.parametrize("timeout_seconds", [None, LONG])
def test_all_attempts_of_a_thread_share_one_loop(handle, timeout_seconds):
    handlers, loops = Handlers(), []

    @handlers.on(PingTest, name="h", timeout_seconds=timeout_seconds)
    async def keep(event):
        loops.append(asyncio.get_running_loop())

    app = handle(handlers, 3)

    assert states(app) == ["succeeded"] * 3
    assert len(loops) == 3
    assert len({id(loop) for loop in loops}) == 1


def test_an_async_handler_is_cancelled_at_its_time_out_and_its_thread_goes_on(handle, caplog):
    handlers, cleaned_up, threads = Handlers(), [], set()

    @handlers.on(PingTest, name="h", timeout_seconds=0.1, retry=[])
    async def hang(event):
        threads.add(threading.get_ident())
        try:
            await asyncio.sleep(LONG)
        finally:
            cleaned_up.append(True)

    app = handle(handlers, 2)

    assert rows(inbox_at(app), "SELECT state, last_error FROM run") == [("dead", CANCELLED)] * 2
    assert cleaned_up == [True] * 2
    assert len(threads) == 1
    assert "abandoned" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("handle", ["worker", "celery"], indirect=True)
@pytest.mark.parametrize("how", ["never yields", "refuses to be cancelled"])
def test_an_async_handler_that_cannot_be_cancelled_is_abandoned(handle, how, caplog):
    handlers, release = Handlers(), threading.Event()

    @handlers.on(PingTest, name="h", timeout_seconds=0.1, retry=[])
    async def hang(event):
        while not release.is_set():
            if how == "never yields":
                time.sleep(0.01)
            else:
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue

    app = handle(handlers, 1)
    release.set()

    assert rows(inbox_at(app), "SELECT state, last_error FROM run") == [("dead", ABANDONED)]
    assert caplog.text.count("handler h is past its time-out; its thread is abandoned") == 1
