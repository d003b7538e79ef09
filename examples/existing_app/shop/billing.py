"""What the shop does when the billing service calls.

Handlers run after the delivery was stored and answered, in the app's context: `current_app` and whatever
hangs on it work as in a view. The same delivery may be handled twice, so both write what is true now
rather than add to what was there before.
"""

from __future__ import annotations

from billhook import Billhook, Handlers
from billhook.events import InvoiceApproved, InvoicePaymentStatusChanged
from shop.database import transaction

handlers = Handlers()
hooks = Billhook(handlers=[handlers])


@handlers.on(InvoiceApproved)
def remember_approval(event: InvoiceApproved) -> None:
    """Note when the invoice was approved."""
    with transaction() as connection:
        connection.execute(
            "INSERT INTO invoice (id, approved_at) VALUES (?, ?)"
            " ON CONFLICT (id) DO UPDATE SET approved_at = excluded.approved_at",
            (event.invoice_id, event.date.isoformat()),
        )


@handlers.on(InvoicePaymentStatusChanged)
def remember_status(event: InvoicePaymentStatusChanged) -> None:
    """Note how its payment stands."""
    with transaction() as connection:
        connection.execute(
            "INSERT INTO invoice (id, status) VALUES (?, ?)"
            " ON CONFLICT (id) DO UPDATE SET status = excluded.status",
            (event.invoice_id, event.billing_status),
        )
