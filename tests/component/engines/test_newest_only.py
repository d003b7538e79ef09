"""Handlers that need the newest delivery of a key only."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from billhook import Handlers, signals
from billhook.errors import ConfigError
from billhook.events import InvoicePaymentStatusChanged, PaymentFailed
from billhook.extension import get_state
from billhook.inbox.operations import replay
from support.apps import deliver
from support.engines import plan, plan_and_claim, states, status_changed
from support.engines import runs as runs_of


def changed(app, status, invoice="inv_1"):
    """Deliver that the status of an invoice has changed."""
    reply = deliver(app, status_changed(invoice, status), "InvoicePaymentStatusChanged")
    assert reply.status_code == 200


def runs(app):
    return runs_of(app, "delivery_id, state, last_error")


def recording(calls, failing=None, **options):
    """Return handlers that note each status they are called with, and fail at the one that is `failing`."""
    handlers = Handlers()
    options = {"ordered_by": "invoice_id", "newest_only": True, **options}

    @handlers.on(InvoicePaymentStatusChanged, name="follow", **options)
    def follow(event):
        calls.append(event.billing_status)
        if event.billing_status == failing:
            raise ValueError("not today")

    return handlers


def test_of_several_that_wait_only_the_newest_is_handled(stored_only, caplog):
    calls, succeeded = [], []
    app = stored_only(recording(calls))
    for status in ("Pending", "Overdue", "Paid"):
        changed(app, status)
    changed(app, "Pending", invoice="inv_2")

    observing = signals.handler_succeeded.connected_to(lambda _, **facts: succeeded.append(facts), sender=app)
    with observing, caplog.at_level(logging.INFO, "billhook.engines"):
        get_state(app).handle_due()

    assert sorted(calls) == ["Paid", "Pending"]
    assert runs(app) == [
        (1, "discarded", "superseded by delivery 3"),
        (2, "discarded", "superseded by delivery 3"),
        (3, "succeeded", None),
        (4, "succeeded", None),
    ]
    assert states(app) == ["done"] * 4
    assert runs_of(app, "attempts") == [(0,), (0,), (1,), (1,)]
    assert len(succeeded) == 2
    assert "delivery 1 is superseded by delivery 3: handler follow not called" in caplog.text


def test_one_that_waits_for_another_attempt_is_superseded_at_once(stored_only):
    calls = []
    app = stored_only(recording(calls, failing="Pending"))
    changed(app, "Pending")
    get_state(app).handle_due()
    assert runs(app) == [(1, "due", "ValueError: not today")]

    changed(app, "Paid")
    get_state(app).handle_due()  # ten minutes before the other attempt

    assert calls == ["Pending", "Paid"]
    assert runs(app) == [(1, "discarded", "superseded by delivery 2"), (2, "succeeded", None)]


def test_one_that_fails_while_a_newer_one_waits_is_not_tried_again(stored_only, clock):
    handlers, calls = Handlers(), []

    @handlers.on(InvoicePaymentStatusChanged, name="follow", ordered_by="invoice_id", newest_only=True)
    def follow(event):
        calls.append(event.billing_status)
        if event.billing_status == "Pending":
            changed(app, "Paid")
            plan(app, clock.now())
            raise ValueError("not today")

    app = stored_only(handlers)
    changed(app, "Pending")
    get_state(app).handle_due()

    assert calls == ["Pending", "Paid"]
    assert runs(app) == [(1, "discarded", "superseded by delivery 2"), (2, "succeeded", None)]


def test_an_interrupted_run_keeps_its_time_though_a_newer_one_waits(stored_only, clock):
    calls = []
    app = stored_only(recording(calls))
    changed(app, "Pending")
    state = get_state(app)
    later = clock.now() + timedelta(seconds=30)
    (claim,) = plan_and_claim(app, "a worker that stops", clock.now())
    with state.inbox.transaction("a worker that stops") as transaction:
        transaction.settle([state.dispatcher.interrupted(claim, later)])
    changed(app, "Paid")

    state.handle_due()  # its process may not have ended yet

    assert calls == []
    assert [state for _, state, _ in runs(app)] == ["due", "waiting"]


def test_of_several_that_are_replayed_only_the_newest_is_handled_again(stored_only, clock):
    calls = []
    app = stored_only(recording(calls))
    state = get_state(app)
    for status in ("Pending", "Overdue", "Paid"):
        changed(app, status)
        state.handle_due()
    calls.clear()

    done = replay(state.inbox, [1, 2, 3], clock.now(), all_handlers=True)

    assert done.deliveries == 3
    assert [state for _, state, _ in runs(app)] == ["discarded", "discarded", "due"]
    assert states(app) == ["done", "done", "planned"]
    state.handle_due()
    assert calls == ["Paid"]
    replay(state.inbox, [1], clock.now(), all_handlers=True)  # no newer one waits
    state.handle_due()
    assert calls == ["Paid", "Pending"]


def test_one_that_is_claimed_is_called_however_fast_newer_ones_come(stored_only, clock):
    """Else none would ever be called where they come faster than a worker gets to them."""
    calls = []
    app = stored_only(recording(calls))
    for status in ("Pending", "Overdue", "Paid"):
        changed(app, status)
        claims = plan_and_claim(app, "a slow worker", clock.now())
        changed(app, "Uncollectible")
        plan(app, clock.now())
        for claim in claims:
            result = get_state(app).dispatcher.attempt(claim)
            with get_state(app).inbox.transaction("a slow worker") as transaction:
                transaction.settle([result.run_result])

    assert calls == ["Pending", "Overdue", "Paid"]


def test_newest_only_needs_a_field_to_compare():
    with pytest.raises(ConfigError, match="newest_only needs ordered_by"):
        Handlers().on(PaymentFailed, newest_only=True)
