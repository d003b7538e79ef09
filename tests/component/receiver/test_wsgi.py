"""One request in, one answer out, without Flask: the order of the steps, and what is kept of a request."""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import threading
import time
from datetime import UTC, datetime

import pytest

from billhook import Source
from billhook.errors import BacklogFull, DeadlinePassed, Draining, InboxUnavailable
from billhook.events import EVENT_TYPES
from billhook.receiver.intake import Intake
from billhook.receiver.responses import error_response
from billhook.receiver.wsgi import WsgiReceiver
from billhook.signing import SignatureTemplate
from support.inbox_view import LONG_DEADLINE_SECONDS, rows
from support.signing import SECRET, signed
from support.timeouts import scaled


class App:
    """Who sends the signals."""


@pytest.fixture
def woken():
    return []


@pytest.fixture
def receiver(inbox, clock, woken):
    return make_receiver(inbox, clock, woken)


def make_receiver(inbox, clock, woken, deadline_seconds=LONG_DEADLINE_SECONDS):
    intake = Intake(
        clock,
        sender=App(),
        wake=woken.append,
        count=inbox.count,
        known_types=EVENT_TYPES,
        max_body_bytes=100,
        deadline_seconds=deadline_seconds,
    )
    return WsgiReceiver(intake, inbox)


SOURCE = Source("default", secrets=[SECRET])


def environ(body=b"{}", headers=None, **more):
    headers = signed(body) if headers is None else headers
    found = {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)), "REQUEST_METHOD": "POST"}
    found.update({"HTTP_" + name.upper().replace("-", "_"): text for name, text in headers.items()})
    found["CONTENT_TYPE"] = found.pop("HTTP_CONTENT_TYPE", "")
    return {**found, **more}, headers


def accept(receiver, body=b"{}", headers=None, cached_body=bytes, **more):
    found, _ = environ(body, headers, **more)
    return receiver.accept(found, SOURCE, cached_body)


def test_a_good_delivery_is_stored_then_announced_then_answered(receiver, where, woken):
    answer = accept(receiver, b'{"a": 1}')

    assert (answer.status, json.loads(answer.body)) == (200, {"status": "accepted"})
    assert rows(where, "SELECT id, body FROM delivery") == [(1, b'{"a": 1}')]
    assert woken == [1]


def test_a_duplicate_does_not_wake_the_engine(receiver, woken):
    headers = signed()

    answers = [accept(receiver, headers=headers) for _ in range(2)]

    assert [json.loads(answer.body)["status"] for answer in answers] == ["accepted", "duplicate"]
    assert woken == [1]


def test_headers_are_stored_without_credentials(receiver, where):
    accept(
        receiver,
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


def test_a_request_without_a_content_type_is_as_good(receiver, where):
    found, _ = environ()
    del found["CONTENT_TYPE"]

    assert receiver.accept(found, SOURCE).status == 200
    assert "CONTENT_TYPE" not in rows(where, "SELECT headers FROM delivery")[0][0]


def test_the_time_of_receipt_is_the_clocks(receiver, inbox, clock):
    clock.advance(seconds=-5)
    moment = clock.now()

    accept(receiver)

    assert inbox.received(1)[0].received_at == moment


def test_the_moved_clock_makes_a_delivery_stale(receiver, clock):
    headers = signed(at=clock.now())
    statuses = []

    for seconds in (300, 1, -602, 1):
        clock.advance(seconds=seconds)
        statuses.append(accept(receiver, headers=headers).status)

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
def test_a_body_read_by_the_app_is_used_if_its_length_is_the_declared_one(
    receiver, length, body, read, status
):
    found, _ = environ(b"{}", CONTENT_LENGTH=length)
    found["wsgi.input"] = io.BytesIO(body)

    answer = receiver.accept(found, SOURCE, lambda: read)

    assert answer.status == status


def test_a_scheme_that_signs_the_type_refuses_what_names_none(receiver, where):
    scheme = SignatureTemplate(content="{timestamp}.{type}.{body}")
    source = Source("default", scheme, secrets=["a text of sixteen or more"])
    good = scheme.sign(b"{}", "a text of sixteen or more", event_type="PingTest", now=datetime.now(UTC))

    statuses = [
        receiver.accept(environ(headers={**good, "X-Webhook-Type": kind})[0], source).status
        for kind in ("", "9", "PingTest,PingTest", "PingTest")
    ]

    assert statuses == [401, 401, 401, 200]
    assert rows(where, "SELECT event_type FROM delivery") == [("PingTest",)]


def test_a_quarantined_delivery_does_not_wake_the_engine(receiver, woken):
    for event_type in ("", "PingTest", "InvoiceApproved"):
        accept(receiver, headers={**signed(message_id="msg_1"), "X-Webhook-Type": event_type})

    assert len(woken) == 1


def test_refusals_are_logged_with_their_cause_and_without_request_data(receiver, caplog):
    caplog.set_level(logging.WARNING)

    accept(receiver, headers={**signed(), "webhook-id": "attacker.text"})

    (record,) = caplog.records
    assert record.getMessage() == "delivery to source default refused with 401 (malformed)"
    assert record.levelname == "WARNING"


def test_a_flood_of_refusals_is_one_line_and_a_number(receiver, caplog):
    for _ in range(300):
        accept(receiver, headers={**signed(), "webhook-id": "attacker.text"})
    assert len(caplog.records) == 1

    receiver.intake.close()

    assert caplog.messages[1].startswith("delivery to source default refused with 401 (malformed); 299 times")


def test_a_flood_of_refusals_leaves_the_counts_where_they_are(receiver):
    """Nothing that a stranger sends makes a new kind of refusal."""
    for number in range(50):
        accept(receiver, headers={**signed(), "webhook-id": f"attacker.{number}"})

    assert len(receiver.intake._rejections.kinds) == 1


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("X_API_KEY", False),
        ("APIKEY", False),
        ("X_AMZ_SECURITY_TOKEN", False),
        ("X_CSRF_TOKEN", False),
        ("SET_COOKIE", False),
        ("X_AUTH_REQUEST_EMAIL", False),
        ("X_SHARED_SECRET", False),
        ("X_DB_PASSWORD", False),
        ("CF_ACCESS_JWT_ASSERTION", False),
        ("X_AWS_ACCESS_KEY_ID", False),
        ("X_SESSION_ID", False),
        ("WEBHOOK_SIGNATURE", True),
        ("X_WEBHOOK_SIGNATURE", True),
        ("X_KEY_ID", True),
        ("X_WEBHOOK_TYPE", True),
        ("USER_AGENT", True),
    ],
)
def test_no_header_with_a_credentials_name_is_stored(receiver, where, name, kept):
    accept(receiver, **{"HTTP_" + name: "canary-5577"} if name != "WEBHOOK_SIGNATURE" else {})

    ((text,),) = rows(where, "SELECT headers FROM delivery")

    assert (name in json.loads(text)) is kept or name == "X_WEBHOOK_TYPE"
    assert ("canary-5577" in text) is (kept and name != "WEBHOOK_SIGNATURE")


# --- no thread, no memory -------------------------------------------------------------------------


class Greedy:
    """A body for which there is no memory."""

    failed = False

    def read(self, size):
        raise MemoryError


def no_memory(*_):
    raise MemoryError


def no_thread(self):
    raise RuntimeError("can't start new thread")


def test_a_body_for_which_there_is_no_memory_is_no_broken_body(receiver):
    found, _ = environ()
    found["wsgi.input"] = Greedy()

    with pytest.raises(MemoryError):
        receiver.accept(found, SOURCE)


def test_a_memory_error_in_openssl_is_not_a_wrong_signature(receiver, monkeypatch):
    found, _ = environ()

    def no_memory_there(_):
        raise ValueError("no reason supplied")  # all that hmac tells of it

    monkeypatch.setattr("hmac.HMAC.copy", no_memory_there)
    with pytest.raises(MemoryError):
        receiver.accept(found, SOURCE)


def test_the_answer_without_memory_is_503_even_where_nothing_can_be_logged(receiver, monkeypatch, caplog):
    told = receiver.intake.out_of_memory(SOURCE)
    monkeypatch.setattr(receiver.intake, "rejected", no_memory)
    untold = receiver.intake.out_of_memory(SOURCE)

    assert (told.status, untold.status) == (503, 503)
    assert "Retry-After" in dict(told.headers)
    assert "Retry-After" in dict(untold.headers)
    assert caplog.messages == [
        "delivery to source default refused with 503 (resources: there is no memory left)"
    ]


def test_a_thread_for_slow_bodies_that_cannot_start_is_503_and_the_next_delivery_is_stored(
    receiver, monkeypatch
):
    ours, theirs = socket.socketpair()
    with ours, theirs, monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", no_thread)
        refused = accept(receiver, **{"gunicorn.socket": ours})
    with ours, theirs:
        taken = accept(receiver)

    assert (refused.status, taken.status) == (503, 200)


def test_a_committer_thread_that_cannot_start_is_503_and_the_next_delivery_is_stored(
    receiver, monkeypatch, caplog
):
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", no_thread)
        refused = accept(receiver)
    taken = accept(receiver)

    assert (refused.status, taken.status) == (503, 200)
    assert "resources: the thread billhook-committer cannot be started: can't start new thread" in caplog.text


def test_running_threads_serve_when_no_thread_can_be_started(receiver, monkeypatch):
    ours, theirs = socket.socketpair()
    receiver.start()

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with ours, theirs:
        answer = accept(receiver, **{"gunicorn.socket": ours})

    assert answer.status == 200


def test_a_refused_body_that_cannot_be_watched_closes_the_connection(receiver, monkeypatch):
    ours, theirs = socket.socketpair()
    stream = Greedy()
    with ours, theirs:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        receiver.drain({"wsgi.input": stream, "CONTENT_LENGTH": "4", "gunicorn.socket": ours})

    assert stream.failed


def test_a_refused_body_for_which_there_is_no_memory_closes_the_connection(receiver):
    ours, theirs = socket.socketpair()
    stream = Greedy()
    with ours, theirs:
        receiver.drain({"wsgi.input": stream, "CONTENT_LENGTH": "4", "gunicorn.socket": ours})

    assert stream.failed


@pytest.mark.parametrize("before", [False, True])
def test_a_delivery_without_memory_is_503_with_retry_after(app_with, monkeypatch, before):
    """Whether we read the body or something in the app did, for which there was no memory either."""
    app = app_with()
    monkeypatch.setattr(app.request_class, "get_data", no_memory)
    stream = io.BytesIO() if before else Greedy()

    answer = app.test_client().post(
        "/webhooks/billing",
        data=b"{}",
        headers=signed(),
        environ_overrides={"wsgi.input": stream, "CONTENT_LENGTH": "2"},
    )

    assert answer.status_code == 503
    assert 5 <= int(answer.headers["Retry-After"]) <= 60
    assert answer.json["type"] == "api_error"


def test_a_failure_of_storage_is_an_error_in_the_log_with_its_reason(receiver, inbox, caplog):
    inbox.close()

    answer = accept(receiver)

    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "refused with 503 (draining: the receiver is shutting down)" in record.getMessage()
    assert answer.status == 503


def test_a_conflict_is_in_the_log(receiver, caplog):
    for event_type in ("MonthEndReport", "UnchargedEvents", "Odd", "Even", ""):
        accept(receiver, headers=signed(b"{}", event_type, message_id="msg_1"))

    logged = [re.sub("delivery [0-9]+", "delivery N", record.getMessage()) for record in caplog.records]
    assert logged == [
        "delivery N (UnchargedEvents) is quarantined: type conflict with delivery N",
        "delivery N (Odd) is quarantined: type conflict with delivery N",
        (
            "conflict not stored: Even conflicts with delivery N "
            "and the limit of stored conflicts per key is reached"
        ),
        "delivery N (no type) is quarantined: type conflict with delivery N",
    ]


def test_retry_after_is_spread_from_five_seconds_to_a_minute():
    waits = [
        int(dict(error_response(kind("x")).headers)["Retry-After"])
        for kind in (BacklogFull, DeadlinePassed, Draining, InboxUnavailable)
        for _ in range(250)
    ]

    assert (min(waits), max(waits)) == (5, 60)
    assert len(set(waits)) == 56


def test_reading_takes_its_time_from_the_deadline(inbox, clock, woken):
    receiver = make_receiver(inbox, clock, woken, deadline_seconds=1.0)
    ours, theirs = socket.socketpair()
    found, _ = environ(CONTENT_LENGTH="50")
    found["wsgi.input"] = ours.makefile("rb", buffering=0)
    found["gunicorn.socket"] = ours
    started = time.monotonic()

    with ours, theirs, found["wsgi.input"]:
        answer = receiver.accept(found, SOURCE)

    assert answer.status == 400
    assert time.monotonic() - started < scaled(1)


def test_the_rest_of_a_refused_body_is_read_under_gunicorn_only(receiver):
    ours, theirs = socket.socketpair()
    elsewhere, here = io.BytesIO(b"rest"), io.BytesIO(b"rest")

    with ours, theirs:
        receiver.drain({"wsgi.input": elsewhere, "CONTENT_LENGTH": "4"})
        receiver.drain({"wsgi.input": here, "CONTENT_LENGTH": "4", "gunicorn.socket": ours})

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
def test_the_rest_of_a_refused_body_is_read_up_to_a_limit(receiver, sent, length, chunked, kept_alive):
    class Stream(io.BytesIO):
        failed = False

    ours, theirs = socket.socketpair()
    environ = {"wsgi.input": Stream(sent), "gunicorn.socket": ours, "wsgi.input_terminated": chunked}
    if length is not None:
        environ["CONTENT_LENGTH"] = length
    with ours, theirs:
        receiver.drain(environ)

    assert environ["wsgi.input"].failed is not kept_alive
    assert environ["wsgi.input"].tell() == min(len(sent), 1024 * 1024)


def test_a_body_that_breaks_while_it_is_drained_closes_the_connection(receiver):
    class Broken:
        failed = False

        def read(self, size):
            raise ValueError("a broken chunk")

    ours, theirs = socket.socketpair()
    environ = {"wsgi.input": Broken(), "gunicorn.socket": ours}

    with ours, theirs:
        receiver.drain(environ)

    assert environ["wsgi.input"].failed


def test_without_a_socket_to_watch_nothing_is_drained(receiver):
    class Unread:
        def read(self, size):
            raise AssertionError("it was read")

    receiver.drain({"wsgi.input": Unread()})


def test_a_sent_response_releases_the_next_of_its_batch(app_with):
    app = app_with()
    headers = signed(message_id="answered")

    with app.test_client() as client, client.post("/webhooks/billing", data=b"{}", headers=headers) as answer:
        status = answer.status_code
    again = app.test_client().post("/webhooks/billing", data=b"{}", headers=headers, buffered=True)

    assert (status, again.json) == (200, {"status": "duplicate"})
