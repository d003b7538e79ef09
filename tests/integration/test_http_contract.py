"""The table of answers over real sockets: what a server's parser, its loop or its threads take part in.

All cases are in tests/unit/receiver/test_delivery_rules.py; here each door shows that it asks the same rules.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from support.server import head, read_reply, request
from support.signing import APPROVED, OTHER_SECRET, PATH, signed

MARK = "echo-me-not-7391"
METHODS = ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "PURGE"]


def assert_error(reply, status, kind):
    assert reply.status == status
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.json["type"] == kind
    assert sorted(reply.json) == ["code", "message", "type"]


@pytest.mark.parametrize(
    ("event_type", "more", "body", "stored_type"),
    [
        ("InvoiceApproved", None, APPROVED, "InvoiceApproved"),
        ("PingTest", None, b"", "PingTest"),
        ("PingTest", None, b"\x00\xff\xfe\r\n\r\n\x80", "PingTest"),
        *((event_type, None, b"{}", "") for event_type in ("Pïng", " ", "T" * 129)),
        *(("PingTest", second, b"{}", "") for second in ("PingTest", "InvoiceApproved", "")),
    ],
)
def test_an_authentic_delivery_is_stored_byte_for_byte_under_its_one_good_type(
    server, event_type, more, body, stored_type
):
    headers = {**signed(body), "X-Webhook-Type": event_type, "Content-Length": len(body)}
    raw = b"" if more is None else b"X-Webhook-Type: %b\r\n" % more.encode()
    reply = server.ask(head(headers, raw=raw), body)
    assert (reply.status, reply.json) == (200, {"status": "accepted"})
    assert server.stored(headers["webhook-id"]) == (stored_type, body)


def test_whatever_is_wrong_with_a_signature_the_answers_differ_in_nothing(server):
    good = signed()
    unauthentic = [
        {"X-Webhook-Type": "PingTest"},
        {**good, "webhook-signature": "v1,====" + MARK},
        {**good, "webhook-id": "msg_" + MARK, "X-Webhook-Type": MARK + "!"},
        signed(secret=OTHER_SECRET),
        signed(at=datetime.now(UTC) - timedelta(seconds=400)),
        signed(at=datetime.now(UTC) + timedelta(seconds=400)),
    ]
    before = server.keys()

    replies = [server.post(b"{}", headers) for headers in unauthentic]

    for reply in replies:
        assert_error(reply, 401, "authentication_error")
    assert len({(reply.body, str({**reply.headers, "Date": ""})) for reply in replies}) == 1
    assert server.keys() == before
    text = server.logged("delivery to source default refused with 401 (mismatch)")
    assert MARK not in text + str(replies)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_signature_header_sent_twice_is_401(server, name):
    headers = signed()
    twice = f"{name}: {headers[name]}\r\n".encode()

    reply = server.ask(head({**headers, "Content-Length": "2"}, raw=twice), b"{}")

    assert_error(reply, 401, "authentication_error")
    assert server.stored(headers["webhook-id"]) is None


def test_any_method_but_post_is_405_with_an_allow_header(server):
    headers = signed()
    replies = {}

    for method in METHODS:
        with server.connect() as connection:
            connection.sendall(request(b"{}", headers, method=method))
            replies[method] = read_reply(connection, method)

    assert {method: (reply.status, reply.headers["Allow"]) for method, reply in replies.items()} == (
        dict.fromkeys(METHODS, (405, "POST"))
    )
    assert replies.pop("HEAD").body == b""
    for reply in replies.values():
        assert_error(reply, 405, "invalid_request_error")
    assert "no-body response" not in server.log.read_text()  # gunicorn, of an answer to HEAD with a body
    assert server.stored(headers["webhook-id"]) is None


@pytest.mark.parametrize(
    "path", [PATH + "/", "//webhooks/billing", "http://receiver" + PATH, "https://r:1" + PATH]
)
def test_a_delivery_is_accepted_at_other_spellings_of_its_address(server, path):
    headers = signed()

    reply = server.post(b"{}", headers, path=path)

    assert reply.status == 200
    assert server.stored(headers["webhook-id"]) == ("PingTest", b"{}")


# --- other servers --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("server", ["fastapi", "gevent", "uvicorn"], indirect=True, scope="session")
def test_another_server_or_framework_gives_the_same_answers(server):
    headers = signed(APPROVED, "InvoiceApproved")
    large = b"x" * 262_145

    replies = [
        server.post(APPROVED, headers),
        server.post(APPROVED, headers, path=PATH + "/"),
        server.post(APPROVED, headers, path="//webhooks/billing"),
        server.post(b"{}", signed(secret=OTHER_SECRET)),
        server.post(b"{}", signed(), method="PUT"),
        server.post(large, signed(large)),
        server.post(b"{}", {**signed(), "Content-Encoding": "gzip"}),
        server.get("/readyz"),
    ]

    assert [reply.status for reply in replies] == [200, 200, 200, 401, 405, 413, 415, 200]
    assert [reply.json["status"] for reply in replies[:3]] == ["accepted", "duplicate", "duplicate"]
    assert server.stored(headers["webhook-id"]) == ("InvoiceApproved", APPROVED)
