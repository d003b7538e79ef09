"""Paying invoices. Source: spec, "States and transitions", Invoice billingStatus; "Events"."""

from __future__ import annotations

from support.sandbox import Running
from support.scenarios import approve, contract, customer, fee, invoices


def test_a_paid_invoice_has_its_payment_info(sandbox: Running) -> None:
    """Source: spec, "Resources and their fields", Invoice, paymentInfo; "Events"."""
    contract(sandbox, customer(sandbox, currency="EUR"), products=[fee(100)])
    sandbox.advance("P1M")
    invoice = approve(sandbox, invoices(sandbox)[0])
    sandbox.advance("P2D")
    payment = {"outcome": "paid", "paymentMethod": "Transfer"}
    paid = sandbox.ok("POST", f"/_sandbox/invoices/{invoice['id']}/payments", payment)["invoice"]
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
