"""Missing events, which the API's data prove and no delivery tells of; and synthetic ones in their place.

Synthetic events are made of what the API shows, and stored as deliveries of a source of their own. A value
that the API does not show is null. Where an event cannot do without it, the event is not made, and the
obstacle says what is not known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from billhook.events import (
    ContractCreated,
    ContractExpired,
    CustomerCreated,
    Event,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
)
from billhook.inbox import Inbox, NewDelivery, PutStatus
from billhook.inbox.ingest import ingest
from billhook.resources import BillingStatus, Contract, Customer, Invoice
from billhook.signing.source import RECONCILE_SOURCE

__all__ = [
    "NO_POOL",
    "Missing",
    "contract_created",
    "contract_expired",
    "customer_created",
    "customer_fields",
    "inject",
    "of_invoice",
]

NO_POOL = "the API's ledger does not show the pool and its kind, which the event needs"
_NO_CUSTOMER = "the event holds the customer, whom no delivery tells of: add --read-customers"
_CUSTOMER_GONE = "the event holds the customer, whom neither a delivery nor the API tells of"
_NO_AMOUNT = "the API does not show how much of the invoice is paid"
UNKNOWN = "Unknown"
"""The synchronization status of a customer's counterparts, which the API does not show."""
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Missing:
    """An event without a delivery that a handler could have had.

    `kind` is contract, invoice, customer or credit, and `resource_id` the id of that object. `at` is when the
    object was created or last changed, or the contract ended; `detail` tells what proves the event.
    `quarantined_as` is the id of a quarantined delivery that tells of it. `event` is the synthetic event to
    inject; without one, `obstacle` says why.
    """

    event_type: str
    kind: str
    resource_id: str
    customer_id: str | None
    at: datetime
    detail: str
    event: Event | None = None
    obstacle: str | None = None
    quarantined_as: int | None = None


def contract_created(one: Missing, contract: Contract, customer: object, *, sought: bool) -> Missing:
    """Add ContractCreated; `customer` has the fields of the event in the wire's spelling.

    It is None where no delivery tells of the customer; `sought`: nor has the API one.
    """
    if customer is None:
        return replace(one, obstacle=_CUSTOMER_GONE if sought else _NO_CUSTOMER)
    return _with(
        one,
        lambda: ContractCreated.model_validate(
            {
                "date": contract.created_at,
                "contractId": contract.id,
                "customerId": contract.customer_id,
                "contractName": contract.name,
                "status": contract.status,
                "startDate": contract.start_date,
                "endDate": contract.end_date,
                "customer": customer,
            }
        ),
    )


def contract_expired(one: Missing, contract: Contract) -> Missing:
    """Add ContractExpired, dated at the contract's end."""
    return _with(
        one,
        lambda: ContractExpired.model_validate(
            {
                "date": contract.end_date,
                "contractEndDate": contract.end_date,
                "contractName": contract.name,
                "contractId": contract.id,
                "customerName": None,
                "isTrial": contract.is_trial is True,
            }
        ),
    )


def customer_fields(customer: Customer) -> dict[str, Any]:
    """Return a customer as events have it, in the wire's spelling."""
    counterparts = [
        {"integrationProvider": each.type, "integrationExternalId": each.id, "syncStatus": UNKNOWN}
        for each in customer.external_integration or []
        if each.type is not None and each.id is not None
    ]
    return {
        "date": customer.created_at,
        "customerId": customer.id,
        "name": customer.name,
        "externalId": customer.external_id,
        "aliases": customer.aliases or [],
        "integrationEntities": counterparts,
    }


def customer_created(one: Missing, customer: Customer) -> Missing:
    """Add CustomerCreated."""
    return _with(one, lambda: CustomerCreated.model_validate(customer_fields(customer)))


def of_invoice(one: Missing, invoice: Invoice) -> Missing:
    """Add InvoiceApproved or InvoicePaymentStatusChanged. The API dates neither: the last change counts."""
    if one.event_type == InvoiceApproved.type:
        return replace(one, event=InvoiceApproved(date=invoice.updated_at, invoice_id=invoice.id))
    paid = _amount_paid(invoice)
    if paid is None or invoice.amount is None:
        return replace(one, obstacle=_NO_AMOUNT)
    total = invoice.amount
    return _with(
        one,
        lambda: InvoicePaymentStatusChanged(
            invoice_id=invoice.id,
            billing_status=str(invoice.billing_status),
            amount_due=total - paid,
            amount_paid=paid,
            total=total,
            due_date=invoice.due_date,
            paid_at=None,
            invoice_pdf_url=None,
        ),
    )


def _amount_paid(invoice: Invoice) -> Decimal | None:
    """Return what is paid of an invoice; None if payments do not tell."""
    if invoice.billing_status == BillingStatus.PAID:
        return invoice.amount
    # A payment of an invoice that is not paid may have failed, or be a part of it, or the last of several.
    return Decimal(0) if invoice.payment_info is None else None


def _with(one: Missing, make: Callable[[], Event]) -> Missing:
    try:
        return replace(one, event=make())
    except ValidationError as error:
        fields = ", ".join(sorted({str(each["loc"][0]) for each in error.errors()}))
        return replace(one, obstacle=f"the API does not show a usable {fields}")


def inject(inbox: Inbox, missing: Sequence[Missing], now: datetime) -> Iterator[int]:
    """Store the events that could be made, and yield how many of each batch are new. Wakes the workers.

    The key of a delivery depends on the event's type and object alone, so none is stored a second time.
    """
    makeable = [one for one in missing if one.event is not None]
    for start in range(0, len(makeable), _BATCH):
        batch = makeable[start : start + _BATCH]
        receipts = ingest(inbox.database, [_delivery(one, now) for one in batch])
        inbox.notifier.notify()
        yield sum(receipt.status is PutStatus.ACCEPTED for receipt in receipts)


def _delivery(one: Missing, now: datetime) -> NewDelivery:
    event = one.event
    assert event is not None  # noqa: S101 - for the type
    identity = [one.event_type, one.resource_id]
    if isinstance(event, InvoicePaymentStatusChanged):
        identity.append(str(event.billing_status))
    digest = sha256(json.dumps(identity).encode()).hexdigest()[:32]
    headers = {"CONTENT_TYPE": "application/json", "X_WEBHOOK_TYPE": one.event_type}
    return NewDelivery(
        RECONCILE_SOURCE,
        f"{one.event_type}-{digest}",
        one.event_type,
        event.to_json(),
        json.dumps(headers),
        None,
        now,
        known=True,
    )
