"""AsgiApp: a Flask app as an ASGI application; deliveries are received on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from a2wsgi import WSGIMiddleware
from flask import Flask

from billhook.receiver import webhook_routes
from billhook.receiver.asgi import Receive, Scope, Send
from billhook.signing.source import Source
from billhook.state import BillhookState

__all__ = ["AsgiApp"]


class AsgiApp:
    """The ASGI application that `Billhook.asgi_app` returns; mount it or serve it.

    A server that speaks the lifespan protocol starts the engine and stops it. Where this is mounted in
    another application, which passes no lifespan on, the engine starts with the first request and is stopped
    as the process ends.
    """

    def __init__(self, app: Flask, state: BillhookState) -> None:
        self.flask_app = app
        self._state = state
        self._other_paths: Any = WSGIMiddleware(self._call_flask)  # type: ignore[arg-type]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the server."""
        if scope["type"] == "http":
            source = self._sources.get(_path(scope))
            if source is not None:
                self._state.ensure_engine()
                await self._state.asgi_receiver.receive(source, scope, receive, send)
                return
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._other_paths(scope, receive, send)

    @cached_property
    def _sources(self) -> dict[str, Source]:
        """The source of each path; read at the first request, when Flask accepts no more routes."""
        routes = webhook_routes(self.flask_app)
        return {path: route.source for route in routes for path in (route.path, route.path.rstrip("/") + "/")}

    def _call_flask(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # The server marks the end of a body without a length, and Werkzeug reads such a body only if told so.
        environ["wsgi.input_terminated"] = True
        return self.flask_app(environ, start_response)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await asyncio.to_thread(self._state.start)
                await send({"type": "lifespan.startup.complete"})
            else:
                await asyncio.to_thread(self._state.close)  # waits for the handlers that are running
                await send({"type": "lifespan.shutdown.complete"})
                return


def _path(scope: Scope) -> str:
    """Return the path below the point where the application is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path
