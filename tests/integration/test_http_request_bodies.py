"""Bodies as only a socket can send them: chunked, cut short, broken, trickling; and what is left of them."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time

import pytest
from gunicorn import version_info

from support.certificates import certificate
from support.processes import together
from support.server import chunk, gunicorn, head, read_reply, request
from support.signing import PATH, signed
from support.timeouts import scaled

LIMIT = 262_144
READS_AHEAD = version_info < (27,)
"""gunicorn before 27 waits for 1 KB more than it is asked for, and forgets a request that was read ahead."""
CHUNKED = {"Transfer-Encoding": "chunked"}


def test_a_body_at_the_limit_is_stored_whole_however_it_is_framed(server):
    body = b'{"pad": "' + b"x" * (LIMIT - 11) + b'"}'
    with_length, chunked = signed(body), signed(body)

    pieces = [chunk(body[start : start + 50_000]) for start in range(0, LIMIT, 50_000)]
    replies = [
        server.post(body, with_length),
        server.ask(head({**chunked, **CHUNKED}), *pieces, chunk(b"")),
    ]

    assert len(body) == LIMIT
    assert [reply.status for reply in replies] == [200, 200]
    assert server.stored(with_length["webhook-id"]) == ("PingTest", body)
    assert server.stored(chunked["webhook-id"]) == ("PingTest", body)


def test_a_body_one_byte_over_the_limit_is_413_however_it_is_framed(server):
    body = b"x" * (LIMIT + 1)
    with_length, chunked = signed(body), signed(body)

    replies = [
        server.post(body, with_length),
        server.ask(head({**chunked, **CHUNKED}), chunk(body), chunk(b"")),
    ]

    assert [(reply.status, reply.json["code"]) for reply in replies] == [(413, "request_too_large")] * 2
    assert server.stored(with_length["webhook-id"]) is None
    assert server.stored(chunked["webhook-id"]) is None


def test_an_endless_chunked_body_is_413_before_its_end(server):
    with server.connect() as connection:
        connection.sendall(head({**signed(), **CHUNKED}))
        for _ in range(LIMIT // 65_536 + 1):
            connection.sendall(chunk(b"x" * 65_536))

        reply = read_reply(connection)

    assert reply.status == 413
    assert reply.seconds < scaled(2.5)


@pytest.mark.parametrize(
    ("whole", "sent"),
    [(b'{"half": 1}', b'{"hal'), (b"{}", b"{}")],
    ids=["half of it", "all that was signed"],
)
def test_a_body_that_ends_before_its_length_is_400(server, whole, sent):
    headers = signed(whole)

    reply = server.ask(head({**headers, "Content-Length": "11"}), sent, half_close=True)

    assert (reply.status, reply.json["code"]) == (400, "incomplete_body")
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

    if broken == b"0\r\n" and version_info < (26,):  # which takes the empty body for whole
        assert reply.status == 401
    else:
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


def test_expect_100_continue_is_served(server):
    headers = signed(b"{}")

    with server.connect() as connection:
        connection.sendall(head({**headers, "Content-Length": "2", "Expect": "100-continue"}))
        interim = connection.recv(100)
        connection.sendall(b"{}")
        reply = read_reply(connection)

    assert interim.startswith(b"HTTP/1.1 100")
    assert reply.status == 200


# --- slow senders ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_body_that_does_not_come_in_time_is_400_within_the_deadline(server):
    declared = {"Content-Length": "1000"}
    senders = [
        (declared, PATH, b"x"),
        (CHUNKED, PATH, chunk(b"x")),
        (declared, PATH, b""),
        (declared, "//webhooks/billing", b""),
    ]

    def send(number):
        framing, path, piece = senders[number]
        return _trickle(server.connect(), head({**signed(), **framing}, path=path), piece)

    answers = together(len(senders), send)

    assert [status for status, _ in answers] == [400] * len(senders)
    assert all(1 < seconds < scaled(2.5) for _, seconds in answers)


@pytest.mark.slow
def test_a_trickling_body_over_tls_is_cut_off_in_time_and_not_answered_in_plain_text(tmp_path):
    certificate(tmp_path)
    tls = ssl._create_unverified_context()
    flags = ("--certfile", "ca.pem", "--keyfile", "key.pem", "--log-level", "debug")
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


# --- what follows on the same connection ----------------------------------------------------------

REFUSED = {
    "signature": (401, {"webhook-signature": "v1,AAAA"}),
    "encoding": (415, {"Content-Encoding": "gzip"}),
}


def test_after_any_answer_the_connection_takes_the_next_delivery(server):
    body = b'{"refused": 1}'
    by_length, in_chunks = {"Content-Length": str(len(body))}, chunk(body) + chunk(b"")
    good = signed(b"{}")

    with server.connect() as connection:
        statuses = []
        for status, wrong in REFUSED.values():
            connection.sendall(head({**signed(body), **by_length, **wrong}, close=False) + body)
            statuses.append((status, read_reply(connection).status))
            connection.sendall(head({**signed(body), **CHUNKED, **wrong}, close=False) + in_chunks)
            statuses.append((status, read_reply(connection).status))
        connection.sendall(request(b"{}", signed(), method="PUT", close=False))
        statuses.append((405, read_reply(connection, "PUT").status))
        connection.sendall(request(b"{}", signed(), close=False))
        statuses.append((200, read_reply(connection).status))
        connection.sendall(request(b"{}", good))
        statuses.append((200, read_reply(connection).status))

    assert [got for _, got in statuses] == [expected for expected, _ in statuses]
    assert server.stored(good["webhook-id"]) == ("PingTest", b"{}")


def _smuggled():
    """A whole good delivery, as the body of another request."""
    headers = signed(b"{}")
    return headers["webhook-id"], request(b"{}", headers)


TOO_LARGE = b"x" * (LIMIT + 1)
BEFORE_ANOTHER = {
    **{
        cause: (lambda inner, wrong=wrong: (wrong, inner, b""), (status, *([400] if READS_AHEAD else [])))
        for cause, (status, wrong) in REFUSED.items()
    },
    "over the limit": (lambda inner: ({}, TOO_LARGE + inner, b""), (413,)),
    "chunked, over the limit": (
        lambda inner: (CHUNKED, chunk(TOO_LARGE), chunk(inner) + chunk(b"")),
        (413, *([400] if READS_AHEAD else [])),
    ),
}
"""By what is wrong: headers and body of a request that has another as its end, and how it is refused."""


@pytest.mark.parametrize("wrong", BEFORE_ANOTHER)
def test_the_rest_of_a_refused_body_is_not_read_as_the_next_request(server, wrong):
    key, inner = _smuggled()
    made, statuses = BEFORE_ANOTHER[wrong]
    more, body, rest = made(inner)
    framing = {} if more is CHUNKED else {"Content-Length": str(len(body))}

    with server.connect() as connection:
        connection.sendall(head({**signed(), **framing, **more}, close=False))
        refused, *others = _replies_to(connection, body + rest + LAST)

    assert refused in statuses
    assert others in ([], [405])
    assert server.stored(key) is None


@pytest.mark.slow
def test_the_rest_of_a_slow_body_is_not_read_as_the_next_request(server):
    (key, inner), pauses = _smuggled(), (0.0, 0.05)
    slow = head({**signed(), "Content-Length": str(len(inner) + 1)}, close=False) + b"x"
    refused, replies = [], []

    with contextlib.ExitStack() as held:
        connections = [held.enter_context(server.connect()) for _ in pauses]
        for connection in connections:
            connection.sendall(slow)
        for connection, pause_seconds in zip(connections, pauses, strict=True):
            refused.append(read_reply(connection).status)
            time.sleep(pause_seconds)
            replies += _replies_to(connection, inner + LAST)

    assert refused == [400, 400]
    assert set(replies) <= {405}
    assert server.stored(key) is None


def test_control_the_smuggled_delivery_is_stored_as_a_separate_request(server):
    """The control of the tests above: the same bytes do get stored when nothing is in front of them."""
    key, inner = _smuggled()

    server.ask(inner)

    assert server.stored(key) == ("PingTest", b"{}")


LAST = request(b"{}", {}, method="PUT")
"""Whether it is answered or not, the server closes the connection, and reads nothing more from it."""


def _replies_to(connection, data) -> list[int]:
    """Send data that ends with LAST; return the statuses of all answers until the server closes."""
    answers = b""
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)
        while piece := connection.recv(65_536):
            answers += piece
    return [int(part.split(b" ", 1)[0]) for part in answers.split(b"HTTP/1.1 ")[1:]]
