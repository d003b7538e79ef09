"""Invoices: a retry schedule of one's own, Retry, Discard, and an async handler."""

from __future__ import annotations

import asyncio

from billhook import Delivery, Discard, Handlers, Retry
from billhook.events import BillingStatus, InvoiceApproved, InvoicePaymentStatusChanged, PaymentFailed
from billing.database import transaction

handlers = Handlers()


@handlers.on(InvoiceApproved, retry=[1, 10, 60], timeout_seconds=10)
def open_invoice(event: InvoiceApproved) -> None:
    """Idempotent by nature: opening an open invoice changes nothing.

    A failed attempt is made again after 1, 10 and 60 seconds; one that takes over 10 seconds has failed.
    """
    with transaction() as connection:
        connection.execute("INSERT INTO invoice (id) VALUES (?) ON CONFLICT DO NOTHING", (event.invoice_id,))


@handlers.on(InvoicePaymentStatusChanged)
def book_payment(event: InvoicePaymentStatusChanged) -> None:
    """Deliveries may overtake each other: wait for the invoice that this one is about."""
    if event.billing_status != BillingStatus.PAID:
        raise Discard(f"nothing to book while the invoice is {event.billing_status}")
    with transaction() as connection:
        booked = connection.execute(
            "UPDATE invoice SET paid_at = ? WHERE id = ?", (str(event.paid_at), event.invoice_id)
        )
        if booked.rowcount == 0:
            raise Retry("the invoice is not open yet", after_seconds=1)


@handlers.on(PaymentFailed, name="dunning", timeout_seconds=30)
async def tell_customer(event: PaymentFailed, delivery: Delivery) -> None:
    """The name is stored with every run, so one that is given survives a move of the function.

    An effect in another system cannot be in our transaction: that system is told by the idempotency key
    that it has had this call before.
    """
    text = await _written_by_a_service(event, idempotency_key=delivery.idempotency_key)
    with transaction() as connection:
        if delivery.once(connection):
            connection.execute("INSERT INTO notice (text) VALUES (?)", (text,))


async def _written_by_a_service(event: PaymentFailed, *, idempotency_key: str) -> str:
    await asyncio.sleep(0)  # here would be the call
    return f"{event.customer_id}: {event.amount} {event.currency} did not arrive ({event.failure_reason})"
