"""One request in, one answer out, without Flask: the order of the steps, and what is kept of a request."""

from __future__ import annotations

import io
import json
import socket
import threading
import time

import pytest
from flask import Flask, request
from werkzeug.test import create_environ

from billhook import Source
from billhook.events import EVENT_TYPES
from billhook.inbox import Counted, PutStatus, Receipt
from billhook.inbox.watching.conditions import Facts
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import list_issues
from billhook.inbox.watching.judgement import judge
from billhook.inbox.watching.occurrences import IssueKind
from billhook.receiver.delivery_rules import DeliveryRules
from billhook.receiver.wsgi import TAKEN, TakenBody, WsgiReceiver
from support.inbox_view import LONG_DEADLINE_SECONDS, rows
from support.signing import SECRET, signed
from support.templates import new_inbox
from support.timeouts import scaled


class App:
    """Who sends the signals."""


@pytest.fixture
def inbox_url(tmp_path) -> str:
    """On SQLite alone: the SQL is tested with the inbox."""
    return new_inbox(f"sqlite:///{tmp_path / 'billhook.db'}")


@pytest.fixture
def woken():
    return []


@pytest.fixture
def receiver(inbox, frozen_clock, woken):
    return make_receiver(inbox, frozen_clock, woken)


@pytest.fixture
def gunicorn():
    """What is in a request under gunicorn: its socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield {"gunicorn.socket": ours}


class BodyStream(io.BytesIO):
    failed = False  # as that of gunicorn 27


def make_receiver(inbox, clock, woken, deadline_seconds=LONG_DEADLINE_SECONDS):
    rules = DeliveryRules(
        clock,
        clock,
        sender=App(),
        wake=woken.append,
        count=inbox.count,
        known_types=EVENT_TYPES,
        max_body_bytes=100,
        deadline_seconds=deadline_seconds,
    )
    return WsgiReceiver(rules, inbox)


SOURCE = Source("default", secrets=[SECRET])


def environ(body=b"{}", headers=None, **more):
    headers = signed(body) if headers is None else headers
    found = {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body)), "REQUEST_METHOD": "POST"}
    found.update({"HTTP_" + name.upper().replace("-", "_"): text for name, text in headers.items()})
    if "HTTP_CONTENT_TYPE" in found:
        found["CONTENT_TYPE"] = found.pop("HTTP_CONTENT_TYPE")
    return {**found, **more}


def accept(receiver, body=b"{}", headers=None, cached=None, **more):
    """Accept a request as Flask has it done; `cached` is what code of the app has read of it before."""
    with Flask("shop").request_context({**create_environ(), **environ(body, headers, **more)}):
        if cached is not None:
            request._cached_data = cached
        receiver.take_body(None, None)
        return receiver.accept(request.environ, SOURCE, request.environ[TAKEN])


def test_a_good_delivery_is_stored_byte_for_byte_then_announced_then_answered(receiver, where, woken):
    body = b'{"a": 1}\r\n\x00\xff'

    answer = accept(receiver, body)

    assert (answer.status, json.loads(answer.body)) == (200, {"status": "accepted"})
    assert rows(where, "SELECT id, body FROM delivery") == [(1, body)]
    assert woken == [1]


def test_the_answer_is_what_the_inbox_made_of_a_delivery(receiver, where, woken):
    types = ["PingTest", "PingTest", "InvoiceApproved", "Odd", "Even", "", "9"]
    headers = signed(message_id="msg_1")

    answers = [accept(receiver, headers={**headers, "X-Webhook-Type": kind}) for kind in types]

    assert [json.loads(answer.body)["status"] for answer in answers] == [
        "accepted", "duplicate", "accepted", "accepted", "accepted", "accepted", "duplicate",
    ]  # fmt: skip
    assert rows(where, "SELECT event_type, state = 'quarantined' FROM delivery ORDER BY id") == [
        ("PingTest", 0), ("InvoiceApproved", 1), ("Odd", 1), ("", 1),
    ]  # fmt: skip
    assert len(woken) == 1


def test_a_request_without_a_content_type_is_as_good(receiver, where):
    headers = signed()
    del headers["Content-Type"]

    assert accept(receiver, headers=headers).status == 200
    assert "CONTENT_TYPE" not in rows(where, "SELECT headers FROM delivery")[0][0]


@pytest.mark.parametrize(
    ("length", "status", "closes"), [("2", 200, False), ("3", 400, True), ("101", 413, False)]
)
def test_only_a_body_that_is_incomplete_closes_its_connection(receiver, length, status, closes):
    stream = BodyStream(b"{}")

    answer = accept(receiver, **{"CONTENT_LENGTH": length, "wsgi.input": stream})

    assert (answer.status, stream.failed) == (status, closes)


def test_a_body_read_by_the_app_is_used_if_its_length_is_the_declared_one(receiver):
    """The server's stream must not be touched then: that of Werkzeug's server has no end."""
    cases = [
        ("2", b"{}", 200), ("02", b"{}", 200), ("2", b"{", 400), ("2", b"", 400), ("two", b"{}", 400),
        ("9" * 5_000, b"{}", 400), ("101", b"x" * 101, 413),
    ]  # fmt: skip

    answers = [
        accept(receiver, cached=read, CONTENT_LENGTH=length, **{"wsgi.input": None})
        for length, read, _ in cases
    ]
    chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True, "wsgi.input": None}

    assert [accept(receiver, cached=b"x" * size, **chunked).status for size in (100, 101)] == [401, 413]
    assert [answer.status for answer in answers] == [status for *_, status in cases]


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
    with pytest.raises(MemoryError):
        accept(receiver, **{"wsgi.input": Greedy()})


def test_a_memory_error_in_openssl_is_not_a_wrong_signature(receiver, monkeypatch):
    def no_memory_there(_):
        raise ValueError("no reason supplied")  # all that hmac tells of it

    monkeypatch.setattr("hmac.HMAC.copy", no_memory_there)
    with pytest.raises(MemoryError):
        accept(receiver)


def test_the_answer_without_memory_is_503_even_where_nothing_can_be_logged(receiver, monkeypatch, caplog):
    told = receiver.rules.out_of_memory(SOURCE)
    monkeypatch.setattr(receiver.rules, "rejected", no_memory)
    untold = receiver.rules.out_of_memory(SOURCE)

    assert (told.status, untold.status) == (503, 503)
    assert "Retry-After" in dict(told.headers)
    assert "Retry-After" in dict(untold.headers)
    assert caplog.messages == [
        "delivery to source default refused with 503 (resources: there is no memory left)"
    ]


@pytest.mark.parametrize(
    "told", ["resources: the thread billhook-slow-bodies", "storage: the thread billhook-committer"]
)
def test_a_thread_that_cannot_start_is_503_and_the_next_delivery_is_stored(
    receiver, monkeypatch, gunicorn, caplog, told
):
    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", no_thread)
        refused = accept(receiver, **(gunicorn if "slow-bodies" in told else {}))
    taken = accept(receiver)

    assert (refused.status, taken.status) == (503, 200)
    assert f"{told} cannot be started: can't start new thread" in caplog.text


def found(inbox, clock):
    """The conditions that hold and the issues that are open, by what was answered."""
    inbox._counts.close()  # writes what was counted
    update_issues(inbox, clock.now())
    held = [one.condition.name for one in judge(Facts(inbox, clock.now(), "inline")).holding]
    return held, [one.kind for one in list_issues(inbox)]


@pytest.mark.parametrize("lacks", ["a thread", "memory"])
def test_a_verified_delivery_that_lacks_memory_or_a_thread_is_told_as_not_stored(
    receiver, inbox, frozen_clock, monkeypatch, lacks
):
    if lacks == "memory":
        monkeypatch.setattr(inbox, "put", no_memory)
    inbox.count(
        Counted.DUPLICATE, frozen_clock.now(), source="default"
    )  # starts the thread that writes counts
    with monkeypatch.context() as context:
        if lacks == "a thread":
            context.setattr(threading.Thread, "start", no_thread)
        assert accept(receiver).status == 503

    assert found(inbox, frozen_clock) == (["not-stored"], [IssueKind.NOT_STORED])


def test_what_a_stranger_sends_without_a_signature_raises_nothing_whatever_it_is_answered(
    receiver, inbox, frozen_clock, monkeypatch
):
    wrong = {**signed(b"{}"), "webhook-signature": "no signature"}
    ours, theirs = socket.socketpair()
    with ours, theirs, monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", no_thread)
        statuses = [accept(receiver, headers={}, **{"gunicorn.socket": ours}).status]
    for _ in range(60):
        statuses += [
            receiver.rules.out_of_memory(SOURCE).status,
            accept(receiver, headers={}).status,
            accept(receiver, headers=wrong).status,
            accept(receiver, headers={}, CONTENT_LENGTH="9").status,
            accept(receiver, b"x" * 101, headers={}).status,
            accept(receiver, headers={"content-encoding": "br"}).status,
        ]

    assert (statuses[0], *sorted(set(statuses[1:]))) == (503, 400, 401, 413, 415, 503)
    assert found(inbox, frozen_clock) == ([], [])


def test_running_threads_serve_when_no_thread_can_be_started(receiver, monkeypatch, gunicorn):
    receiver.start()

    monkeypatch.setattr(threading.Thread, "start", no_thread)

    assert accept(receiver, **gunicorn).status == 200


@pytest.mark.parametrize("is_watched", [False, True], ids=["no thread", "no memory"])
def test_a_refused_body_that_cannot_be_read_closes_the_connection(
    receiver, monkeypatch, gunicorn, is_watched
):
    stream = Greedy()
    if not is_watched:
        monkeypatch.setattr(threading.Thread, "start", no_thread)

    receiver.drain({"CONTENT_LENGTH": "4", **gunicorn}, stream)

    assert stream.failed


@pytest.mark.parametrize("before", [False, True])
def test_a_delivery_without_memory_is_503_with_retry_after(app_with, before):
    """Whether we read the body or something in the app did, for which there was no memory either."""
    app = app_with()
    if before:
        app.before_request(lambda: request.stream and None)

    answer = app.test_client().post(
        "/webhooks/billing",
        data=b"{}",
        headers=signed(),
        environ_overrides={"wsgi.input": Greedy(), "CONTENT_LENGTH": "2"},
    )

    assert answer.status_code == 503
    assert 5 <= int(answer.headers["Retry-After"]) <= 60
    assert answer.json["type"] == "api_error"


def test_reading_takes_its_time_from_the_deadline(inbox, frozen_clock, woken, gunicorn):
    receiver = make_receiver(inbox, frozen_clock, woken, deadline_seconds=1.0)
    started = time.monotonic()

    with gunicorn["gunicorn.socket"].makefile("rb", buffering=0) as stream:
        answer = accept(receiver, **{"CONTENT_LENGTH": "50", "wsgi.input": stream, **gunicorn})

    assert answer.status == 400
    assert time.monotonic() - started < scaled(1)


def test_a_commit_has_what_reading_has_left_of_the_deadline(receiver, inbox, monkeypatch):
    limits = []

    def put(delivery, seconds):
        limits.append(seconds)
        return Receipt(PutStatus.ACCEPTED, 1, delivery.event_type)

    monkeypatch.setattr(inbox, "put", put)
    receiver.accept(environ(), SOURCE, TakenBody(b"{}", None, None, LONG_DEADLINE_SECONDS - 1))

    assert limits[0] <= 1


def test_a_refusal_holds_no_frames_and_with_them_what_was_read(receiver):
    with Flask("shop").request_context({**create_environ(), **environ(b"x" * 101)}):
        receiver.take_body(None, None)
        taken = request.environ[TAKEN]

    assert (taken.refusal.cause, taken.refusal.__traceback__) == ("body_too_large", None)


def test_the_rest_of_a_refused_body_is_read_under_gunicorn_only(receiver, gunicorn):
    elsewhere, here = io.BytesIO(b"rest"), io.BytesIO(b"rest")

    receiver.drain({"CONTENT_LENGTH": "4"}, elsewhere)
    receiver.drain({"CONTENT_LENGTH": "4", **gunicorn}, here)

    assert (elsewhere.tell(), here.tell()) == (0, 4)


def test_a_sent_response_releases_the_next_of_its_batch(app_with):
    app = app_with()
    headers = signed(message_id="answered")

    with app.test_client() as client, client.post("/webhooks/billing", data=b"{}", headers=headers) as answer:
        status = answer.status_code
    again = app.test_client().post("/webhooks/billing", data=b"{}", headers=headers, buffered=True)

    assert (status, again.json) == (200, {"status": "duplicate"})
