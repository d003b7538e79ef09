"""Receivers that mean ill: none takes longer than an attempt may, and none stops the sandbox."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from billhook.sandbox.webhooks import http_post
from support.certificates import certificate
from support.receivers import (
    Hostile,
    deliveries,
    delivery,
    drip,
    errors,
    flush,
    hang,
    hostile,
    later,
    read_request,
    receiving,
    say,
    subscribe,
)
from support.sandbox import running
from support.timeouts import scaled

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
SECONDS = 0.5
TIMEOUT_MILLISECONDS = 20_000
"""What a loaded machine may add. A receiver that is not stopped hangs for 60 seconds."""


def reset(connection: socket.socket, _: Hostile) -> None:
    read_request(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def slow_reader(connection: socket.socket, receiver: Hostile) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    receiver.ended.wait(60)


def endless(connection: socket.socket, receiver: Hostile) -> None:
    read_request(connection)
    connection.sendall(OK + b"\r\n")
    while not receiver.ended.is_set():
        connection.sendall(b"x" * 65536)


def refuse_early(connection: socket.socket, _: Hostile) -> None:
    connection.recv(1)
    connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    connection.shutdown(socket.SHUT_WR)
    while connection.recv(65536):
        pass


HOSTILE: dict[str, tuple[Callable[[socket.socket, Hostile], None], str | None]] = {
    "hangs": (hang, "timed_out"),
    "drips a status line": (drip(b"HTTP/1.1 200 " + b"O" * 60_000), "timed_out"),
    "drips headers": (drip(OK + b"X: y\r\n" * 9), "timed_out"),
    "drips interim answers": (drip(b"HTTP/1.1 100 Continue\r\n\r\n", 0.002), "timed_out"),
    "resets": (reset, "broken_off"),
    "closes": (say(b""), "broken_off"),
    "closes within the headers": (say(b"HTTP/1.1 200 OK\r\nContent-"), "broken_off"),
    "HTTP/0.9": (say(b"hello, I am an old server\r\n\r\n"), "unreadable_answer"),
    "no number": (say(b"HTTP/1.1 abc OK\r\n\r\n"), "unreadable_answer"),
    "a number out of range": (say(b"HTTP/1.1 99999 OK\r\n\r\n"), "unreadable_answer"),
    "an endless status line": (say(b"HTTP/1.1 200 " + b"x" * 200_000), "unreadable_answer"),
    "endless headers": (say(OK + b"X: y\r\n" * 50_000 + b"\r\n"), "unreadable_answer"),
    "switches": (say(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"), "unreadable_answer"),
    "refuses before it has read": (refuse_early, "bad_status"),
    "an endless answer": (endless, None),
    "a body that is shorter than told": (say(OK + b"Content-Length: 99\r\n\r\nhi"), None),
    "a body that drips": (drip(b"x", first=OK + b"Content-Length: 99999\r\n\r\n"), None),
    "broken chunks": (say(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), None),
    "wrong encoding": (say(OK + b"Content-Length: 3\r\nContent-Encoding: gzip\r\n\r\nabc"), None),
}
"""What each does, and what the sandbox says of it; None: its status counts, and is 200."""


def test_each_hostile_receiver_is_judged_in_time() -> None:
    with ExitStack() as stack:
        urls = {name: stack.enter_context(hostile(behave)).url for name, (behave, _) in HOSTILE.items()}
        sandbox = stack.enter_context(running(delivery_timeout_seconds=SECONDS))
        for url in urls.values():
            subscribe(sandbox, "PingTest", url)
        assert flush(sandbox, 60)["due"] == 0
        by_url = {one["url"]: one for one in deliveries(sandbox)}

    found = {name: by_url[url] for name, url in urls.items()}
    problems = {name: problem for name, (_, problem) in HOSTILE.items()}
    assert {name: errors(one) for name, one in found.items()} == {
        name: [problem] for name, problem in problems.items()
    }
    assert {name: one["state"] for name, one in found.items()} == {
        name: "delivered" if problem is None else "pending" for name, problem in problems.items()
    }
    for one in found.values():
        assert one["attempts"][0]["milliseconds"] < scaled(TIMEOUT_MILLISECONDS)


@pytest.mark.slow
def test_control_without_a_deadline_for_the_whole_a_receiver_would_stretch_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = asyncio.timeout
    monkeypatch.setattr("billhook.sandbox.webhooks.http_post.asyncio.timeout", lambda _: limit(1000))
    behave, _ = HOSTILE["drips headers"]
    with hostile(behave) as receiver, running(delivery_timeout_seconds=SECONDS) as sandbox:
        subscribe(sandbox, "PingTest", receiver.url)

        assert flush(sandbox, 3)["due"] == 1


def test_a_receiver_that_does_not_read_is_left_in_time() -> None:
    with hostile(slow_reader) as receiver, running(delivery_timeout_seconds=SECONDS) as sandbox:
        subscribe(sandbox, "InvoiceApproved", receiver.url)
        sandbox.ok("POST", "/_sandbox/trigger/InvoiceApproved", {"note": "x" * 900_000})
        assert flush(sandbox, 60)["due"] == 0
        found = delivery(sandbox)

    assert errors(found) == ["timed_out"]
    assert found["attempts"][0]["milliseconds"] < scaled(TIMEOUT_MILLISECONDS)


# --- TLS ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "is_trusted", "problem"),
    [("127.0.0.1", True, None), ("127.0.0.1", False, "tls_failed"), ("127.0.0.9", True, "tls_failed")],
)
def test_tls_a_certificate_is_good_if_it_is_trusted_and_names_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, is_trusted: bool, problem: str | None
) -> None:
    context = certificate(tmp_path, host=host)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    http_post.tls_context.cache_clear()  # another test of this process may have read the system's
    with receiving(tls=context) as receiver, running() as sandbox:
        subscribe(sandbox, "PingTest", receiver.url.replace("http:", "https:"))
        flush(sandbox)

        assert errors(delivery(sandbox)) == [problem]
    http_post.tls_context.cache_clear()
    assert [got.body for got in receiver.got] == ([] if problem else [b"{}"])


def no_tls(connection: socket.socket, _: Hostile) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_the_log_says_once_that_deliveries_fail_and_once_that_they_arrive_again(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, "billhook.sandbox")
    http_post.tls_context.cache_clear()
    with receiving(tls=certificate(tmp_path)) as receiver, running() as sandbox:
        subscribe(sandbox, "PingTest", receiver.url.replace("http://", "https://"))
        flush(sandbox)
        later(sandbox, 3600)
    http_post.tls_context.cache_clear()
    with receiving(500) as receiver, running(retry_seconds=(1,)) as sandbox:
        subscribe(sandbox, "PingTest", receiver.url)
        flush(sandbox)
        later(sandbox, 3600)
        port = receiver.port

    failed, bad, again = [
        record.getMessage() for record in caplog.records if "deliver" in record.getMessage()
    ]
    assert re.fullmatch(r"deliveries to 127\.0\.0\.1:\d+ fail: tls_failed: .*SSL_CERT_FILE=FILE .*", failed)
    assert bad == f"deliveries to 127.0.0.1:{port} fail: bad_status"
    assert again == f"deliveries to 127.0.0.1:{port} arrive again"


@pytest.mark.parametrize(("behave", "problem"), [(hang, "timed_out"), (no_tls, "tls_failed")])
def test_tls_a_receiver_that_stalls_or_speaks_none_is_judged_in_time(
    behave: Callable[[socket.socket, Hostile], None], problem: str
) -> None:
    with hostile(behave) as receiver, running(delivery_timeout_seconds=SECONDS) as sandbox:
        subscribe(sandbox, "PingTest", receiver.url.replace("http:", "https:"))
        assert flush(sandbox, 60)["due"] == 0

        assert errors(delivery(sandbox)) == [problem]
