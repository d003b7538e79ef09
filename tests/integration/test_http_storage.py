"""Storage that fails: 503 within the deadline, nothing acknowledged, and good again without a restart.

On every database; test_http_storage_file.py is about what happens to files.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest

from billhook.inbox.schema import REVISION
from support.inbox_view import Foreigner, change, hang_up, rows
from support.postgres import BOTH, fresh_schema
from support.processes import together, until
from support.server import Server, assert_unavailable, gunicorn, head, read_reply, request
from support.signing import signed
from support.templates import new_inbox
from support.timeouts import scaled

DEADLINE = 1.0


@pytest.fixture(scope="module", params=BOTH)
def frail(request, postgres_server, tmp_path_factory):
    """A receiver with a short deadline, for tests that break its storage and mend it."""
    with contextlib.ExitStack() as held:
        options = {"BILLHOOK_DEADLINE_SECONDS": str(DEADLINE)}
        if request.param == "postgresql":
            url = held.enter_context(fresh_schema(postgres_server.url))
            held.callback(hang_up, url)
            options["BILLHOOK_INBOX_URL"] = new_inbox(url)
        yield held.enter_context(gunicorn(tmp_path_factory.mktemp("frail"), **options))


@pytest.fixture
def receiver(inbox_url, tmp_path):
    """Starts a receiver on a new inbox of its own."""
    return lambda *flags, **options: gunicorn(tmp_path, *flags, BILLHOOK_INBOX_URL=inbox_url, **options)


def assert_accepted(server: Server, key: str):
    """At once, or when the sender comes again."""
    reply = until(lambda: accepted(server, key))
    assert reply.json["status"] in ("accepted", "duplicate")
    assert server.stored(key) is not None


def accepted(server: Server, key: str):
    reply = server.post(b"{}", signed(message_id=key))
    assert reply.status in (200, 503)
    return reply if reply.status == 200 else None


def ready(server: Server) -> int:
    return server.ask(head({}, method="GET", path="/readyz")).status


@pytest.mark.slow
def test_a_foreign_lock_is_503_while_it_lasts(frail):
    with Foreigner(frail.inbox):
        assert_unavailable(frail, "msg_locked", DEADLINE)
        assert ready(frail) == 503
        assert frail.stored("msg_locked") is None

    assert_accepted(frail, "msg_locked")
    assert until(lambda: ready(frail) == 200)


def test_a_missing_table_is_503_until_it_is_restored(frail):
    change(frail.inbox, "ALTER TABLE delivery RENAME TO lost")
    try:
        assert_unavailable(frail, "msg_table", DEADLINE)
    finally:
        change(frail.inbox, "ALTER TABLE lost RENAME TO delivery")

    assert_accepted(frail, "msg_table")


@pytest.mark.slow
def test_an_inbox_of_another_version_is_503_until_it_is_repaired(receiver):
    with receiver() as server:
        change(server.inbox, "UPDATE billhook_version SET version_num = '9999'")
        refused = server.post(b"{}", signed(message_id="msg_version")).status
        change(server.inbox, "UPDATE billhook_version SET version_num = ?", REVISION)

        assert refused == 503
        assert_accepted(server, "msg_version")


def test_a_crowd_before_a_locked_inbox_is_all_answered_in_time_and_then_all_stored(frail):
    def send(number):
        started = time.monotonic()
        status = frail.post(b"{}", signed(message_id=f"msg_crowd_{number}")).status
        return status, time.monotonic() - started

    with Foreigner(frail.inbox):
        during = together(8, send)
    assert_accepted(frail, "msg_after_the_crowd")
    after = together(8, send)

    assert {status for status, _ in during} == {503}
    assert max(seconds for _, seconds in during) < scaled(DEADLINE + 1)
    assert {status for status, _ in after} == {200}
    assert all(frail.stored(f"msg_crowd_{number}") for number in range(8))


def test_after_503_the_connection_takes_the_next_delivery(frail):
    good = signed(message_id="msg_kept_alive")

    with frail.connect() as connection:
        with Foreigner(frail.inbox):
            connection.sendall(request(b"{}", good, close=False))
            refused = read_reply(connection).status
        assert_accepted(frail, "msg_meanwhile")
        connection.sendall(request(b"{}", good))
        taken = read_reply(connection).status

    assert (refused, taken) == (503, 200)


@pytest.mark.slow
def test_a_full_backlog_is_503_until_deliveries_are_handled(receiver):
    with receiver(BILLHOOK_BACKLOG_LIMIT="2") as server:
        statuses = [server.post(b"{}", signed(message_id=f"msg_{n}")).status for n in range(3)]
        change(server.inbox, "UPDATE delivery SET state = 'done' WHERE key = 'msg_0'")

        assert statuses == [200, 200, 503]
        until(lambda: server.post(b"{}", signed(message_id="msg_after")).status == 200)


@pytest.mark.slow
def test_a_preloaded_app_takes_deliveries_in_all_its_processes(receiver):
    with receiver("--preload", workers=2, BILLHOOK_ENGINE="thread") as server:
        for number in range(30):
            assert server.post(b"{}", signed(message_id=f"msg_{number}")).status == 200

        until(lambda: rows(server.inbox, "SELECT count(*) FROM delivery WHERE state = 'done'") == [(30,)], 20)
        assert sorted(server.keys()) == sorted(f"msg_{number}" for number in range(30))
    if isinstance(server.inbox, Path):
        assert rows(server.inbox, "PRAGMA integrity_check") == [("ok",)]


def test_every_delivery_answered_200_is_stored_after_sigterm(receiver):
    answered = []

    def send():
        for number in range(10_000):
            key = f"msg_{threading.get_ident()}_{number}"
            try:
                if server.post(b"{}", signed(message_id=key)).status == 200:
                    answered.append(key)
            except OSError:
                return

    with receiver(workers=2) as server:
        threads = [threading.Thread(target=send, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(answered) > 20, 20)
    stored = set(server.keys())

    assert set(answered) <= stored
