"""How long the way of one delivery is, in functions and files: to its committed answer, and through a run."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType

import pytest
from flask import Flask

import billhook
from billhook import Billhook, Handlers, signals
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.receiver.intake import SIGNALS
from support.apps import inbox_at
from support.inbox_view import incoming, rows
from support.processes import until
from support.signing import PATH, signed

SOURCE = str(Path(billhook.__file__).parent) + "/"
FUNCTIONS = 35
FILES = 11
RUN_FUNCTIONS = 60
RUN_FILES = 18
STEPS_OF_A_RUN = {
    "InboxTransaction.claim",
    "HandlerPool.submit",
    "HandlerPool._execute",
    "HandlerPool.finished",
    "InboxTransaction.settle",
    "InboxTransaction.finish",
    "Reporter.send",
}
"""Claimed, started, called, collected, settled, counted and told of. Not counted is what all runs share, the
worker's loop and its transaction: sleeping, polling, planning, renewing leases, BEGIN and COMMIT."""


class Way:
    """The functions of billhook that threads enter while it is `open`, each with its file.

    Comprehensions are part of their function. `counts` says whether a frame is on the way.
    """

    def __init__(self, counts: Callable[[FrameType], bool]) -> None:
        self.open = False
        self.hops: set[tuple[str, str]] = set()
        self._counts = counts

    def enter(self, frame: FrameType, event: str, _: object) -> None:
        """As a function for sys.setprofile."""
        code = frame.f_code
        if self.open and event == "call" and code.co_filename.startswith(SOURCE) and self._counts(frame):
            name = re.split(r"(?:\.<locals>)?\.<(?!locals)", code.co_qualname)[0]
            self.hops.add((code.co_filename.removeprefix(SOURCE), name))

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.hops}


def _is_within(frame: FrameType | None, functions: Collection[str]) -> bool:
    while frame is not None and frame.f_code.co_qualname not in functions:
        frame = frame.f_back
    return frame is not None


def _delays_the_answer(frame: FrameType) -> bool:
    # Of the committer's thread counts what it does for a batch: what follows, such as waking the workers,
    # delays no answer.
    if threading.current_thread().name != "billhook-committer":
        return True
    return _is_within(frame, {"Committer._commit_batch"})


def _is_of_a_run(frame: FrameType) -> bool:
    threads = ("worker", "billhook-handler")
    return threading.current_thread().name in threads and _is_within(frame, STEPS_OF_A_RUN)


async def _deliver_on_a_loop(app: Flask, way: Way) -> list[int]:
    application = Billhook().asgi_app(app)
    statuses: list[int] = []

    async def send(message):
        if "status" in message:
            statuses.append(message["status"])

    for number in range(4):
        headers = [(name.lower().encode(), text.encode()) for name, text in signed().items()]
        headers.append((b"content-length", b"2"))
        pieces = iter([{"type": "http.request", "body": b"{}"}])

        async def receive(pieces=pieces):
            return next(pieces)

        scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers}
        way.open = number == 3  # until then, what is made once is made
        await application(scope, receive, send)
        way.open = False
    return statuses


def _deliver_through_flask(app: Flask, way: Way) -> list[int]:
    statuses = []
    for number in range(4):
        headers, client = signed(), app.test_client()
        way.open = number == 3
        statuses.append(client.post(PATH, data=b"{}", headers=headers).status_code)
        way.open = False
    return statuses


@pytest.fixture
def followed(plain_app, inbox_url, monkeypatch):
    """Delivers through a door, and returns the way of the last delivery."""

    def follow(door: str) -> Way:
        for signal in SIGNALS:  # observers that other tests left would have the answer made in a thread
            monkeypatch.setattr(signal, "receivers", {})
        monkeypatch.setattr("billhook.extension.find_spec", lambda _: None)  # no hook for flask-wtf
        way, before = Way(_delays_the_answer), sys.getprofile()
        threading.setprofile(way.enter)
        sys.setprofile(way.enter)
        try:
            app = plain_app(BILLHOOK_INBOX_URL=inbox_url)
            Billhook(app)
            if door == "asgi":
                statuses = asyncio.run(_deliver_on_a_loop(app, way))
            else:
                statuses = _deliver_through_flask(app, way)
        finally:
            threading.setprofile(None)
            sys.setprofile(before)
        assert statuses == [200] * 4
        return way

    return follow


@pytest.mark.parametrize("door", ["asgi", "flask"])
def test_the_way_of_a_delivery_is_short(followed, door):
    way = followed(door)

    # As one text: of a list pytest shows the beginning only.
    assert len(way.hops) <= FUNCTIONS, "\n".join(f"{file} {name}" for file, name in sorted(way.hops))
    assert len(way.files) <= FILES, "\n".join(sorted(way.files))
    # The control: both threads are followed, and the work after the commit is not.
    names = {name for _, name in way.hops}
    assert {"Scheme.verify", "ingest"} <= names
    assert door == "flask" or {"AsgiApp.__call__", "Committer.put_async"} <= names
    assert not {"Inbox._after_commit", "FifoWaker.notify", "PostgresWaker.notify"} & names


# --- a run --------------------------------------------------------------------------------------------


@pytest.fixture
def way_of_a_run(plain_app, inbox_url, monkeypatch):
    """The way of the last of some runs, in one worker."""
    for name in ("handler_started", "handler_ended", "handler_succeeded"):
        monkeypatch.setattr(getattr(signals, name), "receivers", {})  # those of other tests
    handlers, called = Handlers(), threading.Event()

    @handlers.on(PingTest)
    def handle(event, delivery):
        called.set()

    way = Way(_is_of_a_run)
    app = plain_app(BILLHOOK_INBOX_URL=inbox_url, BILLHOOK_ENGINE="worker")
    Billhook(app, handlers=[handlers])
    state = get_state(app)
    threading.setprofile(way.enter)
    worker = state.worker(1)  # starts the handlers' thread
    thread = threading.Thread(target=worker.run, name="worker", daemon=True)
    thread.start()
    try:
        for number in range(3):
            way.open = number == 2  # until then, what is made once is made
            state.inbox.put(incoming(f"m{number}"))
            worker.wake()
            assert called.wait(20)
            until(lambda number=number: _count_done(inbox_at(app)) == number + 1, 20)
            called.clear()
    finally:
        threading.setprofile(None)
        worker.stop()
        thread.join(20)
    return way


def _count_done(where):
    return rows(where, "SELECT count(*) FROM delivery WHERE state = 'done'")[0][0]


def test_the_way_of_a_run_is_short(way_of_a_run):
    assert len(way_of_a_run.hops) <= RUN_FUNCTIONS, sorted(way_of_a_run.hops)
    assert len(way_of_a_run.files) <= RUN_FILES, sorted(way_of_a_run.files)
    # The control: each step of a run is followed, and the loop is not.
    names = {name for _, name in way_of_a_run.hops}
    assert names >= STEPS_OF_A_RUN
    assert {"Handler.__call__", "settle"} <= names
    assert not {"Worker._poll", "Dispatcher.plan", "Inbox.transaction", "Wakeup.wait"} & names
