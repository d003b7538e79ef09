"""What a sender sends: mostly new deliveries, and sometimes a copy or a contradiction of a stored one."""

from __future__ import annotations

from billhook.clock import Clock
from billhook.errors import PayloadError
from billhook.events import (
    EVENT_TYPES,
    CustomerCreated,
    InvoicePaymentStatusChanged,
    PingTest,
    parse_event,
    sample,
)
from billhook.inbox import NewDelivery

STATUS, PING, CREATED = (each.__name__ for each in (InvoicePaymentStatusChanged, PingTest, CustomerCreated))
UNREADABLE = b"{"
_SAMPLES = {each.__name__: sample(each).to_json() for each in (PingTest, CustomerCreated)}


class Sender:
    """Makes deliveries of keys that count up."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.keys = clock, 0

    def deliver(self, number: int, kind: int, more: int) -> NewDelivery:
        source = "eu" if number % 5 == 0 else "default"
        if kind % 12 == 11 and self.keys:
            key = f"key-{more % self.keys}"
        else:
            # Not in the order of keys: arrival and key must not be the same thing.
            key, self.keys = f"key-{self.keys}", self.keys + 1
            if self.keys % 2:
                key = f"z{key}"
        event_type, body = _event(number, kind, more)
        signed = None if number % 11 == 0 else self.clock.now()
        return NewDelivery(
            *(source, key, event_type, body, "{}", signed, self.clock.now()), known=event_type in EVENT_TYPES
        )


def _event(number: int, kind: int, more: int) -> tuple[str, bytes]:
    if number % 23 == 0:
        return ("" if more % 2 else STATUS), UNREADABLE
    if number % 29 == 0:
        return f"Acme{number // 29 % 3}", b'{"a": 1}'
    if number % 3 == 0:
        return PING, _SAMPLES[PING]
    if number % 3 == 1 and more % 3 == 0:
        return CREATED, _SAMPLES[CREATED]
    invoice, status = f"inv_{more % 2}", ("Paid", "Overdue")[kind % 2]
    link = "null" if more % 7 == 0 else f'"https://example.com/{more % 2}"'
    # Of the invoice's own time, which does not follow the order of arrival.
    paid_at = "null" if kind % 5 == 0 else f'"2026-01-0{1 + kind % 4}T00:00:00Z"'
    body = (
        f'{{"invoiceId":"{invoice}","billingStatus":"{status}","amountDue":0,"amountPaid":1,"total":10,'
        f'"invoicePdfUrl":{link},"paidAt":{paid_at}}}'
    )
    return STATUS, body.encode()


def fields_of(new: NewDelivery) -> dict[str, object] | None:
    """Return the fields of a delivery that handlers have options about; None if it cannot be read."""
    if new.body == UNREADABLE:
        return None
    return (
        _fields(InvoicePaymentStatusChanged.model_validate_json(new.body)) if new.event_type == STATUS else {}
    )


def fields_as(event_type: str, body: bytes) -> dict[str, object] | None:
    """Return the fields of a body that is read as a type which an operator has named."""
    try:
        return _fields(parse_event(event_type, body, as_named=True))
    except PayloadError:
        return None


def _fields(event: object) -> dict[str, object]:
    if not isinstance(event, InvoicePaymentStatusChanged):
        return {}
    return {
        name: getattr(event, name) for name in ("invoice_id", "billing_status", "invoice_pdf_url", "paid_at")
    }
