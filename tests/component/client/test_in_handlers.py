"""`delivery.client`: the service's API in a handler, of this app's options, one for each process."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from billhook import Delivery, Handlers
from billhook.client import BillingClient
from billhook.errors import ConfigError
from billhook.events import InvoiceApproved
from billhook.extension import get_state
from billhook.resources import Invoice, sample
from support.apps import deliver
from support.billing_service import CLIENT_ID, REFRESH_TOKEN, answered
from support.inbox_view import value
from support.processes import in_children, together
from support.signing import APPROVED


@pytest.fixture(autouse=True)
def invoice(service) -> None:
    service.always("GET /invoices/inv_1", answered(200, {"invoice": json.loads(sample(Invoice).to_json())}))


@pytest.fixture
def options(service) -> dict[str, str]:
    return {
        "BILLHOOK_API_URL": service.url,
        "BILLHOOK_API_CLIENT_ID": CLIENT_ID,
        "BILLHOOK_API_REFRESH_TOKEN": REFRESH_TOKEN,
        "BILLHOOK_ENGINE": "inline",
    }


def handled(app_with, options, function):
    """An app with one handler, and what happened to one delivery of it."""
    handlers = Handlers()
    handlers.on(InvoiceApproved, name="one", retry=[])(function)
    app = app_with(handlers=[handlers], **options)
    deliver(app, APPROVED, "InvoiceApproved")
    get_state(app).handle_due()
    return app


def test_a_handler_fetches_an_invoice_with_the_deliverys_client(app_with, service, options):
    amounts = []

    def store(event: InvoiceApproved, delivery: Delivery) -> None:
        assert isinstance(delivery.client, BillingClient)
        amounts.append(delivery.client.invoices.get(event.invoice_id).amount)

    handled(app_with, options, store)

    assert [str(amount) for amount in amounts] == ["1249.9"]
    assert service.lines(logins=True) == ["POST /login", "GET /invoices/inv_1"]


def test_a_client_without_options_fails_the_attempt_and_names_them(app_with, tmp_path, monkeypatch):
    monkeypatch.setenv("BILLHOOK_TEST_ANY", "1")  # without any variable the message says so, too

    def store(event: InvoiceApproved, delivery: Delivery) -> None:
        delivery.client.invoices.get(event.invoice_id)

    handled(app_with, {"BILLHOOK_ENGINE": "inline"}, store)

    assert value(tmp_path / "billhook.db", "SELECT last_error FROM run") == (
        "ConfigError: calls to the billing service's API need options: set BILLHOOK_API_URL, "
        "BILLHOOK_API_CLIENT_ID, BILLHOOK_API_REFRESH_TOKEN (or BILLHOOK_API_REFRESH_TOKEN_FILE)"
    )


def test_all_handlers_and_threads_of_a_process_share_one(app_with, options):
    app_state = get_state(app_with(**options))

    clients = together(20, lambda _: app_state.client())

    assert len({id(client) for client in clients}) == 1
    assert app_state.client() is clients[0]


def test_a_forked_process_makes_its_own_client(app_with, service, options):
    app_state = get_state(app_with(**options))
    app_state.client().auth.login()

    def fetch(_: int) -> bytes:
        return str(app_state.client().invoices.get("inv_1").amount).encode()

    assert in_children(2, fetch) == [b"1249.9"] * 2
    assert service.logins == 3


def test_the_client_is_closed_with_the_app(app_with, options):
    app_state = get_state(app_with(**options))
    client = app_state.client()

    app_state.close()

    with pytest.raises(ConfigError, match="this BillingClient is closed"):
        client.auth.login()


def test_a_delivery_made_by_hand_has_no_client():
    delivery = Delivery(1, "k", "default", "PingTest", 1, datetime.now(UTC), None, b"{}", {})

    with pytest.raises(ConfigError, match="this delivery was made by hand and not by an app"):
        _ = delivery.client


def test_a_delivery_shows_nothing_of_its_client_and_is_the_same_without():
    facts = (1, "k", "default", "PingTest", 1, datetime(2026, 1, 1, tzinfo=UTC), None, b"{}", {})

    assert Delivery(*facts) == Delivery(*facts, make_client=object)
    assert "client" not in repr(Delivery(*facts, make_client=object))
