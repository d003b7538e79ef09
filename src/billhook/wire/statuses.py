"""Open enumerations that events and resources share. Source: spec, "States and transitions"."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["BillingStatus"]


class BillingStatus(StrEnum):
    """The payment states that are listed. `NONE` is the text "None", which is not null."""

    NONE = "None"
    PAID = "Paid"
    REJECTED = "Rejected"
    PENDING_PAYMENT = "PendingPayment"
    OVERDUE = "Overdue"
