"""GET /readyz, asked often: it writes once a second at most, and leaves nothing on the disk."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from support.server import gunicorn, head, read_reply, request
from support.signing import PATH, signed

FRAME_BYTES = 4_120
"""What one commit of one page adds to the write-ahead log."""


def log_bytes(inbox):
    log = inbox.with_name(inbox.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def ask_readiness(server, times):
    """The answers to so many requests on one connection."""
    statuses = set()
    with server.connect() as connection:
        for _ in range(times):
            connection.sendall(head({}, method="GET", path="/readyz", close=False))
            statuses.add(read_reply(connection, "GET").status)
    return statuses


@pytest.mark.slow
def test_two_thousand_questions_leave_the_log_as_it_was(tmp_path):
    with gunicorn(tmp_path) as server:
        server.post(b"{}", signed())
        before = log_bytes(server.inbox)

        statuses = ask_readiness(server, 2_000)

        assert statuses == {200}
        assert log_bytes(server.inbox) <= before
        assert before < 50 * FRAME_BYTES


@pytest.mark.slow
def test_a_write_for_each_question_would_fill_the_log(tmp_path):
    """The control: what 2,000 commits leave that nobody tidies up."""
    with gunicorn(tmp_path) as server:
        server.post(b"{}", signed())
        before = log_bytes(server.inbox)
        with contextlib.closing(sqlite3.connect(server.inbox, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_autocheckpoint=0")
            for _ in range(50):
                connection.execute("UPDATE billhook_version SET version_num = version_num")

            assert log_bytes(server.inbox) >= before + 50 * FRAME_BYTES


def test_deliveries_between_readiness_checks_are_stored(tmp_path):
    with gunicorn(tmp_path) as server:
        for number in range(5):
            ask_readiness(server, 1)
            reply = server.ask(request(b"{}", signed(message_id=f"msg_{number}"), path=PATH))
            assert reply.status == 200

        assert server.keys() == [f"msg_{number}" for number in range(5)]
