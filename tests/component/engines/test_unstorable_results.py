"""One result that the database refuses: all others are stored, and it is, with its text in ASCII."""

from __future__ import annotations

import pytest

from billhook import Handlers
from billhook.events import InvoiceApproved, PingTest
from billhook.extension import get_state
from support.apps import deliver, inbox_at
from support.engines import celery_engine
from support.inbox_view import change, rows
from support.processes import until
from support.signing import signed

REFUSED = {
    "a text": "a check mark \u2713",
    "a constraint": "always refused \u2713",
    "a row too large": "too long " * 1000,
}


def refuse(where, text, at_most):
    """Have the database refuse errors with `text`, and those that are longer."""
    bad = f"instr(NEW.error, '{text}') > 0 OR length(NEW.error) > {at_most}"
    if str(where).startswith("postgresql"):
        condition = bad.replace("instr", "strpos").replace("NEW.", "")
        change(where, f"ALTER TABLE failure ADD CONSTRAINT refuse CHECK (NOT ({condition}))")
    else:
        refusal = "SELECT RAISE(ABORT, 'refused')"
        change(where, f"CREATE TRIGGER refuse BEFORE INSERT ON failure WHEN {bad} BEGIN {refusal}; END")


@pytest.mark.parametrize("kind", REFUSED)
def test_the_others_are_stored_and_it_is_in_ascii(running, inbox_url, kind):
    handlers, handled = Handlers(), []

    @handlers.on(InvoiceApproved, name="fails", retry=[])
    def fails(event):
        raise ValueError(REFUSED[kind])

    handlers.on(PingTest, name="works")(lambda event, delivery: handled.append(delivery.id))
    app = running(handlers, start_now=False, BILLHOOK_INBOX_URL=inbox_url, BILLHOOK_LEASE_SECONDS=600)
    refuse(inbox_at(app), "always" if kind == "a constraint" else "\u2713", 1_000)
    body = b'{"date": "2026-01-15T09:30:00Z", "invoiceId": "inv_1"}'
    for number in range(10):
        deliver(app, headers=signed(message_id=f"ping {number}"))
        if number == 5:
            deliver(app, body, headers=signed(body, event_type="InvoiceApproved", message_id="bad"))

    running.start(app)
    done = "SELECT count(*) FROM run WHERE state = 'succeeded'"
    until(lambda: rows(inbox_at(app), done) == [(10,)], 10)

    failed = "SELECT state, last_error FROM run WHERE handler = 'fails'"
    ((_, error),) = until(lambda: [row for row in rows(inbox_at(app), failed) if row[0] == "dead"], 10)
    told = {"a text": "ValueError: a check mark \\u2713", "a row too large": "ValueError: too long"}
    assert error.startswith(told.get(kind, "the database refused the text of this error"))
    assert (error.isascii(), len(error) <= 500, len(handled)) == (True, True, 10)


@pytest.mark.parametrize("engine", ["inline", "celery"])
def test_an_engine_without_a_loop_stores_it_in_ascii_too(app_with, inbox_url, engine):
    handlers, calls = Handlers(), []

    @handlers.on(PingTest, name="fails", retry=[])
    def fails(event):
        calls.append(1)
        raise ValueError(REFUSED["a text"])

    app = app_with(
        handlers=[handlers],
        BILLHOOK_INBOX_URL=inbox_url,
        BILLHOOK_ENGINE="inline" if engine == "inline" else "worker",
    )
    refuse(inbox_at(app), "\u2713", 1_000)
    deliver(app)
    if engine == "celery":
        celery_engine(app).execute(1)

    failed = "SELECT state, last_error FROM run"
    assert rows(inbox_at(app), failed) == [("dead", "ValueError: a check mark \\u2713")]
    assert len(calls) == 1
    assert get_state(app).handle_due() == 0
