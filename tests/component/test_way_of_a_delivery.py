"""How long the way of one delivery is, in functions and files: to its answer, and to its handler."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from flask import Flask
from sqlalchemy import make_url

import billhook
from billhook import Billhook, Handlers, signals
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.receiver.delivery_rules import SIGNALS
from support.apps import inbox_at
from support.inbox_view import rows
from support.processes import until
from support.signing import PATH, signed

OF_SOME = {"PostgresDatabase._schema_of", "FifoWaker._open_pipes"}
"""Called for a statement when it is executed first, and for a worker that began to listen just now: at which
delivery depends on how fast the machine is."""
SOURCE = str(Path(billhook.__file__).parent) + "/"
FUNCTIONS = {"sqlite": 34, "postgresql": 38}
"""On a server four more: its clock is asked, results come in binary, whatever its sessions say, and its
connection is looked at by what also works where eventlet has removed select.poll."""
FILES = {"sqlite": 13, "postgresql": 15}
WHOLE_FUNCTIONS = {"sqlite": 134, "postgresql": 135}
WHOLE_FILES = {"sqlite": 34, "postgresql": 36}
STEPS = {"Scheme.verify", "Committer._commit_batch", "Worker._poll", "Handler.__call__", "settle"}
"""Some of the functions that a delivery takes, in each of its threads."""


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
            if name not in OF_SOME:
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


DOORS = {"asgi": lambda *to: asyncio.run(_deliver_on_a_loop(*to)), "flask": _deliver_through_flask}


@contextmanager
def _followed(way: Way) -> Iterator[None]:
    before = sys.getprofile()
    threading.setprofile(way.enter)
    sys.setprofile(way.enter)
    try:
        yield
    finally:
        threading.setprofile(None)
        sys.setprofile(before)


@pytest.mark.parametrize("door", DOORS)
def test_the_way_of_a_delivery_is_short(plain_app, inbox_url, monkeypatch, door):
    for signal in SIGNALS:  # observers that other tests left would have the answer made in a thread
        monkeypatch.setattr(signal, "receivers", {})
    way = Way(_delays_the_answer)
    with _followed(way):
        app = plain_app(BILLHOOK_INBOX_URL=inbox_url)
        Billhook(app)
        assert DOORS[door](app, way) == [200] * 4

    database = make_url(inbox_url).get_backend_name()
    # As one text: of a list pytest shows the beginning only.
    assert len(way.hops) <= FUNCTIONS[database], "\n".join(
        f"{file} {name}" for file, name in sorted(way.hops)
    )
    assert len(way.files) <= FILES[database], "\n".join(sorted(way.files))
    # The control: both threads are followed, and the work after the commit is not.
    names = {name for _, name in way.hops}
    assert {"Scheme.verify", "ingest"} <= names
    assert door == "flask" or {"AsgiApp.__call__", "Committer.put_async"} <= names
    assert not {"FifoWaker.wake", "PostgresWaker.wake"} & names


# --- to the handler and back --------------------------------------------------------------------------


@pytest.fixture
def whole_way(plain_app, inbox_url, monkeypatch):
    """The way of the last of some deliveries, from its request until the worker sleeps again."""
    for signal in (*SIGNALS, signals.handler_started, signals.handler_ended, signals.handler_succeeded):
        monkeypatch.setattr(signal, "receivers", {})  # those of other tests
    # Of no delivery, and at times of its own.
    monkeypatch.setattr("billhook.engines.maintenance.Maintenance.run_if_due", lambda *_: 3600.0)
    monkeypatch.setattr("billhook.engines.watch.Watch.look_and_send", lambda *_: 3600.0)
    handlers, called = Handlers(), threading.Event()

    @handlers.on(PingTest)
    def handle(event, delivery):
        called.set()

    app = plain_app(BILLHOOK_INBOX_URL=inbox_url, BILLHOOK_ENGINE="worker")
    Billhook(app, handlers=[handlers])
    way = Way(lambda _: True)
    with _followed(way):
        worker = get_state(app).worker(1)  # starts the handlers' thread
        thread = threading.Thread(target=worker.run, name="worker", daemon=True)
        sleeping = _sleeping(worker, monkeypatch)
        thread.start()
        try:
            for number in range(3):
                headers, client = signed(), app.test_client()
                until(lambda: sleeping.is_set(), 20)
                way.open = number == 2  # until then, what is made once is made
                assert client.post(PATH, data=b"{}", headers=headers).status_code == 200
                assert called.wait(20)
                until(lambda number=number: _count_done(inbox_at(app)) == number + 1, 20)
                until(lambda: sleeping.is_set(), 20)
                way.open = False
                called.clear()
        finally:
            worker.stop()
            thread.join(20)
    return way


def _sleeping(worker, monkeypatch):
    """An event that is set while the worker waits for something to do."""
    sleeping, wait = threading.Event(), worker._wakeup.wait

    def waiting(seconds):
        sleeping.set()
        wait(seconds)
        sleeping.clear()

    monkeypatch.setattr(worker._wakeup, "wait", waiting)
    return sleeping


def _count_done(where):
    return rows(where, "SELECT count(*) FROM delivery WHERE state = 'done'")[0][0]


def test_the_whole_way_to_the_handler_and_back_is_short(whole_way, inbox_url):
    shown = "\n".join(f"{file} {name}" for file, name in sorted(whole_way.hops))
    database = make_url(inbox_url).get_backend_name()
    assert len(whole_way.hops) <= WHOLE_FUNCTIONS[database], f"{len(whole_way.hops)} functions\n{shown}"
    assert len(whole_way.files) <= WHOLE_FILES[database], f"{len(whole_way.files)} files\n{shown}"
    # The control: request, commit, loop, transaction, handler and result are followed.
    names = {name for _, name in whole_way.hops}
    assert names >= STEPS
