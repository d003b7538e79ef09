"""Handlers that ask the billing service for what an event is about: `billhook serve fetching.py`.

An event says which invoice was approved, and not what is on it. `delivery.client` is the service's API,
logged in and shared by all handlers of the process.
"""

from __future__ import annotations

import os
from pathlib import Path

from billhook import Delivery, Discard, Handlers, Retry
from billhook.errors import RateLimitExceeded, ResourceNotFound
from billhook.events import InvoiceApproved, PaymentFailed
from billhook.resources import Customer, Invoice

handlers = Handlers()
FOLDER = Path(os.environ.get("BOOKS", "."))


@handlers.on(InvoiceApproved, timeout_seconds=90)
def store_invoice(event: InvoiceApproved, delivery: Delivery) -> None:
    """Keep the invoice as a file of its own; doing it twice writes the same file.

    Errors of the service need no care: a call that fails for a time is repeated by the client, and if it
    fails for longer the attempt has failed, and is made again by the schedule. Two are worth a word.
    """
    try:
        invoice: Invoice = delivery.client.invoices.get(event.invoice_id)
    except ResourceNotFound:
        raise Discard(f"there is no invoice {event.invoice_id} any more") from None
    except RateLimitExceeded as error:
        raise Retry("we ask too often", after_seconds=error.retry_after_seconds) from None
    path = FOLDER / "invoices" / f"{delivery.id}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(invoice.to_json())


@handlers.on(PaymentFailed, timeout_seconds=90)
def note_failure(event: PaymentFailed, delivery: Delivery) -> None:
    """Write a line with the customer's name.

    The specification shows no way to fetch a customer by its id, but an update is answered with the whole
    customer, and one of nothing changes nothing.
    """
    customer: Customer = delivery.client.customers.update(event.customer_id, {})
    line = f"{customer.name} ({customer.id}) owes {event.amount} {event.currency}: {event.failure_reason}\n"
    notes = FOLDER / "failed_payments"
    notes.mkdir(exist_ok=True)
    # Named for the delivery: an attempt that is made again writes the same line, not a second one.
    (notes / f"{delivery.id}.txt").write_text(line, encoding="utf-8")
