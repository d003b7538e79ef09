"""AsgiWorker: gunicorn's asgi worker with limits for slow and idle clients, which it has none of.

`worker_class = "billhook.gunicorn_worker.AsgiWorker"`; `billhook serve` uses it.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from http import HTTPStatus
from typing import Any

from gunicorn.asgi import protocol
from gunicorn.workers import gasgi

from billhook.engines import thread

__all__ = ["AsgiWorker"]

HEAD_SECONDS = 10.0
"""How long a client may take to send the line and headers of a request."""
_OTHER_DESCRIPTORS = 512
"""Descriptors beside those of connections: the inbox, the log, what handlers open."""


class AsgiWorker(gasgi.ASGIWorker):  # type: ignore[misc]
    """Serves an ASGI application; closes the connections that wait longest when there are too many."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.connections_without_head: dict[LimitedProtocol, None] = {}
        """Connections that have sent no complete request head yet, oldest first."""
        self.idle_connections: dict[LimitedProtocol, None] = {}
        """Connections kept alive after a response, oldest first."""

    def init_process(self) -> None:
        """Begin to serve in this process. Called by gunicorn after the fork."""
        self.init_signals()  # its parent's handlers would lose a signal that ends this process
        # An event loop's signal handlers do not say whose they are, as those of gunicorn's other workers do.
        thread.replaced_by_its_parent = True
        self._allow_descriptors()
        super().init_process()

    def _allow_descriptors(self) -> None:
        """Raise the soft limit of open files, so that it is not reached before that of connections."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = self.worker_connections + _OTHER_DESCRIPTORS
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))

    @classmethod
    def check_config(cls, cfg: Any, log: Any) -> None:
        """Say nothing of `threads`, which the same configuration has for gthread. Called by gunicorn."""

    def init_signals(self) -> None:
        """Have signals end the process while the application loads: uvloop loses those before it runs."""
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGUSR1, signal.SIGWINCH):  # they would end it too, and need not
            signal.signal(number, signal.SIG_IGN)

    async def _serve(self) -> None:
        super().init_signals()
        # gunicorn looks for its C parser once and keeps the result in the class that was asked, but reads it
        # from ASGIProtocol: asked of the subclass first, it would say that the parser is too old.
        protocol.ASGIProtocol._check_h1c_protocol_available()
        gasgi.ASGIProtocol = LimitedProtocol  # the one name by which gunicorn's worker finds it
        await super()._serve()

    async def _shutdown(self) -> None:
        """Close the connections without a request at once: gunicorn would wait for its graceful_timeout."""
        for server in self.servers:
            server.close()
        for waiting in (*self.connections_without_head, *self.idle_connections):
            waiting.close()
        await super()._shutdown()

    def make_room(self) -> bool:
        """Close the connection that is missed least; False if every connection has a request.

        First those that never sent a whole head: a sender that works has sent its own long before.
        """
        for waiting in (self.connections_without_head, self.idle_connections):
            if waiting:
                next(iter(waiting)).close()
                return True
        return False


class LimitedProtocol(protocol.ASGIProtocol):  # type: ignore[misc]
    """One connection, with a time limit for each request's head."""

    worker: AsgiWorker
    _head_timer: asyncio.TimerHandle | None = None
    _client_has_ended = False
    _body_is_broken = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Begin a connection, or refuse it if there are too many and all are in use. Called by asyncio."""
        if self.worker.nr_conns >= self.worker.worker_connections and not self.worker.make_room():
            self.worker.nr_conns += 1  # connection_lost takes it off again
            self.transport = transport
            transport.abort()
            return
        self.worker.connections_without_head[self] = None
        self._head_timer = self.worker.loop.call_later(HEAD_SECONDS, self._head_timeout)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client. Called by asyncio."""
        if self in self.worker.idle_connections:  # the first bytes of its next request
            del self.worker.idle_connections[self]
            self._cancel_keepalive_timer()
            self.worker.connections_without_head[self] = None
            self._head_timer = self.worker.loop.call_later(HEAD_SECONDS, self._head_timeout)
        super().data_received(data)

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
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection. Called by asyncio."""
        self._head_complete()
        self.worker.idle_connections.pop(self, None)
        super().connection_lost(exc)

    def close(self) -> None:
        """Close the connection and end its task."""
        self._head_complete()  # now, not when asyncio reports the loss: make_room must not choose it again
        self.worker.idle_connections.pop(self, None)
        self._close_transport()
        if self._request_ready is not None:
            self._request_ready.set()

    def _on_headers_complete(self) -> bool:
        self._head_complete()
        return bool(super()._on_headers_complete())

    def _arm_keepalive_timer(self) -> None:
        if self._client_has_ended:
            self.close()
            return
        self.worker.idle_connections[self] = None
        super()._arm_keepalive_timer()

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """Answer a request that is no HTTP, without gunicorn's `message`, which may quote it."""
        receiver = self._body_receiver
        if receiver is not None and not receiver._complete:
            # The body is broken, and the application is reading it: it answers, as it does behind gthread.
            self._body_is_broken = True
            receiver.signal_disconnect()
        else:
            super()._send_error_response(status, HTTPStatus(status).phrase, extra_headers)

    def _close_transport(self) -> None:
        if self._body_is_broken and not self._closed:
            self._body_is_broken = False  # gunicorn closes again after the application has answered
        else:
            super()._close_transport()
            if self.transport is not None and not self.transport.is_closing():
                # gunicorn shuts the sending side down first, and closes nothing if the client has gone.
                self.transport.close()

    def _head_complete(self) -> None:
        self.worker.connections_without_head.pop(self, None)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_timeout(self) -> None:
        self._send_error_response(HTTPStatus.REQUEST_TIMEOUT, "")
        self.close()
