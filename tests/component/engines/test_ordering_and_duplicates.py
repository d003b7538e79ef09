"""Ordered handlers, the newest only, and twins: from a stored delivery to its end; the clock stands still."""

from __future__ import annotations

import logging
import threading

import pytest

from billhook import Handlers
from billhook.engines.first_runs import backfill
from billhook.errors import ConfigError
from billhook.events import InvoiceApproved, InvoicePaymentStatusChanged, PingTest, sample
from billhook.extension import get_state
from billhook.handlers import ConnectedHandlers, connect
from billhook.inbox import RunOptions, StoredDelivery
from support.apps import deliver, inbox_at
from support.engines import handling, plan_and_claim, runs, states, status_changed
from support.inbox_view import incoming, rows
from support.processes import until


def changed(app, status="Paid", paid="10.00", **more):
    return deliver(app, status_changed("inv_1", status, paid), "InvoicePaymentStatusChanged", **more)


# --- order ----------------------------------------------------------------------------------------


def test_a_superseded_delivery_is_logged_and_is_no_success(stored_only, observe, caplog):
    handlers, calls = Handlers(), []
    options = {"ordered_by": "invoice_id", "newest_only": True}
    handlers.on(InvoicePaymentStatusChanged, name="h", **options)(
        lambda event: calls.append(event.billing_status)
    )
    app = stored_only(handlers)
    for status in ("Pending", "Overdue", "Paid"):
        changed(app, status)
    succeeded = observe(app, "handler_succeeded")

    with caplog.at_level(logging.INFO, "billhook.engines"):
        get_state(app).handle_due()

    assert (calls, len(succeeded), states(app)) == (["Paid"], 1, ["done"] * 3)
    assert runs(app, "state, attempts") == [("discarded", 0)] * 2 + [("succeeded", 1)]
    assert "delivery 1 is superseded by delivery 3: handler h not called" in caplog.text


def test_newest_only_needs_a_field_to_compare():
    with pytest.raises(ConfigError, match="newest_only needs ordered_by"):
        Handlers().on(PingTest, newest_only=True)


def test_inline_who_finishes_handles_what_waited_behind_it(shop):
    handlers, release, calls = Handlers(), threading.Event(), []

    @handlers.on(InvoicePaymentStatusChanged, name="h", ordered_by="invoice_id")
    def handle(event):
        calls.append(event.billing_status)
        if event.billing_status == "Overdue":
            release.wait(20)

    app = shop(handlers)
    first = threading.Thread(target=changed, args=(app,), kwargs={"status": "Overdue"})
    first.start()
    until(lambda: calls, 20)
    changed(app, status="Paid")
    changed(app, status="None")
    while_at_work = list(calls)
    release.set()
    first.join(20)

    assert while_at_work == ["Overdue"]
    assert calls == ["Overdue", "Paid", "None"]


@pytest.mark.parametrize("limit", [1, 100])
def test_the_inline_engine_handles_earlier_deliveries_first(shop, monkeypatch, limit):
    handlers, calls = Handlers(), []

    @handlers.on(InvoicePaymentStatusChanged, name="h", ordered_by="invoice_id")
    def handle(event, delivery):
        calls.append(delivery.key)

    app = shop(handlers)
    inbox = get_state(app).inbox
    monkeypatch.setattr(inbox.database, "plan_rows", limit)
    for key in ("m1", "m2"):  # whoever took these died before it could plan them
        inbox.put(incoming(key, event_type="InvoicePaymentStatusChanged", body=status_changed()))

    changed(app, message_id="m3")

    assert calls == ["m1", "m2", "m3"]


# --- twins ----------------------------------------------------------------------------------------

IDENTITY = ("invoice_id", "billing_status", "amount_paid")


@pytest.fixture
def known(shop):
    """An app whose handler knows a delivery again, and what it was called with."""
    handlers, calls = Handlers(), []

    @handlers.on(InvoicePaymentStatusChanged, name="h", identity=IDENTITY, identity_window_seconds=3600)
    def handle(event, delivery):
        calls.append(delivery.key)

    return shop(handlers), calls


def test_a_retry_under_a_new_id_is_accepted_and_not_handled_again(known, observe, caplog):
    app, calls = known
    told = observe(app, "delivery_twin", "handler_succeeded")

    with caplog.at_level(logging.INFO, "billhook.engines"):
        changed(app, message_id="m1")
        again = changed(app, paid="10.0", message_id="m2")

    assert again.json == {"status": "accepted"}
    assert calls == ["m1"]
    about = {"event_type": "InvoicePaymentStatusChanged", "handler": "h"}
    assert [name for name, _ in told] == ["handler_succeeded", "delivery_twin"]
    assert told[1][1] == {**about, "delivery_id": 2, "twin_of": 1}
    (record,) = [record for record in caplog.records if "content duplicate" in record.message]
    assert record.message == "delivery 2 is a content duplicate of delivery 1: handler h not called"
    assert record.levelname == "INFO"
    assert states(app) == ["done", "done"]


def test_after_the_window_the_same_is_handled_again(known, frozen_clock):
    app, calls = known

    changed(app, message_id="m1", at=frozen_clock.now())
    frozen_clock.advance(seconds=3601)
    changed(app, message_id="m2", at=frozen_clock.now())

    assert calls == ["m1", "m2"]


# --- a fresh and a stale report of one run --------------------------------------------------------


@pytest.mark.usefixtures("inbox_url")
def test_only_the_result_with_the_current_token_is_signalled(shop, observe, frozen_clock, caplog):
    app = shop(handling(lambda event: 1 / 0, name="h", retry=[]))
    app_state = get_state(app)
    app_state.inbox.put(incoming("m1"))
    now = frozen_clock.now()
    (stale,), (fresh,) = (plan_and_claim(app, "w", now, lease_seconds=seconds) for seconds in (0, 30))
    reports = [app_state.dispatcher.crashed(stale, OSError()), app_state.dispatcher.attempt(fresh)]
    told = observe(app, "handler_dead", "handler_retrying")

    with app_state.inbox.transaction("w") as transaction:
        settled = transaction.settle([report.run_result for report in reports])
    app_state.dispatcher.report(transaction, reports, settled)

    assert settled == {(fresh.run_id, fresh.token)}
    assert [(name, facts["delivery"].attempt) for name, facts in told] == [("handler_dead", 2)]
    assert (
        f"run {stale.run_id} of handler h is no longer this worker's: its result is not stored" in caplog.text
    )
    assert "ZeroDivisionError" in rows(inbox_at(app), "SELECT error FROM failure ORDER BY id")[-1][0]


@pytest.mark.parametrize("ordered_by", [None, "invoice_id"])
def test_the_result_of_an_ordered_run_says_so_whatever_it_is(shop, frozen_clock, ordered_by):
    """Settling takes the lock of the orders by it."""
    app = shop(handling(lambda event: None, InvoicePaymentStatusChanged, name="h", ordered_by=ordered_by))
    state, now = get_state(app), frozen_clock.now()
    state.inbox.put(incoming("m1", event_type="InvoicePaymentStatusChanged", body=status_changed()))
    (claim,) = plan_and_claim(app, "w", now)

    results = [
        state.dispatcher.attempt(claim).run_result,
        state.dispatcher.crashed(claim, OSError()).run_result,
        claim.interrupted(now, now),
    ]

    assert [result.ordered for result in results] == [ordered_by is not None] * 3


# --- newcomers ------------------------------------------------------------------------------------


class Sender:
    """Stands for an app: signals need an object they can refer to weakly."""


def stored(event_type, content, clock):
    return StoredDelivery(1, "default", "k", event_type, content, "{}", None, clock.now())


@pytest.fixture
def newer():
    """ConnectedHandlers with `new`, which was `old` once, for two event types."""
    handlers, sender = Handlers(), Sender()
    handlers.on(
        InvoicePaymentStatusChanged, InvoiceApproved, name="new", aliases=["old"], ordered_by="invoice_id"
    )(lambda event: None)
    connect(handlers.freeze(), sender)
    connected = ConnectedHandlers(sender)
    connected.kept = sender
    return connected


def test_backfill_gives_run_options_for_the_handlers_types(newer, frozen_clock):
    takes = backfill(newer, "new")

    changed_one = stored("InvoicePaymentStatusChanged", status_changed(), frozen_clock)
    assert takes(changed_one, ["other"]) == RunOptions('["default","inv_1"]')
    assert takes(changed_one, ["old"]) is None  # handled under an alias
    assert takes(stored("PingTest", b"{}", frozen_clock), []) is None
    assert takes(stored("InvoiceApproved", b"{", frozen_clock), []) is None  # unreadable


def test_backfill_skips_deliveries_of_other_sources(frozen_clock):
    sender = Sender()
    connect(handling(lambda event: None, InvoiceApproved, name="new", sources=("eu",)).freeze(), sender)
    takes = backfill(ConnectedHandlers(sender), "new")
    approved = sample(InvoiceApproved).model_dump_json(by_alias=True).encode()
    delivery = stored("InvoiceApproved", approved, frozen_clock)

    assert takes(delivery, []) is None
    assert takes(delivery._replace(source="eu"), []) == RunOptions()


@pytest.mark.parametrize("name", ["nobody", "old"])
def test_backfill_of_an_unknown_handler_is_none(newer, name):
    assert backfill(newer, name) is None
