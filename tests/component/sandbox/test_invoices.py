"""Invoices: issued, listed, approved and sent.

Source: spec, "Resources and their fields", Invoice; "Endpoints", Invoices; "States and transitions".
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from support.sandbox import NOT_FOUND, Running, running
from support.scenarios import (
    STARTED,
    Customer,
    approve,
    contract,
    customer,
    cycle,
    dates,
    fee,
    invoices,
    metered,
)

CENTS = {"overage": 0, "discount": 0, "creditsUsed": 0, "tax": 0}


def contact(email: str, **more: Any) -> dict[str, Any]:
    return {"name": "Ada", "email": email, "receiveInvoiceEmail": True, **more}


def issued(sandbox: Running, owner: str | None = None, **terms: Any) -> Any:
    """The first invoice of a new contract, not approved yet."""
    made = contract(sandbox, owner, **{"products": [fee(100)], **terms})
    sandbox.advance("P1M")
    return next(each for each in invoices(sandbox) if each["contractId"] == made["id"])


def statuses(sandbox: Running) -> list[str]:
    return [body["billingStatus"] for _, body in sandbox.raised("InvoicePaymentStatusChanged")]


# --- issuing --------------------------------------------------------------------------------------


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


def test_a_separately_issued_product_has_its_own_invoice(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", ContractProduct, pricing.issuedSeparately."""
    apart = {"displayName": "Setup", "pricing": {"price": 7, "issuedSeparately": True}}
    contract(sandbox, products=[fee(1), apart, fee(2)])
    sandbox.advance("P1M")
    amounts = [each["amount"] for each in invoices(sandbox)]

    assert amounts == [3, 7]


@pytest.mark.slow
def test_an_invoice_has_the_contracts_currency_else_the_customers_and_says_a_trial(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Contract and Customer, currency."""
    euro = customer(sandbox, currency="EUR")
    contract(sandbox, euro, currency="GBP", isTrial=True)
    contract(sandbox, euro)
    contract(sandbox)
    sandbox.advance("P1M")
    found = [(each["currency"], each["isTrial"]) for each in invoices(sandbox)]

    assert found == [("GBP", True), ("EUR", False), ("USD", False)]


@pytest.mark.slow
def test_invoices_are_numbered_anew_in_each_year(sandbox: Running) -> None:
    contract(sandbox, products=[fee(1, scheduling=cycle("Months", 6))])
    sandbox.advance("P18M")
    numbers = [each["invoiceNumber"] for each in invoices(sandbox)]

    assert numbers == ["2026-0001", "2027-0001", "2027-0002"]


def test_usage_beyond_the_commitment_is_an_overage_of_its_invoice(sandbox: Running) -> None:
    """Source: spec, "Events", Overage."""
    acme = Customer.of(sandbox)
    pricing = {"type": "PerUnit", "price": 2}
    commitment = {"units": 3, "price": 5}
    acme.buy({"catalogProductId": metered(sandbox), "pricing": pricing, "commitment": commitment})
    acme.use(1, 4)
    sandbox.advance("P2M")
    told = [body for _, body in sandbox.raised("Overage")]
    billed = invoices(sandbox)

    assert [each["amount"] for each in billed] == [9, 5]
    assert billed[0]["revenueBreakdown"]["overage"] == 4
    assert billed[0]["lineItems"][0]["units"] == 5
    assert told == [
        {
            "date": "2026-02-01T00:00:00Z",
            "overageAmount": 4,
            "invoiceId": billed[0]["id"],
            "customerId": acme.id,
            "customerName": "Acme",
            "currency": "USD",
        }
    ]


# --- GET /invoices --------------------------------------------------------------------------------


def test_invoices_are_listed_by_page_and_filter(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /invoices."""
    acme, other = customer(sandbox), customer(sandbox, name="Other")
    contract(sandbox, acme, products=[fee(10)])
    contract(sandbox, other, products=[fee(20)])
    sandbox.advance("P70D")

    everything = invoices(sandbox)
    of_one = invoices(sandbox, customerId=other)
    of_nobody = invoices(sandbox, customerId="cus_none")
    pending = invoices(sandbox, billingStatus="PendingPayment")
    unapproved = invoices(sandbox, billingStatus="None")
    unknown_status = sandbox.call("GET", "/invoices?billingStatus=Lost")
    later = invoices(sandbox, issuedAfter="2026-03-10T12:00:00Z")
    earlier = invoices(sandbox, issuedBefore="2026-03-10T12:00:00Z")
    between = invoices(sandbox, issuedAfter="2026-02-10", issuedBefore="2026-02-11", customerId=acme)
    first = sandbox.ok("GET", "/invoices?limit=3")
    rest = sandbox.ok("GET", f"/invoices?limit=3&cursor={first['nextCursor']}")

    assert [each["customerId"] for each in everything] == [acme, other, acme, other]
    assert of_one == [everything[1], everything[3]]
    assert of_nobody == []
    assert (unknown_status.status, unknown_status.json["param"]) == (400, "billingStatus")
    assert (
        unknown_status.json["message"]
        == "billingStatus must be one of None, Paid, Rejected, PendingPayment, Overdue"
    )
    assert unapproved == []
    assert pending == everything[2:]
    assert later == everything[2:]
    assert earlier == everything[:2]
    assert between == everything[:1]
    assert first["invoices"] + rest["invoices"] == everything
    assert (first["total"], first["hasMore"], rest["hasMore"]) == (4, True, False)


def test_an_invoice_that_is_not_there_is_not_found(sandbox: Running) -> None:
    """Source: spec, "Endpoints", GET /invoices/{invoiceId}."""
    answer = sandbox.call("GET", "/invoices/inv_none")
    done = [sandbox.call("POST", f"/_sandbox/invoices/inv_none/{verb}") for verb in ("approve", "send")]

    assert answer.error() == NOT_FOUND
    assert [each.error() for each in done] == [NOT_FOUND, NOT_FOUND]


# --- approval -------------------------------------------------------------------------------------


def test_an_invoice_is_approved_automatically_after_a_day(sandbox: Running) -> None:
    """Source: spec, "Events", InvoiceApproved."""
    invoice = issued(sandbox)
    sandbox.advance("P1D")
    read = sandbox.ok("GET", f"/invoices/{invoice['id']}")["invoice"]
    told = sandbox.raised("InvoiceApproved")

    approved_at = "2026-02-11T12:00:00Z"
    assert [body for _, body in told] == [{"date": approved_at, "invoiceId": invoice["id"]}]
    assert read["approvedAt"] == approved_at
    assert read["dueDate"] == "2026-03-13T12:00:00Z"


@pytest.mark.slow
def test_approve_after_sets_the_time_of_approval() -> None:
    with running(approve_after=timedelta(hours=6)) as sandbox:
        issued(sandbox)
        sandbox.advance("PT6H")

        when = dates(sandbox, "InvoiceApproved")

    assert when == ["2026-02-10T18:00:00Z"]


def test_an_invoice_can_be_approved_by_hand_once(sandbox: Running) -> None:
    invoice = issued(sandbox)
    first = approve(sandbox, invoice)
    second = sandbox.call("POST", f"/_sandbox/invoices/{invoice['id']}/approve")
    sandbox.advance("P2D")
    when = dates(sandbox, "InvoiceApproved")

    assert first["billingStatus"] == "PendingPayment"
    assert second.error() == (400, "invalid_request_error", "already_approved")
    assert when == ["2026-02-10T12:00:00Z"]


def test_an_invoice_is_due_due_days_after_its_approval(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Customer, dueDays."""
    for due_days in ("14", "0", None):
        contract(sandbox, customer(sandbox, dueDays=due_days), products=[fee(100)])
    sandbox.advance("P1M")
    found = [approve(sandbox, invoice)["dueDate"] for invoice in invoices(sandbox)]

    assert found == [f"{day}T12:00:00Z" for day in ("2026-02-24", "2026-02-10", "2026-03-12")]


# --- sending --------------------------------------------------------------------------------------


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


def test_bounced_mail_is_reported_and_the_invoice_is_pending_payment(sandbox: Running) -> None:
    """Source: spec, "Events", CustomerPortalLinkSent, errorMessage."""
    bounced = ("ada@acme.invalid", "ada@INVALID.", "ada", "ada@")
    taken = ("eve@acme.example", "eve@acme.example", "")
    owner = customer(sandbox, contacts=[contact(email) for email in (*bounced, *taken)])
    invoice = approve(sandbox, issued(sandbox, owner))
    told = [body for _, body in sandbox.raised("CustomerPortalLinkSent")]
    links = {body["email"]: body for body in told}
    failed = [body["invoiceId"] for _, body in sandbox.raised("InvoiceSendFailed")]

    assert len(told) == len(links)  # an address that two contacts have gets one
    sent = links.pop("eve@acme.example")
    assert set(links) == set(bounced)
    assert all(link["isSuccessful"] is False and link["errorMessage"] for link in links.values())
    assert sent["isSuccessful"] is True
    assert "errorMessage" not in sent
    assert failed == []
    assert invoice["billingStatus"] == "PendingPayment"


@pytest.mark.slow
def test_an_invoice_is_resent_when_it_has_a_recipient(sandbox: Running) -> None:
    owner = customer(sandbox, contacts=[])
    invoice = approve(sandbox, issued(sandbox, owner))
    sandbox.ok("PUT", f"/customers/{owner}", {"contacts": [contact("ada@acme.example")]})
    sent = sandbox.ok("POST", f"/_sandbox/invoices/{invoice['id']}/send")["invoice"]
    again = sandbox.ok("POST", f"/_sandbox/invoices/{invoice['id']}/send")["invoice"]
    links = len(sandbox.raised("CustomerPortalLinkSent"))
    changes = statuses(sandbox)

    assert invoice["billingStatus"] == "PendingPayment"
    assert sent["billingStatus"] == again["billingStatus"] == "PendingPayment"
    assert links == 2
    assert changes == ["PendingPayment"]


def test_an_invoice_is_not_sent_before_it_is_approved(sandbox: Running) -> None:
    invoice = issued(sandbox)
    answer = sandbox.call("POST", f"/_sandbox/invoices/{invoice['id']}/send")
    links = sandbox.raised("CustomerPortalLinkSent")

    assert answer.error() == (400, "invalid_request_error", "not_approved")
    assert links == []
