"""A running sandbox for tests: real sockets, a clock that stands until it is moved, and a plain caller."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from sqlalchemy import select

from billhook.clock import FrozenClock
from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.serving import serving
from billhook.sandbox.storage import tables

START = datetime(2026, 1, 10, 12, 0, tzinfo=UTC)
API_TOKEN = "api-token-of-the-tests-7f3a"
INVALID = (400, "invalid_request_error", "invalid_request")
TAKEN = (400, "invalid_request_error", "already_exists")
NOT_FOUND = (404, "invalid_request_error", "resource_not_found")
NOT_JSON = (400, "invalid_request_error", "not_json")
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Linux's folder of files in memory: on a disk, most of what a test takes would be waiting for it."""


@dataclass(frozen=True)
class Answer:
    """What came back: `json` is the decoded body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def error(self) -> tuple[int, str, str]:
        """Status, type and code of an error."""
        return self.status, self.json["type"], self.json["code"]


def check_refused(
    answers: Iterable[Answer], params: Iterable[str], error: tuple[int, str, str] = INVALID
) -> None:
    """Check that each request was refused with this error, and for this parameter."""
    found = [(answer.error(), answer.json.get("param")) for answer in answers]
    assert found == [(error, param) for param in params]


@dataclass
class Running:
    """A sandbox that answers at `url`; `real` is the machine's clock as it sees it."""

    sandbox: Sandbox
    url: str
    real: FrozenClock
    token: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a request with good credentials: `body` as JSON, bytes as they are; headers with _ for -."""
        self.token = self.token or self.login()
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.send(method, path, body, {"Authorization": f"Bearer {self.token}", **more})

    def login(self) -> str:
        answer = self.send("POST", "/login", {"refreshToken": API_TOKEN}, {})
        assert answer.status == 200, answer.body
        return str(answer.json["accessToken"])

    def send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        """Send a request with the client id, and with nothing else that is not given."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
        try:
            raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            content = {} if raw is None else {"Content-Type": "application/json"}
            connection.request(method, path, raw, {"x-api-key": "sandbox", **content, **headers})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed; its decoded body."""
        answer = self.call(method, path, body)
        assert answer.status == 200, (method, path, answer.status, answer.body)
        return answer.json

    def raised(self, event_type: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Type and body of what was raised so far, oldest first."""
        table = tables.raised_event
        with self.sandbox.service.transaction(writes=False) as tx:
            rows = tx.connection.execute(select(table.c.event_type, table.c.body).order_by(table.c.seq)).all()
        return [
            (row.event_type, json.loads(row.body)) for row in rows if event_type in (None, row.event_type)
        ]

    def advance(self, period: str) -> Any:
        """Move the sandbox's clock by an ISO 8601 duration. An access token may be over then: log in anew."""
        moved = self.ok("POST", "/_sandbox/clock", {"advance": period})
        self.token = ""
        return moved


@contextmanager
def running(start: datetime = START, **options: Any) -> Iterator[Running]:
    """A sandbox with these options, at 2026-01-10T12:00Z; its database is in memory if no URL is given."""
    real = FrozenClock(start)
    options.setdefault("allow_private", True)
    with tempfile.TemporaryDirectory(prefix="billhook-tests-", dir=IN_MEMORY) as folder:
        options.setdefault("database_url", f"sqlite:///{folder}/sandbox.db")
        sandbox = Sandbox(SandboxOptions(api_token=API_TOKEN, **options), clock=real)
        with serving(sandbox) as url:
            yield Running(sandbox, url, real)


BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def fresh_sandbox() -> Iterator[Sandbox]:
    """A sandbox in this process, at the beginning of 2026, whose ids rise."""
    # Ids that rise: rows that are ordered by them keep their order from run to run.
    numbers = itertools.count(1)
    rising = patch("billhook.sandbox.storage.database.secrets.token_hex", lambda _: f"{next(numbers):06}")
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder, rising:
        options = SandboxOptions(database_url=f"sqlite:///{folder}/sandbox.db", rate_limit="1000000/second")
        sandbox = Sandbox(options, clock=FrozenClock(BEGINNING))
        try:
            yield sandbox
        finally:
            sandbox.close()
