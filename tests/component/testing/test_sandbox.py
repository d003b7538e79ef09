"""The billing service beside an app under test: what it sends is signed as the app wants it, and handled."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from pydantic import ValidationError

from billhook import Delivery, Handlers
from billhook.errors import SandboxError
from billhook.events import CustomerCreated, InvoiceApproved, MonthEndReport
from billhook.resources import Commitment
from billhook.testing import handled, refused, running_sandbox, settle


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"BILLHOOK_SIGNATURE": "timestamped-hmac", "BILLHOOK_SECRETS": ["a secret of some length"]},
    ],
)
def test_what_the_service_sends_is_handled(app_of, options):
    handlers = Handlers()
    handlers.on(CustomerCreated, name="welcome")(lambda event: None)
    handlers.on(MonthEndReport, name="report")(lambda event: None)
    app = app_of(handlers, **options)

    with running_sandbox(app) as sandbox:
        sandbox.call("POST", "/_sandbox/customers", {"name": "Acme", "externalId": "acme"})
        first = sandbox.flush()
        later = sandbox.advance("P40D") + sandbox.advance(timedelta(hours=1))

    assert [event.external_id for event in handled(app, "welcome")] == ["acme"]
    assert handled(app, "report")
    assert (first, later) == (1, len(handled(app, "report")))
    assert refused(app) == []


def test_a_handler_asks_the_service_that_runs_beside_it(app_of):
    handlers, asked = Handlers(), []

    @handlers.on(CustomerCreated, name="ask")
    def ask(event: CustomerCreated, delivery: Delivery) -> None:
        asked.append(delivery.client.request("GET", "/invoices"))

    app = app_of(handlers)
    with running_sandbox(app, [CustomerCreated]) as sandbox:
        sandbox.call("POST", "/_sandbox/customers", {"name": "Acme", "externalId": "acme"})
        sandbox.flush()
        expected = sandbox.client.request("GET", "/invoices")

    assert asked == [expected]


def test_only_the_events_that_were_asked_for_come(app_of):
    app = app_of()

    with running_sandbox(app, [InvoiceApproved]) as sandbox:
        sandbox.call("POST", "/_sandbox/customers", {"name": "Acme", "externalId": "acme"})
        sandbox.flush()

    assert settle(app) == 0
    assert app.extensions["billhook"].inbox.received(9) == []


def test_a_customer_is_billed_for_what_it_used_without_a_dictionary(app_of):
    handlers = Handlers()
    handlers.on(InvoiceApproved, name="book")(lambda event: None)
    app = app_of(handlers)

    with running_sandbox(app) as sandbox:
        acme = sandbox.create_customer("Acme", aliases=["acme"], currency="EUR")
        calls, peak = (
            sandbox.create_meter("calls", method="count", property=None),
            sandbox.create_meter("peak"),
        )
        commitment = Commitment(units=Decimal(2), price=Decimal(5), type="Units")
        contract = sandbox.subscribe(acme, calls, peak, price="0.50", commitment=commitment, currency="EUR")
        stored = [sandbox.use(acme, calls) for _ in range(3)] + [sandbox.use(acme, peak, Decimal("4.5"))]
        sandbox.advance("40d")
        [event] = handled(app, "book")
        invoice = sandbox.client.invoices.get(event.invoice_id)

    assert (acme.name, acme.aliases, acme.contacts[0].receive_invoice_email) == ("Acme", ["acme"], True)
    assert [product.catalog_product_id for product in contract.products] == [
        calls.product_id,
        peak.product_id,
    ]
    assert [len(one.valid_events) for one in stored] == [1] * 4
    assert invoice.customer_id == acme.id
    assert invoice.amount == Decimal("11.75")  # twice 5 for two units each; 1 and 2.5 units beyond, at 0.50


def test_a_wrong_field_of_a_customer_is_refused(app_of):
    with running_sandbox(app_of()) as sandbox:
        with pytest.raises(ValidationError, match="valid string"):
            sandbox.create_customer("Acme", currency=5)
        with pytest.raises(SandboxError, match="currency"):
            sandbox.create_customer("Acme", currency="dollars")
