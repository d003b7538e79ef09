"""Code of the app that reads a delivery's body, before the view or after it: it finds all of it, and no more.

Under Werkzeug's server, whose stream has no end: reading more of it than there is would hang.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from flask import Request as FlaskRequest
from flask import after_this_request, request, request_finished, request_started, request_tearing_down
from werkzeug.serving import make_server
from werkzeug.wrappers import Request

from support.apps import inbox_file
from support.inbox_view import rows
from support.processes import until
from support.signing import PATH, signed
from support.timeouts import scaled

BODY = b"a=1"
FORM = {"a": "1"}


class Through(NamedTuple):
    """A stream that code of the app hashes while it is read."""

    read: Callable[[int], bytes]


def in_pieces(stream):
    return b"".join(iter(lambda: stream.read(2), b""))


READERS = {
    "get_data": (lambda: request.get_data(), BODY),
    "get_data without its cache": (lambda: request.get_data(cache=False), BODY),
    "get_json": (lambda: request.get_json(silent=True, force=True), None),
    "data": (lambda: request.data, BODY),
    "the form": (lambda: request.form.to_dict(), FORM),
    "the values, then get_data": (lambda: (request.values.to_dict(), request.get_data()), (FORM, BODY)),
    "the stream": (lambda: request.stream.read(), BODY),
    "the stream, in pieces": (lambda: in_pieces(request.stream), BODY),
    "a part of the stream": (lambda: request.stream.read(1), BODY[:1]),
    "the server's stream": (lambda: request.environ["wsgi.input"].read(), BODY),
    "the server's stream, in pieces": (lambda: in_pieces(request.environ["wsgi.input"]), BODY),
    "another request's form": (lambda: Request(request.environ).form.to_dict(), FORM),
}
"""Ways in which code of an app reads the body of a request, and what each of them finds."""
REPLACERS = {
    "an empty stream": lambda: io.BytesIO(),
    "a copy": lambda: io.BytesIO(request.stream.read()),
    "a part": lambda: io.BytesIO(request.stream.read()[1:]),
    "a stream that reads through": lambda: Through(request.environ["wsgi.input"].read),
}
"""What code of an app puts in the place of the server's stream."""


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


def post(port, body=BODY, *, chunked=False, method="POST", **more):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=scaled(5))
    sent = iter([body]) if chunked else body
    headers = {**signed(body), "Content-Type": "application/x-www-form-urlencoded", **more}
    connection.request(method, PATH, sent, headers, encode_chunked=chunked)
    try:
        response = connection.getresponse()
        response.read()  # closed before its end it is reset, and Werkzeug's server calls no on_close
        return response.status
    finally:
        connection.close()


def stored(app):
    return [body for (body,) in rows(inbox_file(app), "SELECT body FROM delivery")]


@pytest.fixture
def app(app_with):
    return app_with(BILLHOOK_ENGINE="worker")


# --- before the view, and after it --------------------------------------------------------------------


@pytest.mark.parametrize(("chunked", "limit"), [(False, None), (True, None), (False, 1)])
@pytest.mark.parametrize("when", ["before the view", "after it"])
@pytest.mark.parametrize("reader", READERS)
def test_a_hook_finds_the_body_and_it_is_received_whole(app_with, reader, when, chunked, limit):
    """By the limit of the app a `RequestEntityTooLarge` of a hook would be a 500 for what is stored."""
    app, seen, again = app_with(BILLHOOK_ENGINE="worker", MAX_CONTENT_LENGTH=limit), [], []
    read, found = READERS[reader]
    if when == "before the view":
        app.before_request(lambda: seen.append(read()))
        app.after_request(lambda response: [response, again.append(request.get_data())][0])
    else:
        app.after_request(lambda response: [response, seen.append(read())][0])

    with served(app) as port:
        assert post(port, chunked=chunked) == 200

    if limit is None or not reader.startswith("another"):  # Flask's limit is a limit of Flask's request
        assert seen == [found]
    assert (again, stored(app)) == ([BODY] if when == "before the view" else [], [BODY])


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("replacer", REPLACERS)
def test_the_bytes_that_came_are_received_whatever_stream_is_in_place_of_the_servers(app, replacer, chunked):
    app.before_request(lambda: request.environ.update({"wsgi.input": REPLACERS[replacer]()}))
    seen = []
    app.after_request(lambda response: [response, seen.append(request.stream.read())][0])

    with served(app) as port:
        assert post(port, chunked=chunked) == 200

    assert (seen, stored(app)) == ([BODY], [BODY])


def test_a_body_that_an_observer_of_the_start_has_read_is_received(app):
    seen = []

    def read(sender, **_):
        seen.append(request.get_data())

    with request_started.connected_to(read, app), served(app) as port:
        assert post(port) == 200

    assert (seen, stored(app)) == ([BODY], [BODY])


def test_a_hook_that_refuses_may_read_the_body_too(app):
    app.before_request(lambda: (request.get_data(), 403))

    with served(app) as port:
        assert post(port) == 403

    assert stored(app) == []


# --- after the view -----------------------------------------------------------------------------------


@contextmanager
def in_teardown(app, note):
    app.teardown_request(lambda error: note(request.get_data(), request.stream.read()))
    yield


@contextmanager
def in_signals(app, note):
    def finished(sender, **_):
        note(request.stream.read())

    def torn_down(sender, **_):
        note(request.get_data())

    with request_finished.connected_to(finished, app), request_tearing_down.connected_to(torn_down, app):
        yield


@contextmanager
def on_close(app, note):
    def read_later(response):
        here = request._get_current_object()
        response.call_on_close(lambda: note(here.get_data(), here.environ["wsgi.input"].read()))
        return response

    app.before_request(lambda: after_this_request(read_later) and None)
    yield


@contextmanager
def in_middleware(app, note):
    inner = app.wsgi_app

    def around(environ, start):
        pieces = inner(environ, start)
        note(Request(environ).get_data())
        yield from pieces
        environ["wsgi.input"].seek(0)
        note(in_pieces(environ["wsgi.input"]))

    app.wsgi_app = around
    yield


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("place", [in_teardown, in_signals, on_close, in_middleware])
def test_wherever_the_body_is_read_after_the_view_it_is_found(app, place, chunked):
    seen = []

    with place(app, lambda *found: seen.extend(found)), served(app) as port:
        assert post(port, chunked=chunked) == 200
        until(lambda: len(seen) == 2)  # some of it is read when the answer has been sent

    assert (seen, stored(app)) == ([BODY, BODY], [BODY])


def test_a_request_class_of_the_app_with_a_fixed_limit_is_no_obstacle(app):
    class Limited(FlaskRequest):
        max_content_length = property(lambda self: 1)

    app.request_class, seen = Limited, []
    app.after_request(lambda response: [response, seen.append(request.get_data())][0])

    with served(app) as port:
        assert post(port) == 200

    assert (seen, stored(app)) == ([BODY], [BODY])


# --- after a refusal ----------------------------------------------------------------------------------


def note_all(seen):
    def note(response):
        here = request._get_current_object()
        seen.extend(
            (here.get_data(), here.stream.read(), here.environ["wsgi.input"].read(), here.form.to_dict())
        )
        seen.append(Request(here.environ).get_data())
        return response

    return note


def test_an_unauthenticated_body_is_found_by_the_code_of_the_app(app):
    seen = []
    app.after_request(note_all(seen))

    with served(app) as port:
        assert post(port, **{"webhook-signature": "v1,bm8="}) == 401

    assert seen[:2] == [BODY, BODY]
    assert stored(app) == []


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("method", "body", "status"), [("PUT", BODY, 405), ("POST", b"x" * 300_000, 413)])
def test_a_body_that_is_refused_unread_is_empty_for_the_code_of_the_app(app, method, body, status, chunked):
    seen = []
    app.after_request(note_all(seen))

    with served(app) as port:
        assert post(port, body, method=method, chunked=chunked) == status

    assert seen == [b"", b"", b"", {}, b""]


def test_a_body_that_is_cut_short_is_empty_for_the_code_of_the_app(app):
    seen = []
    app.after_request(note_all(seen))

    with served(app) as port, socket.create_connection(("127.0.0.1", port), scaled(5)) as connection:
        connection.sendall(f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na=1".encode())
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)

    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert seen == [b"", b"", b"", {}, b""]


def test_a_view_under_another_route_of_the_app_receives_too(app):
    app.add_url_rule("/old", "old", app.view_functions["billhook.default"], methods=["POST"])

    answer = app.test_client().post("/old", data=BODY, headers=signed(BODY))

    assert (answer.status_code, stored(app)) == (200, [BODY])
