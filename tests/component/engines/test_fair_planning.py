"""A backlog of one type holds up no other: what is planned before the rest of it. On both databases."""

from __future__ import annotations

import pytest

from billhook import Handlers
from billhook.engines.serial import SerialWorker
from billhook.events import (
    CustomerCreated,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    InvoiceSendFailed,
    PingTest,
    sample,
)
from billhook.extension import get_state
from support.apps import inbox_at
from support.inbox_view import incoming, value
from support.processes import until
from support.query_plans import fill_unread

BACKLOG = 4_000
HALF = BACKLOG // 2


class Observed:
    """Handlers of a limited type and of others; of each call the type, and how much was unread then."""

    def __init__(self, **options):
        self.calls, self.app, self.handlers = [], None, Handlers()
        self.handlers.on(PingTest, name="limited", rate="100/min")(lambda event: None)
        types = (CustomerCreated, InvoiceApproved, InvoicePaymentStatusChanged)
        if options:
            self.handlers.on(*types[1:], name="ordered", **options)(self.note)
        else:
            self.handlers.on(*types, name="note")(self.note)

    def note(self, event, delivery):
        query = "SELECT count(*) FROM delivery WHERE state = 'received' AND key LIKE '% %'"
        self.calls.append((delivery.event_type, value(inbox_at(self.app), query)))


def put(app, *types):
    bodies = [(each.type, sample(each).to_json()) for each in types]
    inbox = get_state(app).inbox
    return [inbox.put(incoming(name, event_type=name, body=body)).delivery_id for name, body in bodies]


@pytest.mark.usefixtures("inbox_url")
@pytest.mark.parametrize("options", [{}, {"ordered_by": "invoice_id"}])
def test_deliveries_are_handled_before_the_backlog_of_another_type_is_read(running, options):
    observed = Observed(**options)
    app = observed.app = running(observed.handlers, start_now=False, BILLHOOK_ENGINE="worker")
    fill_unread(inbox_at(app), BACKLOG)
    put(app, InvoiceApproved, InvoicePaymentStatusChanged)

    running.start(app, 1)
    until(lambda: len(observed.calls) == 2, 30)

    assert [event_type for event_type, _ in observed.calls] == [
        "InvoiceApproved",
        "InvoicePaymentStatusChanged",
    ]
    assert min(unread for _, unread in observed.calls) > HALF


@pytest.mark.usefixtures("inbox_url")
def test_a_delivery_waits_for_a_backlog_of_types_that_share_its_ordered_handler(running):
    observed = Observed(ordered_by="invoice_id")
    app = observed.app = running(observed.handlers, start_now=False, BILLHOOK_ENGINE="worker")
    fill_unread(inbox_at(app), BACKLOG, "InvoiceApproved")  # quarantined, as {} is none
    put(app, InvoicePaymentStatusChanged)

    running.start(app, 1)
    until(lambda: observed.calls, 60)

    assert observed.calls == [("InvoicePaymentStatusChanged", 0)]


def test_a_serial_worker_plans_a_delivery_of_an_ordered_handler_before_the_backlog(stored_only):
    observed = Observed(ordered_by="invoice_id")
    app = observed.app = stored_only(observed.handlers)
    fill_unread(inbox_at(app), BACKLOG)
    (last,) = put(app, InvoicePaymentStatusChanged)
    state = get_state(app)
    announced = []
    worker = SerialWorker(
        state.inbox, state.dispatcher, lease_seconds=30, announce=announced.extend, settle_seconds=1
    )
    worker.handle(last)
    worker.close()

    assert [event_type for event_type, _ in observed.calls] == ["InvoicePaymentStatusChanged"]
    assert observed.calls[0][1] > HALF


def test_types_are_one_queue_where_an_ordered_handler_gets_them(stored_only):
    handlers = Handlers()
    for name, types in {
        "a": [InvoiceApproved, InvoicePaymentStatusChanged],
        "b": [CustomerCreated],
        "c": [InvoiceSendFailed, InvoiceApproved],
    }.items():
        field = "customer_id" if name == "b" else "invoice_id"
        handlers.on(*types, name=name, ordered_by=field)(lambda event: None)
    handlers.on(PingTest, name="d")(lambda event: None)
    queue_of = get_state(stored_only(handlers)).dispatcher.queue_of

    invoices = {
        queue_of(name) for name in ("InvoiceApproved", "InvoicePaymentStatusChanged", "InvoiceSendFailed")
    }
    assert len(invoices) == 1
    assert len(invoices | {queue_of("CustomerCreated"), queue_of(""), None}) == 4
    assert [queue_of(name) for name in ("PingTest", "Unknown", "unknown_event")] == [None] * 3


def test_a_type_that_is_not_read_yet_is_a_queue_only_beside_ordered_handlers(stored_only):
    assert get_state(stored_only(Observed().handlers)).dispatcher.queue_of("") is None
