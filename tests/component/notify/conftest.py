"""What the tests of notifications share: a clock, an endpoint that is told, and the file that names it."""

from __future__ import annotations

import json
import socket

import pytest
from werkzeug import Response

from billhook.clock import FrozenClock
from support.inbox_view import NOON


class Hook:
    """An HTTP endpoint that keeps the messages it is sent."""

    token = "very-secret-token"

    def __init__(self, server):
        self.answers: list[int] = []
        self.titles: list[str] = []
        self.bodies: list[str] = []
        self.url = f"json://{server.host}:{server.port}/hook/{self.token}"
        server.expect_request(f"/hook/{self.token}").respond_with_handler(self.answer)

    def answer(self, request):
        status = self.answers.pop(0) if self.answers else 200
        if status == 200:
            message = json.loads(request.data)
            self.titles.append(message["title"].replace(f" {socket.gethostname()}]", "]"))
            self.bodies.append(message["message"])
        return Response(status=status)


@pytest.fixture
def hook(httpserver):
    return Hook(httpserver)


@pytest.fixture
def frozen_clock():
    return FrozenClock(NOON)


@pytest.fixture
def notify_file(tmp_path):
    """Writes a file of addresses, and returns its path."""

    def write(*lines):
        path = tmp_path / "notify.txt"
        path.touch(0o600)
        path.write_text("\n".join(["# who is told", "", *lines]) + "\n")
        return str(path)

    return write
