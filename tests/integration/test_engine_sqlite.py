"""The worker on a SQLite file: what is done to the files beside and behind it."""

from __future__ import annotations

import threading
import time

import pytest

from billhook import Handlers
from billhook.events import PingTest
from support.apps import deliver, inbox_file
from support.inbox_view import rows
from support.processes import until


def done(app):
    return [key for (key,) in rows(inbox_file(app), "SELECT key FROM delivery WHERE state = 'done'")]


@pytest.mark.slow
def test_without_a_waker_polling_finds_everything(running, tmp_path):
    (tmp_path / "billhook.db-wake").write_text("somebody's file, and no pipe")
    handlers, calls = Handlers(), []
    handlers.on(PingTest)(calls.append)
    app = running(handlers)
    time.sleep(0.1)

    deliver(app)

    until(lambda: calls, seconds=4)


def test_deliveries_are_handled_after_the_inbox_file_was_missing(running):
    handlers, gate, calls = Handlers(), threading.Event(), []

    @handlers.on(PingTest, name="h")
    def handle(event, delivery):
        calls.append(delivery.key)
        gate.wait(10)

    app = running(handlers, BILLHOOK_LEASE_SECONDS=30)
    deliver(app, message_id="msg_1")
    until(lambda: calls == ["msg_1"])
    path = inbox_file(app)
    files = [p for p in path.parent.glob("billhook.db*") if not p.name.endswith(("-wake", "-lock"))]
    aside = [(p, p.with_name("aside-" + p.name)) for p in files]
    for present, away in aside:
        present.rename(away)
    gate.set()  # the handler returns, and cannot be settled
    time.sleep(0.3)
    for present, away in aside:
        away.rename(present)

    until(lambda: done(app) == ["msg_1"])
    deliver(app, message_id="msg_2")
    until(lambda: done(app) == ["msg_1", "msg_2"])
    assert calls == ["msg_1", "msg_2"]
    assert rows(inbox_file(app), "SELECT DISTINCT attempts FROM run") == [(1,)]
