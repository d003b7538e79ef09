"""What is logged of a handler that failed: its error in one short line, whatever of the payload it quotes."""

from __future__ import annotations

import json
import logging

import pytest

from billhook import Handlers
from billhook.events import PaymentFailed, PingTest, sample
from billhook.extension import get_state
from support.apps import deliver, inbox_at
from support.inbox_view import rows

FORGED = "x\n2026-11-21 22:00:00,000 INFO billhook.worker: all is well \x1b[2J\x1b[31m\u202e"


@pytest.fixture
def failing(app_with):
    """Delivers a payload to a handler that quotes it in its error; `retry` has its waits."""

    def fail(reason, retry):
        handlers = Handlers()

        @handlers.on(PaymentFailed, retry=retry)
        def look_up(event):
            raise LookupError(f"no such customer: {event.failure_reason}")

        app = app_with(handlers=[handlers], BILLHOOK_ENGINE="inline")
        body = json.loads(sample(PaymentFailed).to_json()) | {"failureReason": reason}
        deliver(app, json.dumps(body).encode(), "PaymentFailed")
        return app

    return fail


@pytest.mark.parametrize(("retry", "said"), [([60], "failed on delivery 1"), ([], "on delivery 1 is dead")])
def test_a_payload_cannot_forge_log_lines_or_escape_codes(failing, caplog, retry, said):
    caplog.set_level(logging.INFO)

    app = failing(FORGED, retry)

    (line,) = [message for message in caplog.messages if said in message]
    assert line.endswith(": LookupError: no such customer: x…")
    # The traceback of a dead run ends in the whole error: escaped, and no line of its own.
    assert not any(text.startswith("2026-11-21") for text in caplog.text.splitlines())
    assert "\x1b" not in caplog.text
    assert "\u202e" not in caplog.text
    ((kept,),) = rows(inbox_at(app), "SELECT last_error FROM run")
    assert kept == f"LookupError: no such customer: {FORGED}"


def test_a_long_error_is_cut_in_the_log_and_whole_in_the_inbox(failing, caplog):
    app = failing("y" * 1_500, [60])

    (line,) = [message for message in caplog.messages if "failed on delivery" in message]
    assert len(line.split(": ", 1)[1]) <= 200
    ((kept,),) = rows(inbox_at(app), "SELECT last_error FROM run")
    assert kept.count("y") == 1_500


def test_why_a_delivery_is_quarantined_is_in_the_log(app_with, caplog):
    app = app_with(BILLHOOK_ENGINE="inline")

    deliver(app, b"[]", "PingTest")

    reason = "the body is JSON, but not an object"
    assert f"delivery 1 (PingTest) is quarantined: {reason}" in caplog.messages


def test_unhandled_types_are_logged_once_and_up_to_a_limit(app_with, caplog, monkeypatch):
    monkeypatch.setattr("billhook.engines.dispatcher.UNHANDLED_TYPES_LIMIT", 2)
    caplog.set_level(logging.INFO)
    app = app_with(handlers=[Handlers()], BILLHOOK_ENGINE="inline")

    for number in (1, 1, 2, 3, 1, 4):
        deliver(app, b"{}", f"MadeUp{number}")

    told = [message.split(":")[0] for message in caplog.messages if "no handler for" in message]
    assert told == ["no handler for MadeUp1", "no handler for MadeUp2"]
    assert rows(inbox_at(app), "SELECT count(*) FROM delivery WHERE state = 'done'") == [(6,)]


@pytest.mark.parametrize("registered", [False, True])
def test_a_thread_engine_without_any_handler_warns_at_its_start(app_with, caplog, registered):
    handlers = Handlers()
    if registered:
        handlers.on(PingTest, name="h")(lambda event: None)
    state = get_state(app_with(handlers=[handlers], BILLHOOK_ENGINE="thread"))

    state.start()
    state.close()

    warned = "no handler is registered: deliveries are stored and marked as done" in caplog.text
    assert warned is not registered
