"""Invoices: issued, listed, approved and sent.

Source: spec, "Resources and their fields", Invoice; "Endpoints", Invoices; "States and transitions".
"""

from __future__ import annotations

from typing import Any

import pytest

from support.sandbox import NOT_FOUND, Running
from support.scenarios import (
    STARTED,
    approve,
    contract,
    customer,
    cycle,
    fee,
    invoices,
)

CENTS = {"overage": 0, "discount": 0, "creditsUsed": 0, "tax": 0}


def contact(email: str, **more: Any) -> dict[str, Any]:
    return {"name": "Ada", "email": email, "receiveInvoiceEmail": True, **more}


def issued(sandbox: Running, owner: str | None = None, **terms: Any) -> Any:
    """The first invoice of a new contract, not approved yet."""
    made = contract(sandbox, owner, **{"products": [fee(100)], **terms})
    sandbox.advance("P1M")
    return next(each for each in invoices(sandbox) if each["contractId"] == made["id"])


def test_an_invoice_bills_the_cycle_with_a_line_for_each_product(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Invoice."""
    owner = customer(sandbox, currency="EUR")
    invoice = issued(sandbox, owner, products=[fee(100), fee(0.125)])
    read = sandbox.ok("GET", f"/invoices/{invoice['id']}")["invoice"]

    lines = [{"total": 100, "subtotal": 100, **CENTS}, {"total": 0.12, "subtotal": 0.12, **CENTS}]
    assert invoice["customerId"] == owner
    assert invoice["name"] == "Deal, 2026-01-10 to 2026-02-10"
    assert invoice["billingStatus"] == "None"
    assert invoice["billingCycle"] == {"startTime": STARTED, "endTime": "2026-02-10T12:00:00Z"}
    assert invoice["amount"] == 100.12
    assert invoice["revenueBreakdown"] == {"total": 100.12, "subtotal": 100.12, **CENTS}
    assert [line["revenueBreakdown"] for line in invoice["lineItems"]] == lines
    assert {line["invoiceId"] for line in invoice["lineItems"]} == {invoice["id"]}
    assert (invoice["currency"], invoice["accountId"]) == ("EUR", "sandbox")
    assert not {"dueDate", "paymentInfo", "approvedAt", "amountPaid"} & set(invoice)
    assert read == invoice


@pytest.mark.slow
def test_invoices_are_numbered_anew_in_each_year(sandbox: Running) -> None:
    contract(sandbox, products=[fee(1, scheduling=cycle("Months", 6))])
    sandbox.advance("P18M")
    numbers = [each["invoiceNumber"] for each in invoices(sandbox)]

    assert numbers == ["2026-0001", "2027-0001", "2027-0002"]


def test_invoices_are_listed_by_filter(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /invoices."""
    acme, other = customer(sandbox), customer(sandbox, name="Other")
    contract(sandbox, acme, products=[fee(10)])
    contract(sandbox, other, products=[fee(20)])
    sandbox.advance("P70D")

    everything = invoices(sandbox)
    assert [each["customerId"] for each in everything] == [acme, other, acme, other]
    filters: list[tuple[dict[str, str], list[int]]] = [
        ({"customerId": other}, [1, 3]),
        ({"customerId": "cus_none"}, []),
        ({"billingStatus": "PendingPayment"}, [2, 3]),
        ({"billingStatus": "None"}, []),
        ({"issuedAfter": "2026-03-10T12:00:00Z"}, [2, 3]),
        ({"issuedBefore": "2026-03-10T12:00:00Z"}, [0, 1]),
        ({"issuedAfter": "2026-02-10", "issuedBefore": "2026-02-11", "customerId": acme}, [0]),
    ]
    for query, expected in filters:
        assert invoices(sandbox, **query) == [everything[number] for number in expected], query


def test_an_invoice_that_is_not_there_is_not_found(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /invoices/{invoiceId}."""
    answer = sandbox.call("GET", "/invoices/inv_none")
    done = [sandbox.call("POST", f"/_sandbox/invoices/inv_none/{verb}") for verb in ("approve", "send")]

    assert answer.error() == NOT_FOUND
    assert [each.error() for each in done] == [NOT_FOUND, NOT_FOUND]


def test_an_approved_invoice_is_sent_to_those_who_receive_them_and_waits_for_payment(
    sandbox: Running,
) -> None:
    """Source: spec, "Resources and their fields", Customer, contacts; "Events", CustomerPortalLinkSent."""
    contacts = [
        contact("ada@acme.example"),
        contact("bob@acme.example", receiveInvoiceEmail=False),
        {"name": "Cid", "email": "cid@acme.example"},
        {"name": "Dee", "receiveInvoiceEmail": True},
        contact("eve@acme.example"),
    ]
    owner = customer(sandbox, contacts=contacts)
    invoice = approve(sandbox, issued(sandbox, owner))
    links = [body for _, body in sandbox.raised("CustomerPortalLinkSent")]
    changed = [body for _, body in sandbox.raised("InvoicePaymentStatusChanged")]
    failed = sandbox.raised("InvoiceSendFailed")

    sent = {"customerId": owner, "isSuccessful": True, "date": "2026-02-10T12:00:00Z"}
    assert links == [{**sent, "email": "ada@acme.example"}, {**sent, "email": "eve@acme.example"}]
    assert invoice["billingStatus"] == "PendingPayment"
    assert changed == [
        {
            "invoiceId": invoice["id"],
            "billingStatus": "PendingPayment",
            "amountDue": 100,
            "amountPaid": 0,
            "total": 100,
            "dueDate": "2026-03-12T12:00:00Z",
            "paidAt": None,
            "invoicePdfUrl": changed[0]["invoicePdfUrl"],
        }
    ]
    assert f"/invoices/{invoice['id']}/" in changed[0]["invoicePdfUrl"]
    assert failed == []


def test_an_invoice_that_reaches_no_address_fails_to_be_sent_and_is_owed(sandbox: Running) -> None:
    """Source: spec, "Events", InvoiceSendFailed."""
    invoice = approve(sandbox, issued(sandbox, customer(sandbox, contacts=[contact("ada@acme.invalid")])))
    sandbox.advance("P60D")
    failed = [body for _, body in sandbox.raised("InvoiceSendFailed")]
    read = sandbox.ok("GET", f"/invoices/{invoice['id']}")["invoice"]

    date = "2026-02-10T12:00:00Z"
    assert failed[0] == {"invoiceId": invoice["id"], "invoiceNumber": "2026-0001", "date": date}
    assert read["billingStatus"] == "Overdue"


def test_an_invoice_is_not_sent_before_it_is_approved(sandbox: Running) -> None:
    invoice = issued(sandbox)
    answer = sandbox.call("POST", f"/_sandbox/invoices/{invoice['id']}/send")
    links = sandbox.raised("CustomerPortalLinkSent")

    assert answer.error() == (400, "invalid_request_error", "not_approved")
    assert links == []
