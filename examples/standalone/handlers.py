"""Handlers in one file, for `billhook serve handlers.py`: no app, no routes, no database code."""

from __future__ import annotations

import os
from pathlib import Path

from billhook import Delivery, Handlers
from billhook.events import InvoiceApproved, PaymentFailed

handlers = Handlers()
OUTBOX = Path(os.environ.get("OUTBOX", "outbox"))


@handlers.on(InvoiceApproved)
def send_invoice(event: InvoiceApproved, delivery: Delivery) -> None:
    """Write a letter."""
    _post(delivery, f"Invoice {event.invoice_id} was approved on {event.date:%d %B %Y}.\n")


@handlers.on(PaymentFailed)
def remind(event: PaymentFailed, delivery: Delivery) -> None:
    """Write a less friendly one."""
    reason = event.failure_reason or "for a reason we were not told"
    _post(delivery, f"{event.amount} {event.currency} for {event.invoice_id} did not arrive: {reason}.\n")


def _post(delivery: Delivery, text: str) -> None:
    # Named for the delivery: an attempt that is made again writes the same letter, not a second one.
    OUTBOX.mkdir(exist_ok=True)
    (OUTBOX / f"{delivery.id}.txt").write_text(text, encoding="utf-8")
