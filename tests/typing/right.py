"""Handlers that a type checker takes, and the types that they have after the decorator."""

from __future__ import annotations

from collections.abc import Awaitable
from decimal import Decimal

from typing_extensions import assert_type

from billhook import Delivery, Discard, Handlers, Retry, signals
from billhook.client import BillingClient
from billhook.events import (
    CreditPoolIncreased,
    Event,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    InvoiceSendFailed,
    PaymentFailed,
    PingTest,
    TierCrossed,
    UnknownEvent,
    sample,
)

handlers = Handlers()
APPROVED = sample(InvoiceApproved)


@handlers.on(InvoiceApproved)
def with_event(event: InvoiceApproved) -> str:
    return event.invoice_id


assert_type(with_event(APPROVED), str)
with_event(event=APPROVED)


@handlers.on(InvoiceApproved)
def with_delivery(event: InvoiceApproved, delivery: Delivery) -> None:
    print(event.date, delivery.key)


def calls_it(delivery: Delivery) -> None:
    with_delivery(APPROVED, delivery)
    with_delivery(event=APPROVED, delivery=delivery)


@handlers.on(PaymentFailed)
async def asynchronous(event: PaymentFailed) -> Decimal:
    return event.amount


assert_type(await_it := asynchronous(sample(PaymentFailed)), Awaitable[Decimal])  # checker: mypy: Coroutine
