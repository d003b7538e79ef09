"""Async handlers that cannot be cancelled; test_every_engine.py has those that can."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from billhook import Handlers
from billhook.events import PingTest
from support.apps import deliver, inbox_at
from support.inbox_view import rows
from support.processes import until


@pytest.mark.slow
@pytest.mark.parametrize("how", ["never yields", "refuses to be cancelled"])
def test_an_async_handler_that_cannot_be_cancelled_is_abandoned(running, how, caplog):
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

    app = running(handlers, threads=1, BILLHOOK_LEASE_SECONDS=30)
    deliver(app)
    found = "SELECT state, last_error FROM run"
    abandoned = [("dead", "TimeoutError: the handler did not return within 0.1 s")]
    until(lambda: rows(inbox_at(app), found) == abandoned, 20)
    release.set()

    assert caplog.text.count("handler h is past its time-out; its thread is abandoned") == 1
