"""Serve a Flask app as an ASGI application: deliveries are received on the event loop.

Anyone can send deliveries that are refused, so their observers, which must delay neither the answer nor a
genuine delivery, are called in a thread of their own. A thread pool that is shared with deliveries could be
full of them.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from http import HTTPStatus
from typing import Any

from a2wsgi import WSGIMiddleware
from flask import Flask

from billhook.basics.concurrency import is_shortage, start_thread
from billhook.errors import (
    BodyIncomplete,
    BodyTooLarge,
    InboxUnavailable,
    OutOfResources,
    RequestError,
    SignatureError,
)
from billhook.inbox import Inbox
from billhook.receiver.blueprint import webhook_routes
from billhook.receiver.delivery_rules import (
    DRAIN_BYTES,
    SIGNALS,
    DeliveryRules,
    Refusal,
    RequestHeaders,
    declared_length,
)
from billhook.receiver.responses import METHOD_NOT_ALLOWED, OUT_OF_RESOURCES, WebhookResponse
from billhook.receiver.time_limit import TimeLimit
from billhook.signals import delivery_rejected
from billhook.signing.source import Source

MAX_WAITING = 1000
"""The most refusals that wait for their observers; observers are not called for further ones."""


class RefusalObservers:
    """Calls functions one after the other, within the app's context and after the answer was sent."""

    def __init__(self, app: Flask) -> None:
        self._app = app
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None

    def enqueue(self, call: Callable[[], None]) -> bool:
        """Queue `call` for the thread; return False if too many wait already. Use it from one thread only."""
        try:
            self._waiting.put_nowait(call)
        except queue.Full:
            return False
        if self._thread is None or not self._thread.is_alive():
            try:
                self._thread = start_thread(self._run, "billhook-observers")
            except OutOfResources:
                return False  # called when a thread can be started again
        return True

    def _run(self) -> None:
        while True:
            call = self._waiting.get()
            with self._app.app_context():
                call()


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

OTHER_THREADS = 32
"""Threads for requests other than deliveries: pages, metrics, and views of the user."""
_GIVEN_UP = "billhook.given_up"
"""Key in the scope of a request that was answered although no thread could be started for it."""


class AsgiApp:
    """The ASGI application that `Billhook.asgi_app` returns; mount it or serve it.

    A request that waits for its commit occupies no thread.

    A server that speaks the lifespan protocol starts the engine and stops it. Where this is mounted in
    another application, which passes no lifespan on, the engine starts with the first request and is stopped
    as the process ends.
    """

    def __init__(
        self,
        app: Flask,
        rules: DeliveryRules,
        inbox: Inbox,
        *,
        start: Callable[[], None],
        close: Callable[[], None],
        ensure_engine: Callable[[], None] | None,
    ) -> None:
        """`start` and `close` are for the life of a server; `ensure_engine` is called with every delivery."""
        self.flask_app = app
        self._rules = rules
        self._inbox = inbox
        self._start = start
        self._close = close
        self._ensure_engine = ensure_engine
        self._body_limit = TimeLimit(rules.body_seconds)
        call: Any = self._call_flask  # a2wsgi has types of its own
        self._observers = RefusalObservers(app)
        self._other_paths: Any = WSGIMiddleware(call, workers=OTHER_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the server."""
        source = None
        if scope["type"] == "http":
            if not scope["path"].startswith("/"):
                scope = {**scope, "path": _without_authority(scope["path"])}
            path, root = scope["path"], scope.get("root_path", "")
            if root and path.startswith(root):
                path = path[len(root) :]  # below the point where the application is mounted
            # Werkzeug ignores repeated slashes too: //path would otherwise be received in one of the few
            # threads, without a time limit for its body.
            source = self._sources.get("/" + path.lstrip("/"))
        if source is None:
            await self._serve_other(scope, receive, send)
            return
        if self._ensure_engine is not None:
            self._ensure_engine()
        if scope["method"] == "POST":
            try:
                response = await self._accept(source, scope, receive)
            except (MemoryError, RuntimeError) as error:  # here: the frames that held the body are released
                if not is_shortage(error):
                    raise
                response = self._rules.out_of_memory(source)
        else:
            response = METHOD_NOT_ALLOWED
        await _respond(response, scope, send)
        if response.status in (405, 413):  # refused before the body was read
            await self._drain(receive)

    def refused_by_server(self, status: int) -> None:
        """Log and count a request that the server refused by itself; the worker calls it."""
        self._rules.refused_by_server(status)

    @cached_property
    def _sources(self) -> dict[str, Source]:
        """The source of each path; read at the first request, when Flask accepts no more routes."""
        routes = webhook_routes(self.flask_app)
        return {path: route.source for route in routes for path in (route.path, route.path.rstrip("/") + "/")}

    async def _accept(self, source: Source, scope: Scope, receive: Receive) -> WebhookResponse:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._rules.deadline_seconds
        try:
            headers = RequestHeaders.from_asgi(scope["headers"])
            # Read before any check: unread body bytes would be parsed as the connection's next request.
            body = await self._read_body(headers, receive)
            delivery = self._rules.verify(source, headers, body)
            try:
                receipt = await self._inbox.put_async(delivery, deadline - loop.time())
            except (OutOfResources, MemoryError) as error:
                raise self._rules.not_stored(error) from None
        except (RequestError, SignatureError, InboxUnavailable) as error:
            return self._refuse(source, error)
        return await self._run(self._rules.stored, delivery, receipt)

    async def _read_body(self, headers: RequestHeaders, receive: Receive) -> bytes:
        """Return the exact bytes of the body. Raises BodyTooLarge or BodyIncomplete."""
        limit_bytes = self._rules.max_body_bytes
        expected = declared_length(headers.get("content-length", ""), limit_bytes)
        body: bytes | bytearray = b""
        more = True
        try:
            with self._body_limit.of(asyncio.current_task()) as limit:  # type: ignore[arg-type]  # within a task
                while more:
                    message = await receive()
                    if limit.over:
                        raise TimeoutError  # noqa: TRY301 - answered as the one that the limit raises
                    if message["type"] != "http.request":
                        raise BodyIncomplete("the client disconnected")
                    piece = message.get("body", b"")
                    if not body:
                        body = piece
                    else:
                        # Not a list: chunks of two bytes would take thirty times their size.
                        if isinstance(body, bytes):
                            body = bytearray(body)
                        body += piece
                    if len(body) > limit_bytes:
                        raise BodyTooLarge(f"over {limit_bytes} bytes")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise BodyIncomplete(f"no complete body within {self._rules.body_seconds:g} s") from None
        if expected is not None and len(body) < expected:
            raise BodyIncomplete(f"{len(body)} of {expected} bytes came")
        return bytes(body)  # the same object, if it came in one piece

    async def _drain(self, receive: Receive) -> None:
        """Read the rest of a rejected body up to a limit, so that its sender reads the response.

        A sender that is still writing would see a reset instead. The server closes the connection beyond it.
        """
        length = 0
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(self._rules.body_seconds):
                while length <= DRAIN_BYTES:
                    message = await receive()
                    length += len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return

    def _refuse(self, source: Source, error: Refusal) -> WebhookResponse:
        """Return the response to a refused delivery; its observers are called afterwards."""
        response = self._rules.refused(source, error)
        call = partial(self._rules.emit_rejected, source, error)
        if delivery_rejected.receivers and not self._observers.enqueue(call):
            self._rules.log_slow_observers(source)
        return response

    async def _run(self, answer: Callable[..., WebhookResponse], *arguments: Any) -> WebhookResponse:
        """Call a method of the rules; in a thread if observers or the engine would block the loop."""
        if not (self._rules.wake_blocks or any(signal.receivers for signal in SIGNALS)):
            return answer(*arguments)
        return await asyncio.to_thread(self._run_in_context, answer, *arguments)

    def _run_in_context(self, answer: Callable[..., WebhookResponse], *arguments: Any) -> WebhookResponse:
        with self.flask_app.app_context():
            return answer(*arguments)

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._call_other_paths(scope, receive, send)
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await asyncio.to_thread(self._start)
                await send({"type": "lifespan.startup.complete"})
            else:
                await asyncio.to_thread(self._close)  # waits for the handlers that are running
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _call_other_paths(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the Flask app, in a thread; with 503 where there is no thread or no memory for it."""
        begun = False

        async def send_and_note(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._other_paths(scope, _refuse_incomplete_body(receive), send_and_note)
        except (MemoryError, RuntimeError) as error:
            if begun or not is_shortage(error):
                raise
            scope[_GIVEN_UP] = True  # the pool has kept it, for the next thread that starts
            self.refused_by_server(HTTPStatus.SERVICE_UNAVAILABLE)
            await _respond(OUT_OF_RESOURCES, scope, send)

    def _call_flask(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # The server marks the end of a body without a length, and Werkzeug reads such a body only if told so.
        environ["wsgi.input_terminated"] = True
        if environ["asgi.scope"].get(_GIVEN_UP):
            return ()
        return self.flask_app(environ, start_response)


async def _respond(response: WebhookResponse, scope: Scope, send: Send) -> None:
    with suppress(OSError):  # the client has gone; what is stored stays stored
        await send(_head(response))
        # A server drops the body of a response to HEAD, but may log a line about each.
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})


def _without_authority(target: str) -> str:
    """Return the path of a request target in absolute form, as a client of a forward proxy sends it.

    Source: RFC 9112, section 3.2.2: a server must accept it.
    """
    scheme, separator, rest = target.partition("://")
    if not (separator and scheme.isalpha()):
        return target
    return "/" + rest.partition("/")[2]


def _refuse_incomplete_body(receive: Receive) -> Receive:
    """Return a `receive` that raises ConnectionResetError if the client leaves before its body is complete.

    The adapter would take that for the end of the body, and a view would use a part of it as the whole.
    """
    complete = False

    async def receive_whole() -> MutableMapping[str, Any]:
        nonlocal complete
        message = await receive()
        if message["type"] == "http.disconnect" and not complete:
            raise ConnectionResetError("the client left before its request's body was complete")
        complete = not message.get("more_body", False)
        return message

    return receive_whole


@lru_cache(128)  # the 503 alone has 56 values of Retry-After
def _head(response: WebhookResponse) -> MutableMapping[str, Any]:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(response.body)).encode()),
        *((name.lower().encode(), text.encode()) for name, text in response.headers),
    ]
    return {"type": "http.response.start", "status": response.status, "headers": headers}
