"""The table of answers, asked of a real gunicorn over real sockets. 200 is checked in the file itself."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from billhook.events import PaymentFailed, sample
from support.inbox_view import rows, value
from support.processes import together, until
from support.server import DOORS, head, read_reply, request
from support.signing import APPROVED, OTHER_SECRET, PATH, signed
from support.timeouts import scaled

pytestmark = pytest.mark.parametrize("server", sorted(DOORS), indirect=True, scope="session")

ERROR_FIELDS = ["code", "message", "type"]
MARK = "echo-me-not-7391"


def assert_error(reply, status, kind):
    assert reply.status == status
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.json["type"] == kind
    assert sorted(reply.json) == ERROR_FIELDS
    assert MARK.encode() not in reply.body


@pytest.mark.parametrize(
    ("event_type", "body"),
    [
        ("InvoiceApproved", APPROVED),
        ("SomethingNewNextYear", b'{"anything": [1, 2]}'),
        ("InvoiceApproved", b'{"date": "2026-01-15T09:30:00Z", "invoiceId": "inv_1", "extra": true}'),
        ("InvoiceApproved", b"{broken json"),
        ("InvoiceApproved", b'{"date": "not a date"}'),
        ("PingTest", b""),
        ("PingTest", b"\x00\xff\xfe\r\n\r\n\x80"),
        ("a.b-c_D9", b"{}"),
        ("T" * 128, b"{}"),
    ],
)
def test_an_authentic_delivery_is_stored_byte_for_byte_before_it_is_answered_200(server, event_type, body):
    headers = signed(body, event_type)

    reply = server.post(body, headers)

    assert (reply.status, reply.json) == (200, {"status": "accepted"})
    assert server.stored(headers["webhook-id"]) == (event_type, body)


def test_the_same_key_type_and_bytes_again_are_answered_duplicate_and_stored_once(server):
    headers = [signed(b'{"first": 1}', message_id="msg_again") for _ in range(2)]

    replies = [server.post(b'{"first": 1}', one) for one in headers]

    assert [(reply.status, reply.json["status"]) for reply in replies] == [
        (200, "accepted"),
        (200, "duplicate"),
    ]
    assert server.keys().count("msg_again") == 1
    assert server.stored("msg_again") == ("PingTest", b'{"first": 1}')


def test_a_stored_key_with_other_bytes_is_quarantined_once(server):
    bodies = [b'{"first": 1}', b'{"second": 2}', b'{"second": 2}', b'{"third": 3}']

    replies = [server.post(body, signed(body, message_id="msg_bytes")) for body in bodies]

    assert [reply.json["status"] for reply in replies] == ["accepted", "accepted", "duplicate", "duplicate"]
    query = "SELECT id, body, error FROM delivery WHERE key = ? ORDER BY id"
    first, second = rows(server.inbox, query, "msg_bytes")
    assert (first[1:], second[1]) == ((bodies[0], None), bodies[1])
    assert second[2] == f"content conflict with delivery {first[0]}"


def test_every_200_of_a_crowd_is_a_row_in_the_file(server):
    def send(number):
        headers = signed(b'{"n": %d}' % number, message_id=f"msg_crowd_{number}")
        return server.post(b'{"n": %d}' % number, headers).status

    statuses = together(24, send)

    assert statuses == [200] * 24
    assert [server.stored(f"msg_crowd_{n}") for n in range(24)] == [
        ("PingTest", b'{"n": %d}' % n) for n in range(24)
    ]


def test_a_form_typed_body_is_verified_and_stored_exactly(server):
    body = b"date=2026-01-15&invoiceId=%20inv+1&invoiceId=2"
    headers = {**signed(body), "Content-Type": "application/x-www-form-urlencoded"}

    reply = server.post(body, headers)

    assert reply.status == 200
    assert server.stored(headers["webhook-id"]) == ("PingTest", body)


# --- the type header ------------------------------------------------------------------------------

NO_TYPES = [
    None,
    "",
    " ",
    "9Ping",
    "-Ping",
    "Ping Test",
    "Ping,Test",
    "Ping/Test",
    "Pïng",
    "T" * 129,
    MARK + "!",
]


def with_type(headers, event_type):
    kept = {name: text for name, text in headers.items() if name != "X-Webhook-Type"}
    return kept if event_type is None else {**kept, "X-Webhook-Type": event_type}


@pytest.mark.parametrize("event_type", NO_TYPES)
def test_an_authentic_delivery_without_a_type_is_quarantined(server, event_type):
    headers = with_type(signed(), event_type)

    replies = [server.post(b"{}", headers) for _ in range(2)]

    assert [(reply.status, reply.json) for reply in replies] == [
        (200, {"status": "accepted"}),
        (200, {"status": "duplicate"}),
    ]
    query = "SELECT event_type, body, state, error FROM delivery WHERE key = ?"
    assert rows(server.inbox, query, headers["webhook-id"]) == [
        ("", b"{}", "quarantined", "no event type: X-Webhook-Type is missing, malformed or sent twice")
    ]


@pytest.mark.parametrize("second", ["PingTest", "InvoiceApproved", ""])
def test_a_type_header_sent_twice_names_no_type(server, second):
    headers = {**signed(), "Content-Length": "2"}

    reply = server.ask(head(headers, raw=b"X-Webhook-Type: %b\r\n" % second.encode()), b"{}")

    assert (reply.status, reply.json) == (200, {"status": "accepted"})
    query = "SELECT event_type, state FROM delivery WHERE key = ?"
    assert rows(server.inbox, query, headers["webhook-id"]) == [("", "quarantined")]


@pytest.mark.parametrize("event_type", NO_TYPES)
def test_an_unauthenticated_delivery_is_401_with_any_type_header(server, event_type):
    forged = {**signed(), "webhook-signature": signed(secret=OTHER_SECRET)["webhook-signature"]}
    before = value(server.inbox, "SELECT count(*) FROM delivery")

    good_type, without = server.post(b"{}", forged), server.post(b"{}", with_type(forged, event_type))

    assert_error(without, 401, "authentication_error")
    assert without.body == good_type.body
    assert {**without.headers, "Date": ""} == {**good_type.headers, "Date": ""}
    assert value(server.inbox, "SELECT count(*) FROM delivery") == before


def test_a_delivery_without_its_type_does_not_displace_the_genuine_one(server):
    headers = signed()

    replies = [server.post(b"{}", with_type(headers, kind)) for kind in (None, "PingTest", None, "9")]

    assert [reply.json["status"] for reply in replies] == ["accepted", "accepted", "duplicate", "duplicate"]
    query = "SELECT event_type, slot, state IN ('quarantined') FROM delivery WHERE key = ? ORDER BY id"
    assert rows(server.inbox, query, headers["webhook-id"]) == [("", "-", 1), ("PingTest", "", 0)]


def test_a_first_delivery_of_another_type_does_not_hide_the_genuine_one(server):
    body = sample(PaymentFailed).to_json()
    headers = signed(body, "PaymentFailed")

    replies = [
        server.post(body, with_type(headers, kind))
        for kind in ("InvoiceApproved", "PaymentFailed", "PaymentFailed", "InvoiceApproved")
    ]

    assert [reply.json["status"] for reply in replies] == ["accepted", "accepted", "duplicate", "duplicate"]
    query = "SELECT id, event_type, body, error, conflict_of FROM delivery WHERE key = ? ORDER BY id"
    first, second = rows(server.inbox, query, headers["webhook-id"])
    assert first[1:3] == ("InvoiceApproved", body)
    assert second[1:] == ("PaymentFailed", body, f"type conflict with delivery {first[0]}", first[0])
    until(lambda: f"quarantined: type conflict with delivery {first[0]}" in server.log.read_text())


# --- 401 ------------------------------------------------------------------------------------------


def _unauthentic():
    now = datetime.now(UTC)
    good = signed()

    def without(name):
        return {key: text for key, text in signed().items() if key != name}

    return {
        "no signature": without("webhook-signature"),
        "no id": without("webhook-id"),
        "no timestamp": without("webhook-timestamp"),
        "malformed signature": {**good, "webhook-signature": MARK},
        "malformed base64": {**good, "webhook-signature": "v1,====" + MARK},
        "malformed timestamp": {**good, "webhook-timestamp": "1e9"},
        "malformed id": {**good, "webhook-id": "a.b"},
        "unknown version": {**good, "webhook-signature": good["webhook-signature"].replace("v1", "v9")},
        "wrong secret": signed(secret=OTHER_SECRET),
        "another body": signed(b"[]"),
        "another id": {**good, "webhook-id": "msg_" + MARK},
        "stale": signed(at=now - timedelta(seconds=310)),
        "in the future": signed(at=now + timedelta(seconds=320)),
        "too many signatures": {**good, "webhook-signature": " ".join([good["webhook-signature"]] * 17)},
    }


@pytest.mark.parametrize("cause", list(_unauthentic()))
def test_every_unauthenticated_delivery_gets_the_same_401_and_is_not_stored(server, cause):
    headers = _unauthentic()[cause]
    before = server.keys()

    reply = server.post(b"{}", headers)

    assert_error(reply, 401, "authentication_error")
    assert reply.body == (
        b'{"type": "authentication_error", "code": "authentication_failed", '
        b'"message": "The delivery could not be authenticated."}'
    )
    assert server.keys() == before


def test_all_401_answers_have_the_same_header_names_and_length(server):
    replies = [server.post(b"{}", headers) for headers in _unauthentic().values()]

    assert len({(tuple(reply.headers), reply.headers["Content-Length"]) for reply in replies}) == 1


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_signature_header_sent_twice_is_401(server, name):
    headers = signed()
    twice = f"{name}: {headers[name]}\r\n".encode()

    reply = server.ask(head({**headers, "Content-Length": "2"}, raw=twice), b"{}")

    assert_error(reply, 401, "authentication_error")
    assert server.stored(headers["webhook-id"]) is None


def test_a_signature_just_inside_the_tolerance_is_good_and_one_outside_is_not(server):
    now = datetime.now(UTC)

    statuses = [
        server.post(b"{}", signed(at=now + timedelta(seconds=age))).status for age in (-290, 290, -310, 320)
    ]

    assert statuses == [200, 200, 401, 401]


# --- 405, 415 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "PURGE"])
@pytest.mark.parametrize("path", [PATH, PATH + "/"])
def test_any_method_but_post_is_405_with_an_allow_header(server, method, path):
    headers = signed()

    with server.connect() as connection:
        connection.sendall(request(b"{}", headers, method=method, path=path))
        reply = read_reply(connection, method)

    assert reply.status == 405
    assert reply.headers["Allow"] == "POST"
    if method == "HEAD":
        assert "no-body response" not in server.log.read_text()  # gunicorn, of one that has a body
    else:
        assert_error(reply, 405, "invalid_request_error")
    assert server.stored(headers["webhook-id"]) is None


@pytest.mark.parametrize(
    "encoding", ["gzip", "GZIP", "br", "deflate", "identity, gzip", "gzip, identity", MARK]
)
def test_a_content_encoding_is_415(server, encoding):
    headers = {**signed(), "Content-Encoding": encoding}

    reply = server.post(b"{}", headers)

    assert_error(reply, 415, "invalid_request_error")
    assert server.stored(headers["webhook-id"]) is None


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
def test_the_identity_encoding_is_none(server, encoding):
    headers = {**signed(), "Content-Encoding": encoding}

    assert server.post(b"{}", headers).status == 200


# --- no 3xx ---------------------------------------------------------------------------------------


def test_a_trailing_slash_is_the_same_address_without_a_redirect(server):
    headers = signed()

    reply = server.post(b"{}", headers, path=PATH + "/")

    assert reply.status == 200
    assert server.stored(headers["webhook-id"]) == ("PingTest", b"{}")


@pytest.mark.parametrize("path", ["//webhooks/billing", "http://receiver" + PATH, "https://r:1" + PATH])
def test_a_delivery_is_accepted_at_other_spellings_of_its_address(request, server, path):
    headers = signed()
    # FastAPI's own router finds nothing at a target in absolute form, and asks no mounted application.
    foreign = "://" in path and request.node.callspec.params["server"] == "fastapi"

    reply = server.post(b"{}", headers, path=path)

    assert reply.status == (404 if foreign else 200)
    assert server.stored(headers["webhook-id"]) == (None if foreign else ("PingTest", b"{}"))


@pytest.mark.parametrize("path", ["//webhooks/billing", PATH])
def test_a_body_that_does_not_come_is_400_within_the_deadline_at_any_spelling(server, path):
    reply = server.ask(head({**signed(), "Content-Length": "100"}, path=path) + b"{")

    assert_error(reply, 400, "invalid_request_error")
    assert reply.seconds < scaled(2.5)


def test_an_unknown_transfer_coding_is_400(server):
    reply = server.ask(head({**signed(), "Transfer-Encoding": "xchunked"}) + b"2\r\n{}\r\n0\r\n\r\n")

    assert reply.status == 400


@pytest.mark.parametrize("path", ["/webhooks//billing", PATH + "//", PATH + "/./"])
def test_no_spelling_of_the_address_is_answered_with_a_redirect(server, path):
    reply = server.post(b"{}", signed(), path=path)

    assert reply.status in (200, 404)


# --- what is not said -----------------------------------------------------------------------------


def test_neither_response_nor_log_repeats_an_attackers_text(server):
    headers = {
        **signed(),
        "X-Webhook-Type": MARK,
        "webhook-id": MARK,
        "webhook-signature": "v1," + MARK,
        "User-Agent": "plain",
    }
    body = json.dumps({"secret": MARK}).encode()

    replies = [server.post(body, headers), server.post(body, {**headers, "X-Webhook-Type": MARK + "!"})]

    assert [reply.status for reply in replies] == [401, 401]
    assert all(MARK.encode() not in reply.body for reply in replies)
    assert MARK not in str([reply.headers for reply in replies])
    assert MARK not in server.log.read_text()


def test_the_cause_of_a_refusal_is_in_the_log(server):
    server.post(b"{}", signed(secret=OTHER_SECRET))

    text = server.log.read_text()

    assert "delivery to source default refused with 401 (mismatch)" in text


def test_health_and_readiness_answer(server):
    replies = [server.ask(head({}, method="GET", path=path)) for path in ("/healthz", "/readyz")]

    assert [(reply.status, reply.json) for reply in replies] == [
        (200, {"status": "up"}),
        (200, {"status": "ready"}),
    ]


def test_answers_come_well_within_the_deadline(server):
    started = time.monotonic()

    server.post(b"{}", signed())

    assert time.monotonic() - started < scaled(2.5)
