"""How long the way of one delivery is: the functions and files from its request to its committed answer."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest
from flask import Flask

import billhook
from billhook import Billhook, signals
from support.signing import PATH, signed

SOURCE = str(Path(billhook.__file__).parent) + "/"
FUNCTIONS = 35
FILES = 11


class Way:
    """The functions of billhook that threads enter while it is `open`, each with its file.

    Comprehensions are part of their function. Of the committer's thread counts what it does for a batch: what
    follows, such as waking the workers, delays no answer.
    """

    def __init__(self) -> None:
        self.open = False
        self.hops: set[tuple[str, str]] = set()

    def enter(self, frame: FrameType, event: str, _: object) -> None:
        """As a function for sys.setprofile."""
        code = frame.f_code
        if self.open and event == "call" and code.co_filename.startswith(SOURCE) and _delays(frame):
            name = re.split(r"(?:\.<locals>)?\.<(?!locals)", code.co_qualname)[0]
            self.hops.add((code.co_filename.removeprefix(SOURCE), name))

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.hops}


def _delays(frame: FrameType | None) -> bool:
    if threading.current_thread().name != "billhook-committer":
        return True
    while frame is not None and frame.f_code.co_name != "_commit_batch":
        frame = frame.f_back
    return frame is not None


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
        for name in ("delivery_accepted", "delivery_rejected", "delivery_duplicate"):
            monkeypatch.setattr(getattr(signals, name), "receivers", {})  # those of other tests
        monkeypatch.setattr("billhook.extension.find_spec", lambda _: None)  # no hook for flask-wtf
        way, before = Way(), sys.getprofile()
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

    assert len(way.hops) <= FUNCTIONS, sorted(way.hops)
    assert len(way.files) <= FILES, sorted(way.files)


def test_control_both_threads_are_followed_and_the_work_after_the_commit_is_not(followed):
    names = {name for _, name in followed("asgi").hops}

    assert {"AsgiApp.__call__", "Scheme.verify", "Committer.put_async", "ingest"} <= names
    assert not {"Inbox._after_commit", "FifoNotifier.notify", "PostgresNotifier.notify"} & names
