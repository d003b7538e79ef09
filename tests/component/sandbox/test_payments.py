"""Paying invoices. Source: spec, "States and transitions", Invoice billingStatus; "Events"."""

from __future__ import annotations

from typing import Any

from support.sandbox import INVALID, Answer, Running, check_refused
from support.scenarios import approve, contract, customer, fee, invoices

ONE_CYCLE = {"endDate": "2026-02-10T12:00:00Z", "autoRenewContract": False}


def issued(sandbox: Running, **terms: Any) -> Any:
    contract(sandbox, customer(sandbox, currency="EUR"), **{**ONE_CYCLE, "products": [fee(100)], **terms})
    sandbox.advance("P1M")
    return invoices(sandbox)[0]


def approved(sandbox: Running, **terms: Any) -> Any:
    """An invoice over 100 euros that waits for payment."""
    return approve(sandbox, issued(sandbox, **terms))


def try_to_pay(sandbox: Running, invoice: Any, **payment: Any) -> Answer:
    return sandbox.call("POST", f"/_sandbox/invoices/{invoice['id']}/payments", payment)


def pay(sandbox: Running, invoice: Any, **payment: Any) -> Any:
    answer = try_to_pay(sandbox, invoice, **{"outcome": "paid", **payment})
    assert answer.status == 200, answer.body
    return answer.json["invoice"]


def changes(sandbox: Running) -> list[tuple[str, float, float]]:
    """Status, amount due and amount paid of each InvoicePaymentStatusChanged."""
    told = [body for _, body in sandbox.raised("InvoicePaymentStatusChanged")]
    return [(body["billingStatus"], body["amountDue"], body["amountPaid"]) for body in told]


def test_a_paid_invoice_has_its_payment_info(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Invoice, paymentInfo; "Events"."""
    invoice = approved(sandbox)
    sandbox.advance("P2D")
    paid = pay(sandbox, invoice, paymentMethod="Transfer")
    read = sandbox.ok("GET", f"/invoices/{invoice['id']}")["invoice"]
    told = [body for _, body in sandbox.raised("InvoicePaymentStatusChanged")][-1]

    info = paid["paymentInfo"]
    assert paid["billingStatus"] == "Paid"
    assert info.pop("transactionId").startswith("txn_")
    assert info.pop("paymentMethodId").startswith("pm_")
    assert info.pop("depositTo")["id"] == "acc_sandbox"
    assert info == {
        "date": "2026-02-12T12:00:00Z",
        "paymentMethod": "Transfer",
        "amount": 100,
        "currency": "EUR",
        "status": "Succeeded",
        "customerId": invoice["customerId"],
    }
    assert read["billingStatus"] == "Paid"
    url = told["invoicePdfUrl"]
    assert told == {
        "invoiceId": invoice["id"],
        "billingStatus": "Paid",
        "amountDue": 0,
        "amountPaid": 100,
        "total": 100,
        "dueDate": "2026-03-12T12:00:00Z",
        "paidAt": "2026-02-12T12:00:00Z",
        "invoicePdfUrl": url,
    }
    assert f"/{invoice['id']}/" in url


def test_a_failed_payment_rejects_the_invoice_with_its_reason(sandbox: Running) -> None:
    """Source: spec, "Events", PaymentFailed."""
    invoice = approved(sandbox)
    refused = pay(sandbox, invoice, outcome="failed", failureReason="card_declined")
    told = [body for _, body in sandbox.raised("PaymentFailed")]
    changed = changes(sandbox)

    assert refused["billingStatus"] == "Rejected"
    assert (refused["paymentInfo"]["status"], refused["paymentInfo"]["note"]) == ("Failed", "card_declined")
    assert changed == [("PendingPayment", 100, 0), ("Rejected", 100, 0)]
    assert told == [
        {
            "date": "2026-02-10T12:00:00Z",
            "customerId": invoice["customerId"],
            "invoiceId": invoice["id"],
            "paymentProvider": "Sandbox",
            "amount": 100,
            "currency": "EUR",
            "failureReason": "card_declined",
        }
    ]


def test_an_invoice_that_is_not_paid_by_its_due_date_is_overdue_and_can_still_be_paid(
    sandbox: Running,
) -> None:
    """Source: spec, "States and transitions", Invoice billingStatus."""
    invoice = approved(sandbox)
    sandbox.ok("POST", "/_sandbox/clock", {"to": "2026-03-12T11:59:59Z"})
    sandbox.token = ""
    before = changes(sandbox)
    sandbox.advance("PT1S")
    at_due = changes(sandbox)
    paid = pay(sandbox, invoice)

    assert before == [("PendingPayment", 100, 0)]
    assert at_due == [("PendingPayment", 100, 0), ("Overdue", 100, 0)]
    assert paid["billingStatus"] == "Paid"


def test_a_rejected_invoice_is_overdue_at_its_due_date_and_is_rejected_and_paid_as_before(
    sandbox: Running,
) -> None:
    """What was paid in part stays paid; a payment that fails again changes no status."""
    invoice = approved(sandbox)
    pay(sandbox, invoice, amount=30)
    for _ in range(2):
        pay(sandbox, invoice, outcome="failed", amount=70)
    sandbox.advance("P30D")
    pay(sandbox, invoice, outcome="failed")
    sandbox.advance("P1D")
    pay(sandbox, invoice)
    reasons = [body["failureReason"] for _, body in sandbox.raised("PaymentFailed")]
    pending, *changed, paid = changes(sandbox)

    assert changed == [(status, 70, 30) for status in ("Rejected", "Overdue", "Rejected", "Overdue")]
    assert (pending, paid) == (("PendingPayment", 100, 0), ("Paid", 0, 100))
    assert reasons == [None] * 3


def test_an_invoice_paid_in_parts_is_paid_with_the_last(sandbox: Running) -> None:
    invoice = approved(sandbox)
    part = pay(sandbox, invoice, amount=30.5)
    over = try_to_pay(sandbox, invoice, outcome="paid", amount=69.51)
    rest = pay(sandbox, invoice, amount=69.5)
    changed = changes(sandbox)

    assert (part["billingStatus"], part["paymentInfo"]["amount"]) == ("PendingPayment", 30.5)
    assert over.error() == INVALID
    assert rest["billingStatus"] == "Paid"
    assert changed == [("PendingPayment", 100, 0), ("Paid", 0, 100)]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "outcome"),
    ({"outcome": "lost"}, "outcome"),
    ({"outcome": "paid", "amount": 0}, "amount"),
    ({"outcome": "paid", "amount": -1}, "amount"),
    ({"outcome": "failed", "amount": 100.01}, "amount"),
    ({"outcome": "paid", "failureReason": "card_declined"}, "failureReason"),
]


def test_a_payment_that_cannot_be_is_refused(sandbox: Running) -> None:
    invoice = approved(sandbox)
    answers = [try_to_pay(sandbox, invoice, **payment) for payment, _ in WRONG]
    changed = changes(sandbox)

    check_refused(answers, [param for _, param in WRONG])
    assert changed == [("PendingPayment", 100, 0)]


def test_an_invoice_is_paid_after_its_approval_and_once(sandbox: Running) -> None:
    invoice = issued(sandbox)
    early = [try_to_pay(sandbox, invoice, outcome=outcome) for outcome in ("paid", "failed")]
    approve(sandbox, invoice)
    pay(sandbox, invoice)
    late = [try_to_pay(sandbox, invoice, outcome=outcome) for outcome in ("paid", "failed")]

    assert {answer.error() for answer in early} == {(400, "invalid_request_error", "not_approved")}
    assert {answer.error() for answer in late} == {(400, "invalid_request_error", "already_paid")}


# --- top-ups --------------------------------------------------------------------------------------
