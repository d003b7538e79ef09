"""Bodies as only a socket can send them: chunked, cut short, broken, trickling; and what is left of them."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time

import pytest

from support.server import chunk, gunicorn, head, read_reply, request
from support.signing import PATH, signed
from support.timeouts import scaled

LIMIT = 262_144
CHUNKED = {"Transfer-Encoding": "chunked"}


@pytest.mark.slow
def test_a_chunked_body_within_the_limit_is_stored_whole(server):
    body = b'{"pad": "' + b"x" * (LIMIT - 11) + b'"}'
    headers = signed(body)

    pieces = [chunk(body[start : start + 50_000]) for start in range(0, LIMIT, 50_000)]
    reply = server.ask(head({**headers, **CHUNKED}), *pieces, chunk(b""))

    assert len(body) == LIMIT
    assert reply.status == 200
    assert server.stored(headers["webhook-id"]) == ("PingTest", body)


def test_a_chunked_body_one_byte_over_the_limit_is_413(server):
    body = b"x" * (LIMIT + 1)
    headers = signed(body)

    reply = server.ask(head({**headers, **CHUNKED}), chunk(body), chunk(b""))

    assert (reply.status, reply.json["code"]) == (413, "request_too_large")
    assert server.stored(headers["webhook-id"]) is None


def test_an_endless_chunked_body_is_413_before_its_end(server):
    with server.connect() as connection:
        connection.sendall(head({**signed(), **CHUNKED}))
        for _ in range(LIMIT // 65_536 + 1):
            connection.sendall(chunk(b"x" * 65_536))

        reply = read_reply(connection)

    assert reply.status == 413
    assert reply.seconds < scaled(2.5)


def test_a_body_at_the_limit_is_stored_and_a_longer_one_is_413(server):
    fits, over = b"x" * LIMIT, b"x" * (LIMIT + 1)
    good = signed(fits)

    replies = [server.post(fits, good), server.post(over, signed(over))]

    assert [reply.status for reply in replies] == [200, 413]
    assert server.stored(good["webhook-id"]) == ("PingTest", fits)


def test_a_length_over_the_limit_is_413_before_any_of_the_body_is_sent(server):
    reply = server.ask(head({**signed(), "Content-Length": "10000000000"}))

    assert (reply.status, reply.json["code"]) == (413, "request_too_large")
    assert reply.seconds < scaled(1)


def test_a_body_that_ends_early_is_400(server):
    headers = signed(b'{"half": 1}')

    reply = server.ask(head({**headers, "Content-Length": "11"}), b'{"hal', half_close=True)

    assert (reply.status, reply.json["code"]) == (400, "incomplete_body")
    assert server.stored(headers["webhook-id"]) is None


def test_a_truncated_body_is_400_even_if_its_signature_matches(server):
    headers = signed(b"{}")

    reply = server.ask(head({**headers, "Content-Length": "11"}), b"{}", half_close=True)

    assert reply.status == 400
    assert server.stored(headers["webhook-id"]) is None


@pytest.mark.parametrize(
    "broken",
    [
        b"zz\r\n{}\r\n0\r\n\r\n",
        b"-2\r\n{}\r\n0\r\n\r\n",
        b"2\r\n{}XX0\r\n\r\n",
        b"2\r\n{}\r\n",
        b"5\r\n{}",
        b"0\r\n",
    ],
)
def test_broken_chunks_are_400(server, broken):
    headers = signed(b"{}")

    reply = server.ask(head({**headers, **CHUNKED}), broken, half_close=True)

    assert (reply.status, reply.json["code"]) == (400, "incomplete_body")
    assert server.stored(headers["webhook-id"]) is None


def test_a_broken_trailer_is_400_or_ignored(server):
    """Trailers follow the body: gthread reads them with its last chunk, the asgi parsers drop them."""
    headers = signed(b"{}")

    reply = server.ask(head({**headers, **CHUNKED}), b"2\r\n{}\r\n0\r\nbad trailer\r\n\r\n", half_close=True)

    stored = server.stored(headers["webhook-id"])
    assert (reply.status, stored) in ((400, None), (200, ("PingTest", b"{}")))


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 2\r\nContent-Length: 3\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: +2\r\n",
        b"Content-Length: 0x2\r\n",
        b"Content-Length: -2\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
    ],
)
def test_a_message_whose_length_can_be_read_in_two_ways_is_refused(server, lines):
    headers = signed(b"{}")

    reply = server.ask(head(headers, raw=lines), b"{}", half_close=True)

    assert 400 <= reply.status < 502
    assert reply.status != 500
    assert server.stored(headers["webhook-id"]) is None


def test_without_a_length_there_is_no_body(server):
    headers = signed(b"")

    reply = server.ask(head(headers))

    assert reply.status == 200
    assert server.stored(headers["webhook-id"]) == ("PingTest", b"")


# --- slow senders ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_body_that_trickles_for_ever_is_400_within_the_deadline(server, framing):
    opening = CHUNKED if framing == "chunked" else {"Content-Length": "1000"}
    piece = chunk(b"x") if framing == "chunked" else b"x"

    status, seconds = _trickle(server.connect(), head({**signed(), **opening}), piece)

    assert status == 400
    assert 1 < seconds < scaled(2.5)


@pytest.mark.slow
def test_a_body_that_never_begins_is_400_within_the_deadline(server):
    started = time.monotonic()

    reply = server.ask(head({**signed(), "Content-Length": "1000"}))

    assert (reply.status, reply.json["code"]) == (400, "incomplete_body")
    assert time.monotonic() - started < scaled(2.5)


def test_a_slow_body_that_ends_in_time_is_stored(server):
    headers = signed(b"{}")

    with server.connect() as connection:
        connection.sendall(head({**headers, "Content-Length": "2"}) + b"{")
        time.sleep(0.3)
        connection.sendall(b"}")
        reply = read_reply(connection)

    assert reply.status == 200


@pytest.mark.slow
def test_a_trickling_body_over_tls_is_cut_off_in_time_and_not_answered_in_plain_text(tmp_path):
    certificate, key = _certificate(tmp_path)
    tls = ssl._create_unverified_context()
    flags = ("--certfile", certificate, "--keyfile", key, "--log-level", "debug")
    headers = signed(b"{}")

    with gunicorn(tmp_path, *flags, wait_for="", BILLHOOK_DEADLINE_SECONDS="1") as server:
        started = time.monotonic()
        # OpenSSL takes the end of the input for an attack and lets no answer out: an alert, and the end.
        with pytest.raises(ssl.SSLError, match=r"(?i)alert|eof"):
            _trickle(tls.wrap_socket(server.connect()), head({**signed(), "Content-Length": "99"}), b"x")
        seconds = time.monotonic() - started
        with tls.wrap_socket(server.connect()) as connection:
            connection.sendall(request(b"{}", headers))
            after = read_reply(connection).status

    assert seconds < scaled(3.0)
    assert after == 200


def _trickle(connection: socket.socket, opening: bytes, piece: bytes) -> tuple[int, float]:
    started = time.monotonic()
    with connection:
        connection.sendall(opening)
        connection.settimeout(0.1)
        answer = b""
        while b"\r\n" not in answer and time.monotonic() - started < 5:
            try:
                connection.sendall(piece)
                answer += connection.recv(4096)
            except TimeoutError:
                continue
        return int(answer.split(b" ")[1]), time.monotonic() - started


def _certificate(folder):
    names = str(folder / "cert.pem"), str(folder / "key.pem")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=receiver"]
    made += ["-out", names[0], "-keyout", names[1]]
    subprocess.run(made, check=True, capture_output=True)
    return names


# --- what follows on the same connection ----------------------------------------------------------

REFUSED = {
    "signature": (401, {"webhook-signature": "v1,AAAA"}),
    "encoding": (415, {"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("cause", list(REFUSED))
@pytest.mark.parametrize("chunked", [False, True])
def test_after_a_refusal_the_connection_takes_the_next_delivery(server, cause, chunked):
    status, wrong = REFUSED[cause]
    body = b'{"refused": 1}'
    framing = CHUNKED if chunked else {"Content-Length": str(len(body))}
    wire = chunk(body) + chunk(b"") if chunked else body
    good = signed(b"{}")

    with server.connect() as connection:
        connection.sendall(head({**signed(body), **framing, **wrong}, close=False) + wire)
        refused = read_reply(connection)
        connection.sendall(request(b"{}", good))
        accepted = read_reply(connection)

    assert (refused.status, accepted.status) == (status, 200)
    assert server.stored(good["webhook-id"]) == ("PingTest", b"{}")


def test_after_405_and_after_200_the_connection_takes_the_next_delivery(server):
    with server.connect() as connection:
        connection.sendall(request(b"{}", signed(), method="PUT", close=False))
        first = read_reply(connection, "PUT").status
        connection.sendall(request(b"{}", signed(), close=False))
        second = read_reply(connection).status
        connection.sendall(request(b"{}", signed()))
        third = read_reply(connection).status

    assert (first, second, third) == (405, 200, 200)


def _smuggled():
    """A whole good delivery, as the body of another request."""
    headers = signed(b"{}")
    return headers["webhook-id"], request(b"{}", headers)


@pytest.mark.parametrize(
    "opening",
    [
        {"webhook-signature": "v1,AAAA"},
        {"Content-Encoding": "gzip"},
    ],
)
def test_the_body_of_a_refused_request_is_not_read_as_the_next_request(server, opening):
    key, inner = _smuggled()

    with server.connect() as connection:
        connection.sendall(head({**signed(), "Content-Length": str(len(inner)), **opening}, close=False))
        connection.sendall(inner)
        replies = _all_replies(connection)

    assert len(replies) == 1
    assert server.stored(key) is None


def test_the_body_over_the_limit_is_not_read_as_the_next_request(server):
    key, inner = _smuggled()
    padding = b"x" * LIMIT

    with server.connect() as connection:
        length = str(len(padding) + len(inner))
        connection.sendall(head({**signed(), "Content-Length": length}, close=False))
        replies = [read_reply(connection).status]
        connection.sendall(padding + inner)
        replies += _all_replies(connection)

    assert replies == [413]
    assert server.stored(key) is None


def test_the_rest_of_a_chunked_body_over_the_limit_is_not_read_as_the_next_request(server):
    key, inner = _smuggled()

    with server.connect() as connection:
        connection.sendall(head({**signed(), **CHUNKED}, close=False) + chunk(b"x" * (LIMIT + 1)))
        replies = [read_reply(connection).status]
        connection.sendall(chunk(inner) + chunk(b""))
        replies += _all_replies(connection)

    assert replies == [413]
    assert server.stored(key) is None


@pytest.mark.slow
@pytest.mark.parametrize("pause_seconds", [0.0, 0.05])
def test_the_rest_of_a_slow_body_is_not_read_as_the_next_request(server, pause_seconds):
    key, inner = _smuggled()

    with server.connect() as connection:
        connection.sendall(head({**signed(), "Content-Length": str(len(inner) + 1)}, close=False) + b"x")
        replies = [read_reply(connection).status]
        time.sleep(pause_seconds)
        replies += _sent_then_all_replies(connection, inner)

    assert replies == [400]
    assert server.stored(key) is None


def test_control_the_smuggled_delivery_is_stored_as_a_separate_request(server):
    """The control of the tests above: the same bytes do get stored when nothing is in front of them."""
    key, inner = _smuggled()

    server.ask(inner)

    assert server.stored(key) == ("PingTest", b"{}")


def _sent_then_all_replies(connection, data):
    try:
        connection.sendall(data)
    except OSError:
        return []
    return _all_replies(connection)


def _all_replies(connection) -> list[int]:
    """The statuses of all answers until the server closes, or says nothing more."""
    connection.settimeout(0.7)
    answers = b""
    try:
        while piece := connection.recv(65_536):
            answers += piece
    except (TimeoutError, ConnectionError):
        pass
    return [int(part.split(b" ", 1)[0]) for part in answers.split(b"HTTP/1.1 ")[1:]]


def test_expect_100_continue_is_served(server):
    headers = signed(b"{}")

    with server.connect() as connection:
        connection.sendall(head({**headers, "Content-Length": "2", "Expect": "100-continue"}))
        interim = connection.recv(100)
        connection.sendall(b"{}")
        reply = read_reply(connection)

    assert interim.startswith(b"HTTP/1.1 100")
    assert reply.status == 200


def test_the_path_of_the_contract_is_the_default_one():
    assert PATH == "/webhooks/billing"
