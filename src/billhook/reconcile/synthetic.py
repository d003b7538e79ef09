"""Make synthetic events in the place of missing ones, which the API's data prove and no delivery reports.

Synthetic events are made of what the API shows, and stored as deliveries of a source of their own. A value
that the API does not show is null. Where an event cannot do without it, the event is not made, and the
obstacle says what is not known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from billhook.events import Event, InvoicePaymentStatusChanged
from billhook.inbox import Inbox, NewDelivery, PutStatus
from billhook.inbox.storing.ingest import ingest
from billhook.resources import BillingStatus, Contract, Customer, Invoice
from billhook.signing.source import RECONCILE_SOURCE

NO_POOL = "the API's ledger does not show the pool and its kind, which the event needs"
_NO_CUSTOMER = "the event holds the customer, whom no delivery tells of: add --read-customers"
_CUSTOMER_GONE = "the event holds the customer, whom neither a delivery nor the API tells of"
_NO_AMOUNT = "the API does not show how much of the invoice is paid"
UNKNOWN = "Unknown"
"""The synchronization status of a customer's counterparts, which the API does not show."""
_BATCH = 100


@dataclass(frozen=True, slots=True)
class MissingEvent:
    """An event without a delivery that a handler could have had.

    `kind` is contract, invoice, customer or credit, and `resource_id` the id of that object. `at` is when the
    object was created or last changed, or the contract ended; `detail` says what proves the event.
    `quarantined_as` is the id of a quarantined delivery that reports it. `event` is the synthetic event to
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


Fields = dict[str, Any]
"""The fields of an event, in camelCase."""


def contract_created(contract: Contract, customer: object, *, sought: bool) -> Fields | str:
    """Return the fields of ContractCreated, or why they are not known.

    `customer` has the fields of the event. It is None where no delivery describes the customer; `sought`: nor
    has the API one.
    """
    if customer is None:
        return _CUSTOMER_GONE if sought else _NO_CUSTOMER
    return {
        "date": contract.created_at,
        "contractId": contract.id,
        "customerId": contract.customer_id,
        "contractName": contract.name,
        "status": contract.status,
        "startDate": contract.start_date,
        "endDate": contract.end_date,
        "customer": customer,
    }


def contract_expired(contract: Contract) -> Fields:
    """Return the fields of ContractExpired, dated at the contract's end."""
    return {
        "date": contract.end_date,
        "contractEndDate": contract.end_date,
        "contractName": contract.name,
        "contractId": contract.id,
        "customerName": None,
        "isTrial": contract.is_trial is True,
    }


def customer_created(customer: Customer) -> Fields:
    """Return the fields of CustomerCreated."""
    counterparts = [
        {"integrationProvider": entry.type, "integrationExternalId": entry.id, "syncStatus": UNKNOWN}
        for entry in customer.external_integration or []
        if entry.type is not None and entry.id is not None
    ]
    return {
        "date": customer.created_at,
        "customerId": customer.id,
        "name": customer.name,
        "externalId": customer.external_id,
        "aliases": customer.aliases or [],
        "integrationEntities": counterparts,
    }


def invoice_approved(invoice: Invoice) -> Fields:
    """Return the fields of InvoiceApproved. The API does not date it: the last change counts."""
    return {"date": invoice.updated_at, "invoiceId": invoice.id}


def payment_status_changed(invoice: Invoice) -> Fields | str:
    """Return the fields of InvoicePaymentStatusChanged, or why they are not known."""
    total, paid = invoice.amount, Decimal(0)
    if invoice.billing_status == BillingStatus.PAID and total is not None:
        paid = total
    # A payment of an invoice that is not paid may have failed, or be a part of it, or the last of several.
    elif invoice.payment_info is not None or total is None:
        return _NO_AMOUNT
    return {
        "invoiceId": invoice.id,
        "billingStatus": str(invoice.billing_status),
        "amountDue": total - paid,
        "amountPaid": paid,
        "total": total,
        "dueDate": invoice.due_date,
        "paidAt": None,
        "invoicePdfUrl": None,
    }


def with_event(missing: MissingEvent, kind: type[Event], fields: Fields | str) -> MissingEvent:
    """Add the event with these fields, or the obstacle."""
    if isinstance(fields, str):
        return replace(missing, obstacle=fields)
    try:
        return replace(missing, event=kind.model_validate(fields))
    except ValidationError as error:
        unusable = ", ".join(sorted({str(mistake["loc"][0]) for mistake in error.errors()}))
        return replace(missing, obstacle=f"the API does not show a usable {unusable}")


def inject(inbox: Inbox, missing: Sequence[MissingEvent], now: datetime) -> Iterator[int]:
    """Store the events that could be made, and yield how many of each batch are new. Wakes the workers.

    The key of a delivery depends on the event's type and object alone, so none is stored a second time.
    """
    makeable = [candidate for candidate in missing if candidate.event is not None]
    for start in range(0, len(makeable), _BATCH):
        batch = makeable[start : start + _BATCH]
        receipts = ingest(inbox.database, [_delivery(candidate, now) for candidate in batch])
        inbox.waker.wake()
        yield sum(receipt.status is PutStatus.ACCEPTED for receipt in receipts)


def _delivery(missing: MissingEvent, now: datetime) -> NewDelivery:
    event = missing.event
    assert event is not None  # noqa: S101 - for the type
    identity = [missing.event_type, missing.resource_id]
    if isinstance(event, InvoicePaymentStatusChanged):
        identity.append(str(event.billing_status))
    digest = sha256(json.dumps(identity).encode()).hexdigest()[:32]
    headers = {"CONTENT_TYPE": "application/json", "X_WEBHOOK_TYPE": missing.event_type}
    return NewDelivery(
        RECONCILE_SOURCE,
        f"{missing.event_type}-{digest}",
        missing.event_type,
        event.to_json(),
        json.dumps(headers),
        None,
        now,
        known=True,
    )
