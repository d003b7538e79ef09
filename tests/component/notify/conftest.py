"""What the tests of notifications share."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def notify_hook(httpserver, tmp_path):
    """An HTTP endpoint that keeps the subjects of messages, and the file that names it."""
    from werkzeug import Response

    class Hook:
        def __init__(self):
            self.titles = []
            self.path = tmp_path / "addresses.txt"
            self.file = str(self.path)

    made = Hook()

    def answer(request):
        made.titles.append(json.loads(request.data)["title"])
        return Response()

    httpserver.expect_request("/told").respond_with_handler(answer)
    made.path.touch(0o600)
    made.path.write_text(f"json://{httpserver.host}:{httpserver.port}/told\n")
    return made
