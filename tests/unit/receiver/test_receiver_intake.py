"""One request in, one answer out, without Flask: the order of the steps, and what is kept of a request."""

from __future__ import annotations

import io
import json
import logging
import socket
import time

import pytest
from kit import SECRET, rows, signed

from billhook import Source
from billhook.errors import BacklogFull, DeadlinePassed, Draining, InboxUnavailable
from billhook.receiver.answers import answer_to
from billhook.receiver.intake import Intake


class App:
    """Who sends the signals."""


@pytest.fixture
def woken():
    return []


@pytest.fixture
def intake(inbox, clock, woken):
    return Intake(inbox, clock, sender=App(), wake=woken.append, max_body_bytes=100, deadline_seconds=1.0)


SOURCE = Source("default", secrets=[SECRET])


def environ(body=b"{}", headers=None, **more):
    headers = signed(body) if headers is None else headers
    found = {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)), "REQUEST_METHOD": "POST"}
    found.update({"HTTP_" + name.upper().replace("-", "_"): text for name, text in headers.items()})
    found["CONTENT_TYPE"] = found.pop("HTTP_CONTENT_TYPE", "")
    return {**found, **more}, headers


def accept(intake, body=b"{}", headers=None, read_before=bytes, **more):
    found, headers = environ(body, headers, **more)
    return intake.accept(found, headers, SOURCE, read_before)


def test_a_good_delivery_is_stored_then_announced_then_answered(intake, where, woken):
    answer = accept(intake, b'{"a": 1}')

    assert (answer.status, json.loads(answer.body)) == (200, {"status": "accepted"})
    assert rows(where, "SELECT id, body FROM delivery") == [(1, b'{"a": 1}')]
    assert woken == [1]


def test_nobody_is_woken_for_what_is_not_new(intake, woken):
    headers = signed()

    answers = [accept(intake, headers=headers) for _ in range(2)]

    assert [json.loads(answer.body)["status"] for answer in answers] == ["accepted", "duplicate"]
    assert woken == [1]


def test_the_headers_are_kept_but_not_credentials_for_something_else(intake, where):
    accept(
        intake,
        HTTP_COOKIE="session=1",
        HTTP_AUTHORIZATION="Basic x",
        HTTP_PROXY_AUTHORIZATION="Basic y",
        HTTP_X_REQUEST_ID="r1",
        CONTENT_TYPE="application/json",
    )

    ((text,),) = rows(where, "SELECT headers FROM delivery")
    kept = json.loads(text)
    assert kept["X_REQUEST_ID"] == "r1"
    assert kept["CONTENT_TYPE"] == "application/json"
    assert "WEBHOOK_SIGNATURE" in kept
    assert not {"COOKIE", "AUTHORIZATION", "PROXY_AUTHORIZATION"} & set(kept)


def test_a_request_without_a_content_type_is_as_good(intake, where):
    found, headers = environ()
    del found["CONTENT_TYPE"]

    assert intake.accept(found, headers, SOURCE).status == 200
    assert "CONTENT_TYPE" not in rows(where, "SELECT headers FROM delivery")[0][0]


def test_the_time_of_receipt_is_the_clocks(intake, inbox, clock):
    clock.advance(seconds=-5)
    moment = clock.now()

    accept(intake)

    assert inbox.received(1)[0].received_at == moment


def test_the_moved_clock_makes_a_delivery_stale(intake, clock):
    headers = signed(at=clock.now())
    statuses = []

    for seconds in (300, 1, -602, 1):
        clock.advance(seconds=seconds)
        statuses.append(accept(intake, headers=headers).status)

    assert statuses == [200, 401, 401, 200]


@pytest.mark.parametrize(
    ("length", "body", "read", "status"),
    [
        ("2", b"", b"{}", 200),
        ("02", b"", b"{}", 200),
        ("2", b"", b"{", 400),
        ("2", b"{", b"", 400),
        ("two", b"{}", b"", 400),
        ("-1", b"{}", b"", 400),
        ("\u0662", b"{}", b"{}", 400),
        ("9" * 5_000, b"{}", b"", 400),
        ("101", b"", b"x" * 101, 413),
    ],
)
def test_what_the_app_read_before_us_counts_if_it_is_as_long_as_declared(intake, length, body, read, status):
    found, headers = environ(b"{}", CONTENT_LENGTH=length)
    found["wsgi.input"] = io.BytesIO(body)

    answer = intake.accept(found, headers, SOURCE, lambda: read)

    assert answer.status == status


def test_a_type_is_looked_at_before_the_body_is_read(intake):
    class Untouchable:
        def read(self, size):
            raise AssertionError("read")

    found, headers = environ(headers={**signed(), "X-Webhook-Type": "9"})
    found["wsgi.input"] = Untouchable()

    assert intake.accept(found, headers, SOURCE).status == 400


def test_refusals_are_logged_with_their_cause_and_without_what_came(intake, caplog):
    caplog.set_level(logging.WARNING)

    accept(intake, headers={**signed(), "webhook-id": "attacker.text"})

    (record,) = caplog.records
    assert record.getMessage() == "delivery to source default refused with 401 (malformed)"
    assert record.levelname == "WARNING"


def test_a_failure_of_storage_is_an_error_in_the_log_with_its_reason(intake, inbox, caplog):
    inbox.close()

    answer = accept(intake)

    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "refused with 503 (draining: the receiver is shutting down)" in record.getMessage()
    assert answer.status == 503


def test_a_conflict_is_in_the_log(intake, caplog):
    for event_type in ("MonthEndReport", "UnchargedEvents"):
        accept(intake, headers=signed(b"{}", event_type, message_id="msg_1"))

    assert (
        "came again under another type: stored as MonthEndReport, now sent as UnchargedEvents" in caplog.text
    )


def test_retry_after_is_spread_from_five_seconds_to_a_minute():
    waits = [
        int(dict(answer_to(kind("x")).headers)["Retry-After"])
        for kind in (BacklogFull, DeadlinePassed, Draining, InboxUnavailable)
        for _ in range(250)
    ]

    assert (min(waits), max(waits)) == (5, 60)
    assert len(set(waits)) == 56


def test_reading_takes_its_time_from_the_deadline(intake):
    ours, theirs = socket.socketpair()
    found, headers = environ(CONTENT_LENGTH="50")
    found["wsgi.input"] = ours.makefile("rb", buffering=0)
    found["gunicorn.socket"] = ours
    started = time.monotonic()

    with ours, theirs, found["wsgi.input"]:
        answer = intake.accept(found, headers, SOURCE)

    assert answer.status == 400
    assert time.monotonic() - started < 1


def test_the_rest_of_a_refused_body_is_read_where_the_server_is_gunicorn_and_left_alone_elsewhere(intake):
    ours, theirs = socket.socketpair()
    elsewhere, here = io.BytesIO(b"rest"), io.BytesIO(b"rest")

    with ours, theirs:
        intake.drain({"wsgi.input": elsewhere, "CONTENT_LENGTH": "4"})
        intake.drain({"wsgi.input": here, "CONTENT_LENGTH": "4", "gunicorn.socket": ours})

    assert (elsewhere.tell(), here.tell()) == (0, 4)


# --- what is left of a refused body ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "length", "chunked", "kept_alive"),
    [
        (b"x" * 10, "10", False, True),
        (b"x" * 10, "20", False, False),
        (b"x" * 10, None, True, True),
        (b"x" * (1024 * 1024 + 1), str(1024 * 1024 + 1), False, False),
        (b"x" * (1024 * 1024 + 1), None, True, False),
    ],
)
def test_the_rest_of_a_refused_body_is_read_up_to_a_limit(intake, sent, length, chunked, kept_alive):
    class Stream(io.BytesIO):
        failed = False

    ours, theirs = socket.socketpair()
    environ = {"wsgi.input": Stream(sent), "gunicorn.socket": ours, "wsgi.input_terminated": chunked}
    if length is not None:
        environ["CONTENT_LENGTH"] = length
    with ours, theirs:
        intake.drain(environ)

    assert environ["wsgi.input"].failed is not kept_alive
    assert environ["wsgi.input"].tell() == min(len(sent), 1024 * 1024)


def test_a_body_that_breaks_while_it_is_drained_closes_the_connection(intake):
    class Broken:
        failed = False

        def read(self, size):
            raise ValueError("a broken chunk")

    ours, theirs = socket.socketpair()
    environ = {"wsgi.input": Broken(), "gunicorn.socket": ours}

    with ours, theirs:
        intake.drain(environ)

    assert environ["wsgi.input"].failed


def test_without_a_socket_to_watch_nothing_is_drained(intake):
    class Unread:
        def read(self, size):
            raise AssertionError("it was read")

    intake.drain({"wsgi.input": Unread()})


def test_an_answer_that_is_sent_lets_the_next_of_its_batch_be_woken(app_with):
    app = app_with()
    headers = signed(message_id="answered")

    with app.test_client() as client, client.post("/webhooks/billing", data=b"{}", headers=headers) as answer:
        status = answer.status_code
    again = app.test_client().post("/webhooks/billing", data=b"{}", headers=headers, buffered=True)

    assert (status, again.json) == (200, {"status": "duplicate"})
