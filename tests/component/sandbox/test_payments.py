"""Paying invoices. Source: spec, "States and transitions", Invoice billingStatus; "Events"."""

from __future__ import annotations

from typing import Any

from support.sandbox import Answer, Running, check_refused
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
