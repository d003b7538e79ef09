"""The billing service beside an app under test: what it sends is signed as the app wants it, and handled."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billhook import Delivery, Handlers
from billhook.events import CustomerCreated, InvoiceApproved, MonthEndReport
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
