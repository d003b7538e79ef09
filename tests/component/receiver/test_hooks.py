"""Hooks of the app that read a delivery's body first, under Werkzeug's server, whose stream has no end."""

from __future__ import annotations

import http.client
import io
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from flask import request
from werkzeug.serving import make_server

from support.apps import inbox_file
from support.inbox_view import rows
from support.signing import PATH, signed
from support.timeouts import scaled

FORM = "application/x-www-form-urlencoded"


class Through(NamedTuple):
    """A stream that a hook measures or hashes while it is read."""

    read: Callable[[int], bytes]


KEPT = {
    "get_data": lambda: request.get_data(),
    "get_json": lambda: request.get_json(silent=True),
    "the form of another content type": lambda: request.form.get("a"),
    "the stream, unread": lambda: request.stream,
    "a copy of the stream, put in its place": lambda: request.environ.update(
        {"wsgi.input": io.BytesIO(request.stream.read())}
    ),
    "another stream that reads through to it": lambda: request.environ.update(
        {"wsgi.input": Through(request.environ["wsgi.input"].read)}
    ),
}
LOST = {
    "the form": (FORM, lambda: request.form.get("a")),
    "the values": (FORM, lambda: request.values.get("a")),
    "the stream": ("application/json", lambda: request.stream.read()),
    "a part of the stream": ("application/json", lambda: request.stream.read(1)),
    "the values, then get_data": (FORM, lambda: [request.values.get("a"), request.get_data()]),
    "a part of the stream, then get_data": (FORM, lambda: [request.stream.read(1), request.get_data()]),
    "nothing, but another stream is in its place": (
        "application/json",
        lambda: request.environ.update({"wsgi.input": io.BytesIO(b"")}),
    ),
    "the stream, of which a part is put back": (
        "application/json",
        lambda: request.environ.update({"wsgi.input": io.BytesIO(request.stream.read()[1:])}),
    ),
    "get_data without its cache": ("application/json", lambda: request.get_data(cache=False)),
}


@contextmanager
def served(app):
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join(scaled(10))
        server.server_close()


def post(port, content_type="application/json", body=b"{}", *, chunked=False):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=scaled(5))
    sent = iter([body]) if chunked else body
    headers = {**signed(body), "Content-Type": content_type}
    connection.request("POST", PATH, sent, headers, encode_chunked=chunked)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("hook", KEPT)
def test_a_body_that_a_hook_read_is_received(app_with, hook, chunked):
    app = app_with(BILLHOOK_ENGINE="worker")
    app.before_request(lambda: [KEPT[hook](), None][1])

    with served(app) as port:
        assert post(port, chunked=chunked) == 200

    assert rows(inbox_file(app), "SELECT body FROM delivery") == [(b"{}",)]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("hook", LOST)
def test_a_body_that_a_hook_emptied_is_refused_at_once_and_the_hook_is_named(app_with, caplog, hook, chunked):
    content_type, read = LOST[hook]
    app = app_with(BILLHOOK_ENGINE="worker")
    app.before_request(lambda: [read(), None][1])

    with served(app) as port:
        assert post(port, content_type, chunked=chunked) == 400

    assert "refused with 400 (body_consumed: code of the app read the body before billhook" in caplog.text
    assert rows(inbox_file(app), "SELECT id FROM delivery") == []
