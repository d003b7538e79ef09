"""Every event has every field that the specification lists, whatever raised it; and links to invoices.

Source: spec, "Events", the table: "errorMessage is added when isSuccessful is false", and nothing else is.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest
from werkzeug.test import TestResponse

from billhook.events import EVENT_TYPES
from billhook.sandbox.scenario import run_scenario
from support.sandbox import START, Running, running
from support.scenarios import contract, customer, fee


def listed(event_type: str) -> set[str]:
    return {str(field.alias) for field in EVENT_TYPES[event_type].model_fields.values()}


def visit(sandbox: Running, url: str) -> TestResponse:
    """A browser's request: without credentials."""
    return sandbox.sandbox.app().test_client().get(urlsplit(url).path)


def paid(sandbox: Running, **fields: Any) -> list[Any]:
    """What was told of an invoice that was sent and then paid."""
    contract(sandbox, customer(sandbox, **fields), products=[fee(12.5)])
    sandbox.advance("P33D")
    [invoice] = sandbox.ok("GET", "/invoices")["invoices"]
    sandbox.ok("POST", f"/_sandbox/invoices/{invoice['id']}/payments", {"outcome": "paid"})
    return [body for _, body in sandbox.raised("InvoicePaymentStatusChanged")]


@pytest.mark.timeout(240)
def test_all_events_that_business_raises_have_all_their_fields(sandbox: Running) -> None:
    call = lambda method, path, body: sandbox.sandbox.call(method, path, body)  # noqa: E731
    list(run_scenario(call, "http://127.0.0.1:9/hook", START))
    raised = sandbox.raised()

    assert {kind for kind, _ in raised} == set(EVENT_TYPES)
    for kind, body in raised:
        left_out = {"errorMessage"} if body.get("isSuccessful") is True else set()
        assert set(body) == listed(kind) - left_out, kind


def test_what_has_no_value_is_null(sandbox: Running) -> None:
    event = {"name": "x", "timestamp": "2026-01-09T00:00:00Z", "customerAlias": "who", "ref": "r"}
    sandbox.ok("PUT", "/events", {"events": [event]})
    pending, _ = paid(sandbox)
    [invoice] = sandbox.ok("GET", "/invoices?billingStatus=Paid")["invoices"]
    anonymous, created, agreed = (
        sandbox.raised(kind)[0][1] for kind in ("AnonymousCustomer", "CustomerCreated", "ContractCreated")
    )

    assert invoice["amount"] == 12.5
    assert anonymous["externalId"] is created["externalId"] is agreed["customer"]["externalId"] is None
    assert agreed["endDate"] is None
    assert (pending["billingStatus"], pending["paidAt"]) == ("PendingPayment", None)


def test_an_invoices_pdf_url_leads_to_a_page_that_can_be_printed_without_credentials(
    sandbox: Running,
) -> None:
    told = paid(sandbox, name="Ada & <script>alert(1)</script>", legalName=None)
    urls = {each["invoicePdfUrl"] for each in told}
    [invoice] = sandbox.ok("GET", "/invoices")["invoices"]
    [url] = urls
    page = visit(sandbox, url)

    assert url.startswith(f"{sandbox.url}/_sandbox/pages/invoices/{invoice['id']}/")
    assert page.status_code == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert invoice["invoiceNumber"] in page.text
    assert page.text.count("12.50") >= 3
    assert "<bdi>Fee</bdi>" in page.text
    assert "Ada &amp; &lt;script&gt;" in page.text
    assert "<script>" not in page.text


def test_an_invoices_page_cannot_be_guessed(sandbox: Running) -> None:
    url = paid(sandbox)[0]["invoicePdfUrl"]
    address, _, proof = url.rpartition("/")
    guesses = [proof[:-1], proof[:-1] + ("0" if proof[-1] != "0" else "1"), proof.upper(), "x", "%FF"]
    refused = {guess: visit(sandbox, f"{address}/{guess}").status_code for guess in guesses}
    other = visit(sandbox, f"{address.rpartition('/')[0]}/inv_other/{proof}").status_code
    control = visit(sandbox, url).status_code

    assert len(proof) == 40
    assert refused == dict.fromkeys(guesses, 404)
    assert (other, control) == (404, 200)


def test_base_url_is_used_in_event_links() -> None:
    for base_url in ("https://sandbox.example", "https://sandbox.example/"):
        with running(base_url=base_url) as sandbox:
            told = paid(sandbox)

        assert told[0]["invoicePdfUrl"].startswith("https://sandbox.example/_sandbox/pages/invoices/inv_")
