"""The billing service for the tests of its client: a real HTTP server that keeps to the specification's text.

It is written from the specification and not from the client. It logs in, checks both headers of every call,
keeps usage events by their `ref`, and answers the rest as a test tells it to.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from billhook.clock import Clock, FrozenClock, SystemClock

CLIENT_ID = "org-client-id-7731"
REFRESH_TOKEN = "refresh-token-that-nobody-may-see"
MAX_BYTES = 262_144


@dataclass(frozen=True, repr=False)
class Taken:
    """A request, as it came: `target` is the path and the query with their percent signs."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {self.target}"

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


Answer = Response | Callable[[Taken], Response]


def answered(status: int, body: Any, **headers: str) -> Response:
    """An answer in JSON; keywords are headers, with _ for -."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(json.dumps(body), status, named, content_type="application/json")


def error(status: int, kind: str, code: str, message: str = "as it is", **more: Any) -> Response:
    """An error in the specification's shape; Retry_After and other capitalised keywords are headers."""
    headers = {name: value for name, value in more.items() if name[0].isupper()}
    fields = {name: value for name, value in more.items() if not name[0].isupper()}
    return answered(status, {"type": kind, "code": code, "message": message, **fields}, **headers)


REFUSED = error(401, "authentication_error", "authentication_failed", "the credentials are not good")
LIMITED = error(429, "rate_limit_error", "rate_limit_exceeded", "too many requests")
BROKEN = error(500, "api_error", "internal_error", "it is us")
A_MOMENT = "2026-01-01T00:00:00Z"
A_PLAN = answered(200, {"plan": {"id": "p", "createdAt": A_MOMENT, "updatedAt": A_MOMENT}})


@dataclass(repr=False)
class Service:
    """What runs, what it was sent, and what it answers next."""

    http: HTTPServer
    clock: Clock
    lifetime: timedelta = timedelta(hours=1)
    taken: list[Taken] = field(default_factory=list)
    refs: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, datetime] = field(default_factory=dict)
    max_events: int = 1000
    max_bytes: int = MAX_BYTES
    duplicate_code: str | None = None
    """The code beside the text of an event whose ref exists; the specification has none."""
    instead: Answer | None = None
    """What every call that is not a login gets."""
    _answers: dict[str, deque[Answer]] = field(default_factory=lambda: defaultdict(deque))
    _always: dict[str, Answer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return self.http.url_for("").rstrip("/")

    def answer(self, line: str, *answers: Answer) -> None:
        """What the next requests with this method and path (without its query) get, in turn."""
        self._answers[line].extend(answers)

    def always(self, line: str, answer: Answer) -> None:
        self._always[line] = answer

    def forget_answers(self) -> None:
        self._answers.clear()

    def lines(self, *, logins: bool = False) -> list[str]:
        """The request lines of what was taken."""
        return [taken.line for taken in self.taken if logins or taken.line != "POST /login"]

    @property
    def logins(self) -> int:
        return sum(taken.line == "POST /login" for taken in self.taken)

    def revoke(self) -> None:
        """No access token is good any more."""
        self.tokens.clear()

    def handle(self, request: Request) -> Response:
        taken = Taken(
            request.method,
            request.environ["RAW_URI"],
            dict(request.headers.items()),
            request.get_data(),
        )
        with self._lock:
            self.taken.append(taken)
            line = taken.line.partition("?")[0]
            answers = self._answers[line]
            refusal = None if line.endswith("/login") else self._refusal(taken)
            if refusal is not None:
                return refusal
            answer = answers.popleft() if answers else self._always.get(line)
        if answer is None and not line.endswith("/login"):
            answer = self.instead
        if answer is None:
            answer = self._own.get(line, _missing)
        return answer if isinstance(answer, Response) else answer(taken)

    @property
    def _own(self) -> Mapping[str, Callable[[Taken], Response]]:
        return {
            "POST /login": self.log_in,
            "PUT /events": self._ingest,
            "POST /v2/events": self._ingest,
        }

    def _refusal(self, taken: Taken) -> Response | None:
        """Source: spec, "Authentication", rule 1."""
        bearer = taken.headers.get("Authorization", "").removeprefix("Bearer ")
        ends = self.tokens.get(bearer)
        good = taken.headers.get("X-Api-Key") == CLIENT_ID and ends is not None and self.clock.now() < ends
        return None if good else REFUSED

    def log_in(self, taken: Taken) -> Response:
        if taken.headers.get("X-Api-Key") != CLIENT_ID or taken.json != {"refreshToken": REFRESH_TOKEN}:
            return REFUSED
        ends = self.clock.now() + self.lifetime
        token = a_token(ends, f"user-{len(self.tokens)}")
        self.tokens[token] = ends
        return answered(200, granted(token, self.lifetime, ends))

    def _ingest(self, taken: Taken) -> Response:
        """Source: spec, "Endpoints", POST /v2/events; "Limits"."""
        events = taken.json["events"]
        if len(taken.body) > self.max_bytes:
            return error(413, "invalid_request_error", "request_too_large", "the batch is too large")
        if not 1 <= len(events) <= self.max_events:
            return error(400, "invalid_request_error", "invalid_events", "1 to 1000 events", param="events")
        valid, invalid = [], []
        with self._lock:
            for event in events:
                if event["ref"] in self.refs:
                    code = {"code": self.duplicate_code} if self.duplicate_code else {}
                    invalid.append({"event": event, "error": "ref already exists", **code})
                elif event["name"] == "nonsense":
                    invalid.append({"event": event, "error": "no such event"})
                else:
                    self.refs[event["ref"]] = event
                    valid.append(event)
        return answered(200, {"validEvents": valid, "invalidEvents": invalid})


def _missing(taken: Taken) -> Response:
    return error(404, "invalid_request_error", "resource_not_found", "there is nothing here")


def granted(token: str, lifetime: timedelta, ends: datetime) -> dict[str, Any]:
    return {
        "accessToken": token,
        "expiresIn": lifetime.total_seconds(),
        "expiresAt": ends.isoformat(),
    }


def a_token(ends: datetime | None, subject: str = "user", **claims: Any) -> str:
    """A JWT, as the specification says that bearer tokens are; its signature is nobody's."""
    said = {"sub": subject, **({} if ends is None else {"exp": int(ends.timestamp())}), **claims}
    return ".".join(_part(part) for part in (b'{"alg":"HS256"}', json.dumps(said).encode(), b"signature"))


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def a_server() -> HTTPServer:
    """A server on a free port, a thread for each request, as long as a block of it lasts."""
    return HTTPServer(threaded=True)


def service_on(http: HTTPServer, clock: Clock | None = None) -> Service:
    """A new service on a running server, in the place of the one before."""
    http.clear()
    service = Service(http, clock or SystemClock())
    http.expect_request(re.compile("(?s).*")).respond_with_handler(service.handle)
    return service


@dataclass
class Moving:
    """A time that stands still but for those who sleep in it."""

    clock: FrozenClock = field(default_factory=lambda: FrozenClock(datetime(2026, 1, 15, 12, tzinfo=UTC)))
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(seconds=seconds)


def cut(_: Taken) -> Response:
    """An answer that ends before it should."""
    return Response(iter([b"{"]), 200, {"Content-Length": "200"}, content_type="application/json")


def when(condition: Callable[[], object], answer: Answer) -> Callable[[Taken], Response]:
    """The answer, as soon as something is so."""

    def handler(taken: Taken) -> Response:
        end = time.monotonic() + 120
        while not condition() and time.monotonic() < end:
            time.sleep(0.002)
        return answer if isinstance(answer, Response) else answer(taken)

    return handler


def threads_in(function: str) -> int:
    """How many threads are inside a function of that name, now."""
    return sum(
        any(frame.f_code.co_name == function for frame, _ in traceback.walk_stack(frame))
        for frame in sys._current_frames().values()
    )
