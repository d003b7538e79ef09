"""Bodies that come in chunks: read whole, or refused as the sender's fault."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.sandbox import API_TOKEN, Running, running

LOGIN = json.dumps({"refreshToken": API_TOKEN}).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def answered(sandbox: Running, chunks: bytes) -> tuple[int, Any]:
    """Status and body of the answer to a login in these chunks."""
    head = (
        b"POST /login HTTP/1.1\r\nHost: sandbox\r\nx-api-key: sandbox\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    parts = urlsplit(sandbox.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=120) as connection:
        connection.sendall(head + chunks)
        with connection.makefile("rb") as file:
            told, _, body = file.read().partition(b"\r\n\r\n")
    return int(told.split()[1]), json.loads(body)


def test_control_a_body_in_chunks_is_read_whole(sandbox: Running) -> None:
    status, body = answered(sandbox, chunk(LOGIN[:5]) + chunk(LOGIN[5:]) + chunk(b""))

    assert (status, body["expiresIn"]) == (200, 3600)


def test_broken_chunks_are_the_senders_fault(sandbox: Running) -> None:
    answers = [answered(sandbox, chunks) for chunks in (b"zz\r\n", b"-5\r\n\r\n")]

    assert [(status, body["code"]) for status, body in answers] == [(400, "not_json")] * 2


def test_a_body_in_chunks_that_is_too_long_is_refused_and_not_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("billhook.sandbox.app.MAX_BODY_BYTES", 1000)
    with running() as sandbox:
        status, body = answered(sandbox, chunk(LOGIN.ljust(1000)) + chunk(b"x") + chunk(b""))

    assert (status, body["code"]) == (413, "request_too_large")
