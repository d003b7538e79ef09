"""AsgiWorker: gunicorn's asgi worker, with limits for slow and idle clients, which gunicorn lacks.

`worker_class = "billhook.gunicorn_worker.AsgiWorker"`; `billhook serve` uses it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from gunicorn.errors import AppImportError

from billhook.engines import thread
from billhook.engines.descriptors import DescriptorMonitor
from billhook.errors import ConfigError
from billhook.logs import LimitedLog
from billhook.servers.accepting import AcceptingServer
from billhook.servers.connection_limits import ConnectionLimits, WaitingQueue
from billhook.servers.gunicorn_compat import check_gunicorn
from billhook.supervising.memory import MemoryMonitor

try:
    check_gunicorn()
except ConfigError as error:  # any other exception gunicorn would show with a stack trace
    raise SystemExit(f"Error: {error}") from None

from gunicorn.asgi import protocol
from gunicorn.http.errors import InvalidSchemeHeaders
from gunicorn.workers import gasgi

logger = logging.getLogger("billhook.receiver")

_OTHER_DESCRIPTORS = 512
"""Descriptors for other things than connections: the inbox, the log, files of handlers."""
_HEAD_BYTES = 65_536
"""The largest head in bytes; gunicorn's own limits add up to more than ten times this."""
_BUFFERED_HEAD_BYTES = 8_192
"""The size from which on gunicorn parses an incomplete head."""
_PIECE_BYTES = 4_096
"""How many bytes the parser gets at a time, so that no client occupies the event loop for long."""
_FRAMING_BYTES = 16_384
"""How many bytes around a body, such as sizes of chunks and trailers, may come beside a quarter of it."""
_FREE_CHUNKS = 256
_CHUNK_BYTES = 24
"""How many chunks of any size a body may have, and on average bytes of each one beyond: each costs time."""
_SWEEP_SECONDS = 0.5
_SWEEP_AT_MOST = 25
"""The most connections that one sweep ends: many that were opened together must not be ended together."""
_NEXT_SWEEP_SECONDS = 0.01
_GARBAGE_THRESHOLDS = (200_000, 10, 10)
_LAST_REQUESTS_SECONDS = 1.0
"""How long an ending process waits for requests that are arriving on open connections."""


class AsgiWorker(gasgi.ASGIWorker):  # type: ignore[misc]
    """Serves an ASGI application; closes the connections that wait longest when there are too many."""

    alive: bool

    def init_process(self) -> None:
        """Begin to serve in this process. Called by gunicorn after the fork."""
        self.init_signals()  # handlers inherited from the parent would lose a signal that ends this process
        # Signal handlers of an event loop do not show their owner, unlike those of gunicorn's other workers.
        thread.replaced_by_its_parent = True
        self.limits = ConnectionLimits(self._allow_descriptors(), self.cfg.keepalive)
        self._descriptors = DescriptorMonitor()
        self._memory = MemoryMonitor()
        self._loop_errors = LimitedLog(logger)
        super().init_process()

    def _allow_descriptors(self) -> int:
        """Raise the soft limit of open files; return how many connections it allows, at most those wanted."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # A loop may accept as many as wait in the queue before it closes any for them.
        reserved = _OTHER_DESCRIPTORS + int(self.cfg.backlog)
        wanted = int(self.worker_connections) + reserved
        if soft != resource.RLIM_INFINITY and soft < wanted:
            limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
            except (OSError, ValueError):  # a sandbox may forbid the call
                limit = soft
            if limit < wanted:
                # Accepting beyond the limit of open files fails, and then the loop accepts nothing for a
                # second.
                allowed = max(limit - reserved, limit // 4)
                self.log.warning("The limit of %d open files allows %d connections.", limit, allowed)
                return allowed
        return int(self.worker_connections)

    def load_wsgi(self) -> None:
        """Load the application. Called by gunicorn."""
        super().load_wsgi()
        self.report = getattr(self.asgi, "refused_by_server", lambda status: None)
        if hasattr(self.asgi, "wsgi_app"):  # a Flask app would answer every request with an error
            raise AppImportError(
                "Error: this is a Flask app, and an event loop serves ASGI applications. Name "
                "billhook.standalone:create_asgi_app(), or hooks.asgi_app(app) for an app of your own; "
                "or have threads serve it: -k gthread --worker-connections 1000"
            )

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Skip gunicorn's warning about `threads`, which the same configuration has for gthread."""

    def init_signals(self) -> None:
        """Reset signals to end the process while the application loads: uvloop loses those before it runs."""
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGUSR1, signal.SIGWINCH):  # these would end the process too, without need
            signal.signal(number, signal.SIG_IGN)

    async def _serve(self) -> None:
        super().init_signals()
        # gunicorn looks for its C parser once and keeps the result in the class that was asked, but reads it
        # from ASGIProtocol: asked of the subclass first, it would say that the parser is too old.
        protocol.ASGIProtocol._check_h1c_protocol_available()
        gasgi.ASGIProtocol = LimitedProtocol  # gunicorn's worker finds the class by this name
        self.loop.create_server = self._create_server  # gunicorn's worker calls it for each listening socket
        self.loop.set_exception_handler(self._on_loop_error)
        self._sweep()
        _tune_garbage_collection()
        await super()._serve()

    async def _create_server(
        self, make_protocol: Callable[[], LimitedProtocol], *, sock: socket.socket, ssl: Any, **_: Any
    ) -> AcceptingServer:
        # A passed socket may have a short queue, and a client that finds it full tries again a second later.
        sock.listen(self.cfg.backlog)
        return AcceptingServer(self.loop, sock, make_protocol, ssl)

    def _sweep(self) -> None:
        more = self.limits.end_overdue(_SWEEP_AT_MOST)
        if not more:
            self._end_if_useless()
        self.loop.call_later(_NEXT_SWEEP_SECONDS if more else _SWEEP_SECONDS, self._sweep)

    def _end_if_useless(self) -> None:
        """End this process if it can open no file or has no memory, again and again: gunicorn replaces it."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            self._descriptors.record(error)
        else:
            self._descriptors.record(None)
        memory_exhausted = self._memory.is_exhausted()
        if self.alive and (self._descriptors.exhausted or memory_exhausted):
            what = "memory" if memory_exhausted else "file descriptors"
            self.log.error("This process has no %s left: another one takes its place.", what)
            self.alive = False

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), MemoryError):
            loop.default_exception_handler(context)
            return
        with suppress(MemoryError):  # anyone can connect: not a traceback for each connection
            self._loop_errors.log(
                "memory", logging.ERROR, "connection closed: there is no memory left for it"
            )

    async def _shutdown(self) -> None:
        """Close the connections without a request: gunicorn would wait for its graceful_timeout."""
        for server in self.servers:
            server.close()
        # A request that is arriving is answered, with `Connection: close`; also of those accepted just now.
        end = self.loop.time() + _LAST_REQUESTS_SECONDS
        while self.loop.time() < end and not self._quick_shutdown:
            if not self.limits.open and not any(server.opening for server in self.servers):
                break
            await asyncio.sleep(0.05)
        for waiting in (self.limits.without_head, self.limits.idle, self.limits.idle_and_known):
            for connection in waiting:
                connection.close()
        await super()._shutdown()


def _tune_garbage_collection() -> None:
    """Make collections rare: each stops the process, for longer with every connection.

    Connections need none of them: they are freed when their last reference goes.
    """
    gc.collect()
    gc.freeze()  # the objects of the application live until the process ends
    gc.set_threshold(*_GARBAGE_THRESHOLDS)


class LimitedProtocol(protocol.ASGIProtocol):  # type: ignore[misc]
    """One connection, which reports to the worker's limits what it waits for.

    gunicorn's part of it begins with the first whole head: until then a connection costs no task, no parser
    and little memory.
    """

    worker: AsgiWorker
    _forwarded_trust: Any
    _secure_names: Any
    _begun = False
    _early = b""
    """The bytes received before gunicorn's part began."""
    _head_bytes = 0
    _idle: WaitingQueue | None = None
    """The list that contains this connection while it is kept alive."""
    _known = False
    _client_has_ended = False
    _body_is_broken = False
    _is_refused = False
    """Whether further bytes are dropped, because the answer is being sent."""
    _request_bytes = 0
    """Bytes of a request after its head; those in the same piece as the end of the head are not counted."""
    _body_bytes = 0
    _body_pieces = 0
    _is_chunked = False
    """With a Content-Length a body has no chunks, and may come in as many pieces as it likes."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin a connection, or refuse it if there are too many and all are in use. Called by asyncio."""
        self.transport = transport
        limits = self.worker.limits
        if not limits.admit():
            limits.open += 1  # connection_lost subtracts it again
            transport.abort()
            return
        limits.open += 1
        limits.without_head.add(self)
        if self._uses_uwsgi or transport.get_extra_info("ssl_object") is not None:
            self._begin()  # the client may speak another protocol than HTTP/1

    def data_received(self, data: bytes) -> None:
        """Receive bytes from the client. Called by asyncio."""
        limits = self.worker.limits
        if not self._begun:
            data = self._early + data
            if len(data) < _BUFFERED_HEAD_BYTES and b"\n\r\n" not in data and b"\n\n" not in data:
                self._early = data
                return
            self._early = b""
            self._begin()
        elif self._idle is not None:  # the first bytes of its next request
            self._cancel_keepalive_timer()
            limits.without_head.add(self)
            self._head_bytes = 0
        for start in range(0, len(data), _PIECE_BYTES):
            if self._is_refused or self._closed:
                return  # the rest of the request is not needed
            self._receive_piece(data[start : start + _PIECE_BYTES])

    def _receive_piece(self, data: bytes) -> None:
        limits = self.worker.limits
        self._request_bytes += len(data)
        super().data_received(data)
        if self._is_refused:
            return
        if self in limits.without_head:
            self._head_bytes += len(data)
            if self._head_bytes > _HEAD_BYTES:
                self._send_error_response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "")
                self.close()
        elif self in limits.without_body and self._framing_is_too_large():
            self._refuse()

    def _feed_callback_parser(self, data: bytes) -> bool:
        # gunicorn calls this for a pipelined request too, and ends the connection where it returns False: a
        # broken body has a request, which the application has to answer first.
        try:
            if super()._feed_callback_parser(data):
                return True
        except Exception:  # noqa: BLE001 - the parser's own errors, on what is no HTTP: nothing of it is logged
            self._refuse()
        return not self._closed

    def _refuse(self) -> None:
        self._send_error_response(HTTPStatus.BAD_REQUEST, "")
        self._close_transport()

    def _framing_is_too_large(self) -> bool:
        framing = self._request_bytes - self._body_bytes
        return framing > _FRAMING_BYTES + self._body_bytes // 4

    def _begin(self) -> None:
        self._begun = True
        super().connection_made(self.transport)

    async def _handle_connection(self) -> None:
        try:
            await super()._handle_connection()
        finally:
            # After an application that failed without an answer nothing else closes a connection whose body
            # was broken.
            self._body_is_broken = False
            self._close_transport()
            # Both refer to this object: without this, only the garbage collector would free any of the three.
            self._callback_parser = None
            self._body_receiver = None

    def eof_received(self) -> bool:
        """Keep a connection open whose client sends no more, until its request is answered.

        asyncio would close it, and a client that half-closes after its request would get no response.
        """
        self._client_has_ended = True
        receiver = self._body_receiver
        if self._is_ssl or receiver is None or self._awaiting_request:
            return False
        if not receiver._complete:
            receiver.signal_disconnect()  # the rest of the body will not arrive
        self.worker.limits.ended.add(self)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection. Called by asyncio."""
        limits = self.worker.limits
        limits.open -= 1
        limits.discard(self)
        if self._begun:
            super().connection_lost(exc)
        # asyncio's transport has a method of its own as an attribute, which is a cycle as well.
        getattr(self.transport, "__dict__", {}).pop("_read_ready_cb", None)
        self._closed = True

    def pause_writing(self) -> None:
        """Start the time limit of a client that does not read. Called by asyncio."""
        self.worker.limits.unread.add(self)
        super().pause_writing()

    def resume_writing(self) -> None:
        """End the time limit of a client that reads again. Called by asyncio."""
        self.worker.limits.unread.discard(self)
        super().resume_writing()

    def refuse_head(self) -> None:
        """Answer that the head took too long, unless none was begun, and close the connection."""
        if self._early or self._begun:
            self._send_error_response(HTTPStatus.REQUEST_TIMEOUT, "")
        self.close()

    def close(self) -> None:
        """Close the connection and end its task."""
        self._close_transport()
        if self._request_ready is not None:
            self._request_ready.set()

    def abort(self) -> None:
        """Close the connection, and drop what the client has not read."""
        self.close()
        self.transport.abort()

    def _on_headers_complete(self) -> bool:
        limits = self.worker.limits
        limits.without_head.discard(self)
        limits.without_body.add(self)
        self._request_bytes = self._body_bytes = self._body_pieces = 0
        self._is_chunked = bool(getattr(self._callback_parser, "is_chunked", True))
        try:
            return bool(super()._on_headers_complete())
        except InvalidSchemeHeaders:  # two proxies name different ones, and deliveries need none
            trusted = self._forwarded_trust, self._secure_names
            self._forwarded_trust, self._secure_names = ({}, trusted[0][1]), frozenset()
            try:
                return bool(super()._on_headers_complete())
            finally:
                self._forwarded_trust, self._secure_names = trusted

    def _on_body(self, chunk: bytes) -> None:
        self._body_bytes += len(chunk)
        self._body_pieces += self._is_chunked
        if self._body_pieces > _FREE_CHUNKS + self._body_bytes // _CHUNK_BYTES:
            # Out of the parser, which would go on to the end of what it was given.
            raise ValueError("a body in tiny chunks")
        super()._on_body(chunk)

    def _on_message_complete(self) -> None:
        self.worker.limits.without_body.discard(self)
        super()._on_message_complete()

    def _resume_reading(self) -> None:
        # gunicorn calls this after each request, and would read more of a client that sends requests
        # faster than they are answered, without end.
        if not self._is_buffer_full():
            super()._resume_reading()

    def _arm_keepalive_timer(self) -> None:
        if self._client_has_ended:
            self.close()
        elif self._keepalive > 0:
            limits = self.worker.limits
            self._idle = limits.idle_and_known if self._known else limits.idle
            self._idle.add(self)

    def _cancel_keepalive_timer(self) -> None:
        if self._idle is not None:
            self._idle.discard(self)
            self._idle = None

    def _send_response_start(
        self, status: int, headers: Any, request: Any, close: bool | None = None
    ) -> None:
        if status == HTTPStatus.OK and request.method == "POST":
            # A delivery is answered so only if its signature is good; other paths of an app are its own.
            self._known = True
        super()._send_response_start(status, headers, request, close=close)

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """Answer a request that is no HTTP, without gunicorn's `message`, which may quote it."""
        self._is_refused = True
        failure = sys.exception()
        if failure is not None:
            # The parser's error is in a frame of its own traceback, a cycle that holds all that was read.
            failure.__traceback__ = None
        receiver = self._body_receiver
        if receiver is not None and not receiver._complete:
            # The body is broken, and the application is reading it: it answers, as it does behind gthread.
            self._body_is_broken = True
            receiver.signal_disconnect()
        else:
            if status == HTTPStatus.NOT_IMPLEMENTED:  # an unknown transfer coding; no input is answered 5xx
                status = HTTPStatus.BAD_REQUEST
            self.worker.report(int(status))
            super()._send_error_response(status, HTTPStatus(status).phrase, extra_headers)

    def _close_transport(self) -> None:
        if self._body_is_broken and not self._closed:
            self._body_is_broken = False  # gunicorn closes again after the application has answered
            return
        if not self._closed:  # now, not when asyncio reports the loss
            self.worker.limits.discard(self)
            self.worker.limits.closing.add(self)
        super()._close_transport()
        if self.transport is not None and not self.transport.is_closing():
            # gunicorn shuts the sending side down first, and closes nothing if the client has gone.
            self.transport.close()
