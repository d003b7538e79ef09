"""A real receiver under gunicorn, and requests to it byte by byte."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from gunicorn import version_info

from billhook.servers.gunicorn_compat import OLDEST
from support.inbox_view import place_of, rows
from support.postgres import unavailable
from support.processes import clean_environment, logged, until
from support.signing import PATH, SECRET, signed
from support.templates import new_inbox
from support.timeouts import scaled


@dataclass
class Reply:
    """An answer as it came over the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """gunicorn, serving a receiver on a free loopback port."""

    port: int
    inbox: Path | str
    pid: int
    log: Path

    def connect(self) -> socket.socket:
        return connect(self.port)

    def ask(self, *pieces: bytes, half_close: bool = False) -> Reply:
        """One connection, these bytes, one answer."""
        return ask(self.port, *pieces, half_close=half_close)

    def get(self, path: str) -> Reply:
        return get(self.port, path)

    def post(self, body: bytes = b"{}", headers: Mapping[str, str] | None = None, **more: Any) -> Reply:
        """One whole POST with a length."""
        return self.ask(request(body, signed(body) if headers is None else headers, **more))

    def logged(self, text: str) -> str:
        """Wait until a log line has this text, as a thread of the server's writes them; the whole log."""
        until(lambda: text in self.log.read_text(), 10)
        return self.log.read_text()

    def keys(self) -> list[str]:
        return [key for (key,) in rows(self.inbox, "SELECT key FROM delivery ORDER BY id")]

    def stored(self, key: str) -> tuple[Any, ...] | None:
        """(event_type, body) as an independent connection reads it."""
        found = rows(self.inbox, "SELECT event_type, body FROM delivery WHERE key = ?", key)
        return found[0] if found else None


def assert_unavailable(server: Server, key: str, deadline_seconds: float):
    """A delivery is refused as one that cannot be stored now, in time, with nothing of ours in the answer."""
    started = time.monotonic()
    reply = server.post(b"{}", signed(message_id=key))
    seconds = time.monotonic() - started
    assert (reply.status, reply.json["type"]) == (503, "api_error")
    assert sorted(reply.json) == ["code", "message", "type"]
    assert 5 <= int(reply.headers["Retry-After"]) <= 60
    assert str(server.inbox) not in reply.body.decode()
    assert seconds < scaled(deadline_seconds + 1)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def ask(port: int, *pieces: bytes, half_close: bool = False) -> Reply:
    """One connection to a port, these bytes, one answer."""
    with connect(port) as connection:
        for piece in pieces:
            connection.sendall(piece)
        if half_close:
            with contextlib.suppress(OSError):  # the server has answered and closed already
                connection.shutdown(socket.SHUT_WR)
        return read_reply(connection)


def get(port: int, path: str, **headers: str) -> Reply:
    """The answer to a GET; headers with _ for -."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return ask(port, head(named, method="GET", path=path))


def is_up(port: int, path: str = "/healthz", status: int | None = None) -> bool:
    """Whether a GET is answered now, with this status if one is given."""
    with contextlib.suppress(OSError, HTTPException):
        found = get(port, path).status
        return status in (None, found)
    return False


def request(
    body: bytes, headers: Mapping[str, str], *, method: str = "POST", path: str = PATH, close: bool = True
) -> bytes:
    """A request with a Content-Length."""
    return head({**headers, "Content-Length": str(len(body))}, method=method, path=path, close=close) + body


def head(
    headers: Mapping[str, str],
    *,
    method: str = "POST",
    path: str = PATH,
    close: bool = True,
    raw: bytes = b"",
) -> bytes:
    """A request line and headers; `raw` is further header lines as they are."""
    lines = [f"{method} {path} HTTP/1.1", "Host: receiver", *(f"{n}: {v}" for n, v in headers.items())]
    if close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n" + raw + b"\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def read_reply(connection: socket.socket, method: str = "POST") -> Reply:
    """The next answer on a connection."""
    started = time.monotonic()
    response = HTTPResponse(connection, method=method)
    try:
        response.begin()
        body = response.read()
    finally:
        response.close()
    return Reply(response.status, response.headers, body, time.monotonic() - started)


TESTS = Path(__file__).parents[1]
WSGI = "billhook.standalone:create_app()"
ASGI = "billhook.standalone:create_asgi_app()"
_ASGI_WORKER = ["-k", "billhook.gunicorn_worker.AsgiWorker"]
DOORS = {
    "gthread": (["-k", "gthread", "--threads", "8"], WSGI),
    "asgi": ([*_ASGI_WORKER, "--asgi-loop", "asyncio", "--http-parser", "python"], ASGI),
    "asgi-fast": ([*_ASGI_WORKER, "--asgi-loop", "uvloop", "--http-parser", "auto"], ASGI),
    "gevent": (["-k", "gevent"], WSGI),
    "fastapi": (_ASGI_WORKER, "support.mounted:create_fastapi_app()"),
    "uvicorn": (["--factory"], "billhook.standalone:create_asgi_app"),
}
"""Ways to serve the standalone receiver: flags and application, of gunicorn but for `uvicorn`."""
_OWN_SOCKET = ["--no-control-socket"] if version_info >= (26,) else []


def need_event_loop() -> None:
    """Skip the test on a gunicorn that only serves with threads, as `.ci/floors` tries it."""
    if version_info < tuple(map(int, OLDEST.split("."))):
        unavailable("the event loop needs a newer gunicorn: the extra `serve`")


def serve_command(door: str, descriptor: int, workers: int, *flags: str) -> list[str]:
    """The command of a door on a listening socket, without the application; uvicorn has one process."""
    served_by, _ = DOORS[door]
    if door == "uvicorn":
        return [sys.executable, "-m", "uvicorn", *served_by, "--fd", str(descriptor)]
    listening = ["-b", f"fd://{descriptor}", "-w", str(workers)]
    return [sys.executable, "-m", "gunicorn", *served_by, *listening, *flags]


@contextlib.contextmanager
def gunicorn(
    folder: Path,
    *flags: str,
    workers: int = 1,
    door: str = "gthread",
    app: str | None = None,
    prefix: Sequence[str] = (),
    wait_for: str = "/healthz",
    **environment: str,
) -> Iterator[Server]:
    """The standalone app under gunicorn, until the block ends."""
    served_by, standalone = DOORS[door]
    if served_by[:2] == _ASGI_WORKER:
        need_event_loop()
    log = folder / "gunicorn.log"
    settings = {
        "BILLHOOK_SECRETS": SECRET,
        "BILLHOOK_ENGINE": "worker",
        "BILLHOOK_INBOX_URL": f"sqlite:///{folder / 'inbox' / 'billhook.db'}",
        **environment,
    }
    inbox = place_of(settings["BILLHOOK_INBOX_URL"])
    if isinstance(inbox, Path):
        inbox.parent.mkdir(exist_ok=True)
        if "BILLHOOK_INBOX_URL" not in environment and not inbox.exists():
            new_inbox(settings["BILLHOOK_INBOX_URL"])
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        command = serve_command(door, listener.fileno(), workers, *_OWN_SOCKET)
        command = [*prefix, *command, *flags, app or standalone]
        environ = clean_environment(**{"PYTHONPATH": path, **settings})
        options = {"env": environ, "cwd": folder, "pass_fds": [listener.fileno()]}
        if wait_for:  # else the backlog holds whoever connects before the workers are up
            options["ready"] = partial(is_up, port, wait_for)
        log.unlink(missing_ok=True)
        with logged(command, log, grace=10, seconds=20, **options) as process:
            yield Server(port, inbox, process.pid, log)
