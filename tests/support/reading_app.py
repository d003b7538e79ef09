"""An app, as WSGI and as ASGI application, whose code reads the body of a request after the receiver.

A request says in X-Read where in the app its body is read and how, as "teardown get_data"; what was found
there is a line of JSON in the file that READ_FILE names. With SENTRY, Sentry traces each request, and a line
has the body that it found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flask import Flask, Request, Response, request
from werkzeug.wrappers import Request as PlainRequest

from billhook import Billhook

READERS: dict[str, Callable[[Any], object]] = {
    "get_data": lambda here: here.get_data(),
    "form": lambda here: here.form.to_dict(),
    "stream, in pieces": lambda here: b"".join(iter(lambda: here.stream.read(2), b"")),
    "server's stream": lambda here: here.environ["wsgi.input"].read(),
}


def note(place: str, here: PlainRequest, read: object = None) -> None:
    """Write down what the request's reader finds, if this is its place."""
    wanted, _, reader = here.headers.get("X-Read", "").partition(" ")
    if place == wanted:
        found = READERS[reader](here) if read is None else read
        line = json.dumps([f"{wanted} {reader}", found.decode() if isinstance(found, bytes) else found])
        with Path(os.environ["READ_FILE"]).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def make_app() -> Flask:
    """Make the app; BILLHOOK_ options come from the environment."""
    if "SENTRY" in os.environ:
        import sentry_sdk

        nowhere = "http://key@127.0.0.1:9/1"
        sentry_sdk.init(
            nowhere, traces_sample_rate=1.0, before_send_transaction=note_sentry, shutdown_timeout=0
        )
    app = Flask("shop", instance_path=str(Path.cwd()))
    Billhook(app)
    inner = app.wsgi_app

    @app.after_request
    def after(response: Response) -> Response:
        here: Request = request._get_current_object()  # type: ignore[attr-defined]
        note("after_request", here)
        response.call_on_close(lambda: note("closing", here))
        return response

    def around(environ: Any, start: Any) -> Iterable[bytes]:
        pieces = inner(environ, start)
        note("middleware", PlainRequest(environ))
        return pieces

    app.wsgi_app = around  # type: ignore[method-assign]
    return app


def note_sentry(event: Any, hint: object) -> None:
    """Write down what Sentry found, instead of sending it."""
    with Path(os.environ["READ_FILE"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(["sentry", event["request"].get("data")]) + "\n")


def make_asgi_app() -> Any:
    """Make an ASGI application around it that reads and replays the body, and then finds it."""
    inner = Billhook().asgi_app(make_app())

    async def around(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        pieces, more = [], True
        while more:
            message = await receive()
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        messages = iter([{"type": "http.request", "body": b"".join(pieces)}])

        async def replay() -> Any:
            return next(messages, {"type": "http.disconnect"})

        await inner(scope, replay, send)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        note("asgi", PlainRequest({"HTTP_X_READ": headers.get("x-read", "")}), b"".join(pieces))

    return around
