"""Receivers for the sandbox's tests, over real sockets: plain ones, hostile ones, and billhook's own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from billhook import Billhook
from billhook.clock import Clock
from billhook.signing import Scheme
from billhook.signing.source import Source
from support.apps import bare_app, inbox_at
from support.inbox_view import rows
from support.sandbox import Running

HOOK = "/webhooks/billing"


@dataclass(frozen=True)
class Got:
    """A request that came; the names of its headers are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """Remembers what came; answers with the next of `answers`, and with 200 when there are no more."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{HOOK}"

    def next_answer(self, got: Got) -> int:
        with self.lock:
            self.got.append(got)
            return self.answers.pop(0) if self.answers else 200


@contextlib.contextmanager
def receiving(*answers: int, tls: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Receiver]:
    """A receiver that answers with these statuses, then with 200."""
    receiver = Receiver(answers=list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(receiver.next_answer(Got(self.path, headers, body)))
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(receiver.body)))
            self.end_headers()
            self.wfile.write(receiver.body)

        do_GET = do_POST  # noqa: N815 - the base's name

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that went away
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Hostile:
    """A receiver that does with a connection whatever it likes; `connected` counts them."""

    port: int = 0
    connected: int = 0
    most_at_once: int = 0
    at_once: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{HOOK}"

    def count(self, change: int) -> None:
        with self.lock:
            self.at_once += change
            self.connected += change > 0
            self.most_at_once = max(self.most_at_once, self.at_once)


@contextlib.contextmanager
def hostile(behave: Callable[[socket.socket, Hostile], None]) -> Iterator[Hostile]:
    """`behave` gets each connection, in a thread of its own; it must end soon after `ended` is set."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    found = Hostile(listener.getsockname()[1])
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        found.count(1)
        with connection, contextlib.suppress(OSError):
            behave(connection, found)
        found.count(-1)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield found
    finally:
        found.ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in [thread, *threads]:
            one.join(10)


def read_request(connection: socket.socket) -> bytes:
    """All of a request with a length."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += connection.recv(65536) or b"\r\n\r\n"
    head, _, body = found.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < int(lengths[0].partition(b":")[2]):
        body += connection.recv(65536)
    return found


def hang(connection: socket.socket, receiver: Hostile) -> None:
    """Say nothing, ever."""
    receiver.ended.wait(60)


def drip(
    pieces: bytes, every_seconds: float = 0.05, *, first: bytes = b""
) -> Callable[[socket.socket, Hostile], None]:
    """Send `first`, then a byte now and then, for ever."""

    def behave(connection: socket.socket, receiver: Hostile) -> None:
        read_request(connection)
        connection.sendall(first)
        while not receiver.ended.is_set():
            for byte in pieces:
                connection.sendall(bytes([byte]))
                time.sleep(every_seconds)

    return behave


def say(answer: bytes) -> Callable[[socket.socket, Hostile], None]:
    """Read the request, and answer these bytes."""

    def behave(connection: socket.socket, _: Hostile) -> None:
        read_request(connection)
        connection.sendall(answer)

    return behave


@dataclass
class BillhookReceiver:
    """A Flask app with billhook's receiver, served over a socket."""

    app: Flask
    port: int
    statuses: list[int]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{HOOK}"

    def stored(self) -> list[tuple[str, str, bytes]]:
        """Key, type and body of each delivery, as an independent connection reads them."""
        return rows(inbox_at(self.app), "SELECT key, event_type, body FROM delivery ORDER BY id")  # type: ignore[return-value]


@contextlib.contextmanager
def billhook_receiver(
    folder: Path, scheme: Scheme, secrets: Sequence[Any], clock: Clock, **config: Any
) -> Iterator[BillhookReceiver]:
    """What the sandbox is a witness against; it knows the time by `clock`."""
    place = folder / "receiver"
    place.mkdir()
    app = bare_app(place, **config)
    source = Source("default", scheme=scheme, secrets=secrets)
    Billhook(sources=[source], clock=clock).init_app(app, url_prefix=HOOK)
    statuses: list[int] = []

    class Noting(WSGIRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            statuses.append(int(code))

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Noting)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield BillhookReceiver(app, server.server_port, statuses)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        app.extensions["billhook"].close()


# --- what tests ask of a sandbox --------------------------------------------------------------------


def subscribe(sandbox: Running, event_type: str, url: str, **more: Any) -> str:
    """Ask for events; the subscription's id."""
    return str(sandbox.ok("POST", "/webhook", {"callbackUrl": url, "eventType": event_type, **more})["id"])


def trigger(sandbox: Running, event_type: str, **fields: Any) -> str:
    """Raise an event; its id in the log."""
    return str(sandbox.ok("POST", f"/_sandbox/trigger/{event_type}", fields)["raisedId"])


def flush(sandbox: Running, timeout_seconds: float = 30) -> dict[str, Any]:
    """Wait until nothing is due now."""
    return dict(sandbox.ok("POST", "/_sandbox/flush", {"timeoutSeconds": timeout_seconds}))


def later(sandbox: Running, seconds: float) -> None:
    """So much time goes by, and what fell due meanwhile is sent."""
    sandbox.real.advance(seconds=seconds)
    sandbox.token = ""
    assert flush(sandbox)["due"] == 0


def deliveries(sandbox: Running, query: str = "") -> list[dict[str, Any]]:
    """The log."""
    return list(sandbox.ok("GET", f"/_sandbox/deliveries?limit=1000{query}")["deliveries"])


def delivery(sandbox: Running) -> dict[str, Any]:
    """The only one in the log."""
    (found,) = deliveries(sandbox)
    return found


def errors(one: dict[str, Any]) -> list[str | None]:
    """What was wrong with each attempt."""
    return [attempt.get("error") for attempt in one["attempts"]]
