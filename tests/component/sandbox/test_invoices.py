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


def test_an_approved_invoice_waits_for_payment_until_it_is_paid(sandbox: Running) -> None:
    """Source: spec, "Events", InvoicePaymentStatusChanged; Invoice, paymentInfo."""
    owner = customer(sandbox, currency="EUR")
    invoice = approve(sandbox, issued(sandbox, owner))
    sandbox.advance("P2D")
    path = f"/_sandbox/invoices/{invoice['id']}/payments"
    paid = sandbox.ok("POST", path, {"outcome": "paid", "paymentMethod": "Transfer"})["invoice"]
    read = sandbox.ok("GET", f"/invoices/{invoice['id']}")["invoice"]
    waiting, done = (body for _, body in sandbox.raised("InvoicePaymentStatusChanged"))

    assert invoice["billingStatus"] == "PendingPayment"
    assert waiting == {
        "invoiceId": invoice["id"],
        "billingStatus": "PendingPayment",
        "amountDue": 100,
        "amountPaid": 0,
        "total": 100,
        "dueDate": "2026-03-12T12:00:00Z",
        "paidAt": None,
        "invoicePdfUrl": waiting["invoicePdfUrl"],
    }
    changed = {"billingStatus": "Paid", "amountDue": 0, "amountPaid": 100, "paidAt": "2026-02-12T12:00:00Z"}
    assert done == {**waiting, **changed}
    assert f"/invoices/{invoice['id']}/" in done["invoicePdfUrl"]
    info = paid["paymentInfo"]
    assert info.pop("transactionId").startswith("txn_")
    assert info.pop("paymentMethodId").startswith("pm_")
    assert info.pop("depositTo")["id"] == "acc_sandbox"
    assert info == {
        "date": "2026-02-12T12:00:00Z",
        "paymentMethod": "Transfer",
        "amount": 100,
        "currency": "EUR",
        "status": "Succeeded",
        "customerId": owner,
    }
    assert paid["billingStatus"] == read["billingStatus"] == "Paid"


PRIMARY = contact("ada@acme.example", isPrimary=True, receiveInvoiceEmail=False)
COPY = contact("bob@acme.example")
BOTH = contact("cyd@acme.example", isPrimary=True)
EVE = {"name": "Eve", "email": "eve@acme.example"}
NEITHER = [EVE, {**EVE, "isPrimary": False}, {**EVE, "isPrimary": "yes"}]
REACHED: list[tuple[list[dict[str, Any]], list[str]]] = [
    ([PRIMARY], ["ada"]),
    ([COPY, PRIMARY], ["ada", "bob"]),
    ([BOTH, COPY], ["cyd", "bob"]),
    ([COPY, *NEITHER, {"name": "Dee", "receiveInvoiceEmail": True}], ["bob"]),
    (NEITHER, []),
    ([{"name": "mute", "isPrimary": True}], []),
]


def test_an_invoice_is_sent_to_the_primary_contact_and_others_get_copies(sandbox: Running) -> None:
    """Source: spec, Customer, contacts: "The contact marked primary is the target"."""
    owners = [customer(sandbox, contacts=contacts) for contacts, _ in REACHED]
    for owner in owners:
        contract(sandbox, owner, products=[fee(5)])
    sandbox.advance("P33D")
    sent = [body for _, body in sandbox.raised("CustomerPortalLinkSent")]
    failed = len({body["invoiceId"] for _, body in sandbox.raised("InvoiceSendFailed")})

    told = {"isSuccessful": True, "date": sent[0]["date"]}
    assert sent == [
        {**told, "customerId": owner, "email": f"{name}@acme.example"}
        for owner, (_, reached) in zip(owners, REACHED, strict=True)
        for name in reached
    ]
    assert failed == 2


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
