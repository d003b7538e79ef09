"""Fixtures of the core's tests. Nothing of billhook is replaced here: files, sockets and threads are real."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from kit import Server, bare_app, gunicorn, make_app, open_inbox

from billhook.clock import FrozenClock
from billhook.inbox import Inbox


@pytest.fixture
def clock() -> FrozenClock:
    """A clock that stands at the present second until a test moves it."""
    from datetime import UTC, datetime

    return FrozenClock(datetime.now(UTC).replace(microsecond=0))


@pytest.fixture
def app_with(tmp_path) -> Iterator[Callable[..., Flask]]:
    """Makes apps with a Billhook on an inbox in the test's folder, and closes what they opened."""
    made: list[Flask] = []

    def make(**arguments: Any) -> Flask:
        app = make_app(tmp_path, **arguments)
        made.append(app)
        return app

    yield make
    for app in made:
        app.extensions["billhook"].close()


@pytest.fixture
def plain_app(tmp_path) -> Iterator[Callable[..., Flask]]:
    """Makes configured apps without a Billhook; closes the one they get."""
    made: list[Flask] = []

    def make(**config: Any) -> Flask:
        made.append(bare_app(tmp_path, **config))
        return made[-1]

    yield make
    for app in made:
        if "billhook" in app.extensions:
            app.extensions["billhook"].close()


@pytest.fixture
def inbox(tmp_path) -> Iterator[Inbox]:
    """A prepared inbox on a file of its own."""
    opened = open_inbox(tmp_path / "billhook.db")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    """One receiver for all tests of the HTTP contract; each test uses message ids of its own."""
    with gunicorn(tmp_path_factory.mktemp("server")) as running:
        yield running
