"""What a sender sends: mostly new deliveries, and sometimes a copy or a contradiction of a stored one."""

from __future__ import annotations

from dataclasses import replace

from billhook.clock import Clock
from billhook.errors import PayloadError
from billhook.events import (
    CustomerCreated,
    InvoicePaymentStatusChanged,
    PingTest,
    parse_event,
    sample,
)
from billhook.fields import strict_json
from billhook.inbox import NewDelivery

STATUS, PING, CREATED = (each.__name__ for each in (InvoicePaymentStatusChanged, PingTest, CustomerCreated))
UNREADABLE = b"{"
TYPE_FIELD = "about.type"
KNOWN = frozenset((STATUS, PING, CREATED))
"""The types of which a receiver knows a class: it may run older code than a worker."""
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
            *(source, key, event_type, body, "{}", signed, self.clock.now()), known=event_type in KNOWN
        )

    def deliver_in_body(self, number: int, kind: int, more: int) -> tuple[NewDelivery, str]:
        """Return a delivery of which a field of the body has the type, and that; "" if it cannot be read."""
        new = self.deliver(number, kind, more)
        if number % 4 == 0:
            new = replace(new, event_type=f"Acme{more % 3}", body=b'{"a": 1}')
        named = new.event_type if new.body != UNREADABLE else ""
        body = new.body
        if named and kind % 9:
            body = strict_json.dumps({**strict_json.loads(new.body), "about": {"type": named}})
        named = named if kind % 9 else ""  # not there
        return replace(new, event_type="", body=body, known=False, type_field=TYPE_FIELD), named

    def deliver_own(self, number: int, kind: int, more: int) -> NewDelivery:
        """Return a delivery of a type that some releases have a class of, or of one that has none."""
        new = self.deliver(number, kind, more)
        body = new.body if new.body == UNREADABLE else b'{"a": 1}'
        return replace(new, event_type=f"Acme{number % 3}", body=body, known=False)


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


def fields_of(event_type: str, body: bytes) -> dict[str, object] | None:
    """Return the fields of a delivery that handlers have options about; None if it cannot be read."""
    if body == UNREADABLE:
        return None
    return _fields(InvoicePaymentStatusChanged.model_validate_json(body)) if event_type == STATUS else {}


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
