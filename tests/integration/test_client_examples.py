"""The example that calls the service's API runs as its README says, against a service that answers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from billhook.events import InvoiceApproved, PaymentFailed
from billhook.events import sample as event_sample
from billhook.resources import Customer, Invoice, sample
from support import examples
from support.billing_service import (
    BROKEN,
    CLIENT_ID,
    REFRESH_TOKEN,
    Service,
    a_server,
    answered,
    error,
    service_on,
)
from support.processes import output_of, until

COMMAND = "billhook serve fetching.py --bind 127.0.0.1:8000"
INVOICE = json.loads(sample(Invoice, id="inv_3007").to_json())
CUSTOMER = json.loads(sample(Customer, id="cus_1042").to_json())


@pytest.fixture
def service(tmp_path, monkeypatch) -> Iterator[Service]:
    """The service, and its credentials in the environment of the example's commands."""
    token = tmp_path / "token.txt"
    token.write_text(REFRESH_TOKEN + "\n")
    with a_server() as http:
        running = service_on(http)
        options = {
            "BILLHOOK_API_URL": running.url,
            "BILLHOOK_API_CLIENT_ID": CLIENT_ID,
            "BILLHOOK_API_REFRESH_TOKEN_FILE": str(token),
        }
        plain = examples.environment()
        monkeypatch.setattr(examples, "environment", lambda: {**plain, **options})
        running.always("GET /invoices/inv_3007", answered(200, {"invoice": INVOICE}))
        running.always("PUT /customers/cus_1042", answered(200, {"customer": CUSTOMER}))
        yield running


@pytest.mark.slow
def test_handlers_fetch_what_their_events_are_about(tmp_path, service):
    with examples.running("resources", COMMAND, tmp_path) as server:
        examples.replay(server)

        stored = server.folder / "invoices" / "1.json"
        until(stored.exists, 15)
        assert json.loads(stored.read_text()) == INVOICE
        assert service.logins == 1
        assert service.taken[-1].json == {}  # an update of nothing

        server.deliver(event_sample(InvoiceApproved, invoice_id="inv_gone"))
        states = "SELECT state, last_error FROM run WHERE delivery_id = 3"
        until(lambda: states_of(server, states) == "discarded", 15)

        limited = error(429, "rate_limit_error", "rate_limit_exceeded", Retry_After="3600")
        service.always("GET /invoices/inv_later", limited)
        server.deliver(event_sample(InvoiceApproved, invoice_id="inv_later"))
        waiting = "SELECT state FROM run WHERE delivery_id = 4 AND attempts = 1"
        until(lambda: states_of(server, waiting) == "due", 15)

        service.answer("PUT /customers/cus_1042", BROKEN)
        server.deliver(event_sample(PaymentFailed, customer_id="cus_1042", failure_reason=None))
        note = server.folder / "failed_payments" / "5.txt"
        until(lambda: note.exists() and note.read_text(), 15)
        assert note.read_text() == "Acme Ltd (cus_1042) owes 1249.90 USD: None\n"

        service.always("POST /webhook", answered(200, {}))
        subscribe = ["subscribe", "fetching.py", "--callback-url", "https://shop.example/hook"]
        assert "the credentials are valid" in billhook(server, "api", "login")
        assert billhook(server, *subscribe, "--dry-run").count("would be subscribed") == 2
        assert billhook(server, *subscribe).count(" subscribed") == 2


def billhook(server: examples.Server, *arguments: str) -> str:
    return output_of("billhook", *arguments, cwd=server.folder, env=examples.environment())


def states_of(server: examples.Server, query: str) -> str | None:
    rows = server.rows("billhook.db", query)
    return rows[0][0] if rows else None
