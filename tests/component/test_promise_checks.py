"""The promises as check functions, each shown to fail on a receiver that breaks it.

The wrong receivers are the endpoints people write by hand; the right one is billhook. One check, both.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask, request

from billhook import Handlers, signals
from billhook.errors import SignatureError
from billhook.events import parse_event
from billhook.signing import StandardWebhooks
from support.apps import make_app
from support.inbox_view import Foreigner, incoming, rows
from support.processes import together
from support.signing import OTHER_SECRET, PATH, SECRET, signed


class ByHand:
    """A receiver by hand; each flag is one mistake."""

    def __init__(self, folder, *mistakes):
        self.file = folder / "by_hand.db"
        self.mistakes = mistakes
        self.parsed = []
        unique = "" if "check then insert" in mistakes else ", UNIQUE (source, key)"
        with self._connect() as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(
                f"CREATE TABLE delivery (id INTEGER PRIMARY KEY, source, key, event_type, body{unique})"
            )
        self.app = Flask("by_hand")
        self.app.add_url_rule(PATH, "receive", self.receive, methods=["POST"])

    @contextlib.contextmanager
    def _connect(self):
        with contextlib.closing(sqlite3.connect(self.file, timeout=0.5)) as connection, connection:
            yield connection

    def receive(self):
        scheme, body = StandardWebhooks(), request.get_data()
        event_type = request.headers["X-Webhook-Type"]
        if "signature after parse" in self.mistakes:
            self.parsed.append(parse_event(event_type, body))
        tolerance = 10**9 if "stale accepted" in self.mistakes else 300
        try:
            verified = scheme.verify(
                request.headers,
                body,
                scheme.load([SECRET]),
                event_type=event_type,
                now=datetime.now(UTC),
                tolerance_seconds=tolerance,
            )
        except SignatureError:
            return {"type": "authentication_error"}, 401
        row = ("default", verified.key, event_type, body)
        if "acknowledge before commit" in self.mistakes:
            threading.Thread(target=self._store, args=(row,)).start()
            return {"status": "accepted"}
        return {"status": self._store(row)}

    def _store(self, row):
        with self._connect() as connection:
            if connection.execute("SELECT 1 FROM delivery WHERE key = ?", row[1:2]).fetchone():
                return "duplicate"
        if "check then insert" in self.mistakes:
            time.sleep(0.05)
        with contextlib.suppress(sqlite3.OperationalError), self._connect() as connection:
            done = connection.execute("INSERT OR IGNORE INTO delivery VALUES (NULL, ?, ?, ?, ?)", row)
            return "accepted" if done.rowcount else "duplicate"
        return "unknown"


@pytest.fixture
def receiver(app_with):
    app = app_with(BILLHOOK_DEADLINE_SECONDS=0.5)
    return app, app.extensions["billhook"].inbox.database.path


def wrong(tmp_path, mistake):
    by_hand = ByHand(tmp_path, mistake)
    return by_hand.app, by_hand.file


# --- the checks -----------------------------------------------------------------------------------


def check_200_means_stored(app, file):
    """Even while somebody else keeps the file locked: no 200 without a row."""
    with Foreigner(file):
        headers = signed(message_id="msg_1")
        status = app.test_client().post(PATH, data=b"{}", headers=headers).status_code
        stored = rows(file, "SELECT body FROM delivery WHERE key = 'msg_1'")
    assert status != 200 or stored == [(b"{}",)]


def check_one_key_is_stored_once(app, file):
    """However many senders come at one moment."""
    headers = signed(message_id="msg_1")

    answers = together(8, lambda _: app.test_client().post(PATH, data=b"{}", headers=headers).json)

    assert rows(file, "SELECT count(*) FROM delivery") == [(1,)]
    assert sorted(answer["status"] for answer in answers) == ["accepted"] + ["duplicate"] * 7


def check_what_is_not_authentic_is_not_parsed(app, file):
    """A body that no parser likes must not make a difference to somebody without the secret."""
    good, bad = b"{}", b'{"a": 1, "a": 2}'
    statuses = {
        app.test_client().post(PATH, data=body, headers=signed(body, secret=OTHER_SECRET)).status_code
        for body in (good, bad)
    }
    assert statuses == {401}


def check_stale_is_refused(app, file):
    """A captured delivery is worth nothing after the tolerance."""
    headers = signed(at=datetime.now(UTC) - timedelta(hours=1))
    assert app.test_client().post(PATH, data=b"{}", headers=headers).status_code == 401
    assert rows(file, "SELECT count(*) FROM delivery") == [(0,)]


CHECKS = {
    "acknowledge before commit": check_200_means_stored,
    "check then insert": check_one_key_is_stored_once,
    "signature after parse": check_what_is_not_authentic_is_not_parsed,
    "stale accepted": check_stale_is_refused,
}


@pytest.mark.parametrize("mistake", list(CHECKS))
def test_billhook_keeps_the_promise(receiver, mistake):
    CHECKS[mistake](*receiver)


@pytest.mark.parametrize("mistake", list(CHECKS))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_check_of_the_promise_fails_on_a_receiver_that_breaks_it(tmp_path, mistake):
    app, file = wrong(tmp_path, mistake)
    app.testing = False

    with pytest.raises(AssertionError, match="assert"):
        CHECKS[mistake](app, file)


def test_no_failure_of_a_handler_changes_the_answer(tmp_path):
    handlers = Handlers()

    @handlers.on_any()
    def explode(event):
        raise SystemExit(3)

    app = make_app(tmp_path, handlers=[handlers], BILLHOOK_ENGINE="inline")

    reply = app.test_client().post(PATH, data=b"{}", headers=signed())

    assert (reply.status_code, reply.json) == (200, {"status": "accepted"})
    app.extensions["billhook"].close()


def test_no_failure_of_an_observer_changes_the_answer(receiver):
    app, _ = receiver

    def explode(sender, **facts):
        raise SystemExit("an observer must not do this")

    names = ["delivery_accepted", "delivery_duplicate", "delivery_conflict", "delivery_rejected"]
    names.append("delivery_quarantined")
    for name in names:
        getattr(signals, name).connect(explode, sender=app)
    client = app.test_client()

    replies = [
        client.post(PATH, data=b"{}", headers=signed(message_id="msg_1")),
        client.post(PATH, data=b"{}", headers=signed(message_id="msg_1")),
        client.post(PATH, data=b"{}", headers=signed(b"{}", "Other", message_id="msg_1")),
        client.post(PATH, data=b"{}", headers=signed(secret=OTHER_SECRET)),
    ]

    assert [reply.status_code for reply in replies] == [200, 200, 200, 401]
    assert [json.loads(reply.data).get("status") for reply in replies[:3]] == [
        "accepted",
        "duplicate",
        "accepted",
    ]


def test_an_engine_that_cannot_be_woken_does_not_change_the_response(app_with):
    app = app_with(BILLHOOK_ENGINE="thread")
    client = app.test_client()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # By another app: any request to this one would begin its engine, with files of its own.
    app_with(BILLHOOK_ENGINE="worker").test_client().post(
        PATH, data=b"{}", headers=signed(secret=OTHER_SECRET)
    )
    app.extensions["billhook"].inbox.put(incoming("opens every file that an accept needs"))

    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # the engine's pipes cannot be made
    try:
        reply = client.post(PATH, data=b"{}", headers=signed())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert (reply.status_code, reply.json) == (200, {"status": "accepted"})
