"""Customers: the names that identify their usage, their fields, and what they owe.

Source: spec, "Resources and their fields", Customer; "States and transitions".
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence, Sized
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy import update as update_rows

from billhook.events import AnonymousCustomer, CustomerCreated, IntegrationEntity, NewCustomer
from billhook.resources import Customer, CustomerUpdate
from billhook.sandbox import scheduled_jobs
from billhook.sandbox.billing.contracts import custom_fields
from billhook.sandbox.billing.usage import money
from billhook.sandbox.billing.usage.money import EXACT, in_dollars
from billhook.sandbox.clock import MAX_TIME
from billhook.sandbox.errors import already_exists, check_key, invalid_request, key_error
from billhook.sandbox.options import MAX_ALIASES
from billhook.sandbox.storage.columns import in_texts
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import Repository, request_document, to_document
from billhook.sandbox.storage.tables import (
    alias,
    contract,
    customer,
    customer_integration,
    inactive_span,
    invoice,
)
from billhook.sandbox.webhooks.outbox import raise_event

CUSTOMERS = Repository(customer, Customer, "cus")
INACTIVE = "Inactive"
"""The status of a customer that is neither metered nor billed."""
MISSING_CONTRACT_AFTER = timedelta(days=7)
"""How long after its creation a customer without a contract is reported."""
_DAYS = re.compile(r"[0-9]{1,4}")
_NO_AMOUNT = Decimal("0.00")
_FIELD_BY_STATUS = {
    "None": "open_amount",
    "Overdue": "overdue_amount",
    "PendingPayment": "pending_payment_amount",
    "Paid": "paid_amount",
}


def find(tx: Transaction, customer_id: str) -> Customer:
    """Return the customer with this id, as stored; not_found without one."""
    return CUSTOMERS.get(tx, customer_id)


def find_named(tx: Transaction, customer_id: str) -> Customer:
    """Return the customer that the field customerId of a request names; 400 without one."""
    # Not 404: the id is no part of the request's path.
    found = CUSTOMERS.find(tx, customer_id)
    if found is None:
        raise invalid_request("there is no such customer", "customerId")
    return found


def ids_by_alias(tx: Transaction, aliases: Collection[str]) -> dict[str, str]:
    """Return the customer ids by alias. Unknown aliases are left out."""
    # An invalid key matches no customer; do not query for it.
    wanted = {name for name in aliases if key_error(name) is None}
    named = in_texts(alias.c.alias, wanted)
    rows = tx.execute(select(alias.c.alias, alias.c.customer_id).where(named))
    return {row.alias: row.customer_id for row in rows}


def is_inactive(stored: Customer) -> bool:
    """Return whether the customer is neither metered nor billed now."""
    return stored.status == INACTIVE


def was_inactive(tx: Transaction, customer_id: str, start: datetime, end: datetime) -> bool:
    """Return whether the customer was Inactive throughout the time from `start` to `end`."""
    spans = inactive_span.c
    found = select(spans.since, spans.until).where(spans.customer_id == customer_id).order_by(spans.since)
    # One span may end at the moment at which the next one begins.
    for since, until in tx.execute(found):
        if since <= start < (until or MAX_TIME):
            start = until or MAX_TIME
    return start >= end


def _note_status(tx: Transaction, before: Customer | None, stored: Customer) -> None:
    """Note that a customer becomes Inactive, or is so no longer."""
    was, spans = before is not None and is_inactive(before), inactive_span.c
    if is_inactive(stored) and not was:
        tx.execute(insert(inactive_span).values(customer_id=stored.id, since=tx.now))
    elif was and not is_inactive(stored):
        ended = update_rows(inactive_span).where(spans.customer_id == stored.id, spans.until.is_(None))
        tx.execute(ended.values(until=tx.now))


def inactive_customers(tx: Transaction, customer_ids: Collection[str]) -> set[str]:
    """Return those of these customer ids that are Inactive."""
    found = select(customer.c.id).where(in_texts(customer.c.id, customer_ids), customer.c.status == INACTIVE)
    return set(tx.scalars(found))


def check_active(stored: Customer) -> None:
    """Reject a request that would meter or bill an Inactive customer."""
    if is_inactive(stored):
        raise invalid_request(
            "the customer is Inactive, neither metered nor billed: set its status to Active first",
            "customerId",
            code="inactive_customer",
        )


def create(tx: Transaction, request: CustomerUpdate) -> Customer:
    """Create a customer.

    Emits CustomerCreated; and NewCustomerWithoutContract after a week, if it has no contract by then.
    """
    if request.name is None:
        raise invalid_request("a customer needs a name: set name", "name")
    fields = {"status": "Active", **_changes(tx, request, None)}
    created = CUSTOMERS.add(tx, fields, anonymous=False)
    _note_status(tx, None, created)
    _store_names(tx, created)
    raise_event(tx, CustomerCreated.model_validate(event_details(tx, created).model_dump(exclude_unset=True)))
    scheduled_jobs.schedule(tx, tx.now + MISSING_CONTRACT_AFTER, "customer_without_contract", created.id)
    return created


def make_anonymous(tx: Transaction, name: str) -> str:
    """Create a customer for usage under an unknown alias and return its id. Emits AnonymousCustomer.

    Source: spec, "Events", rule 5.
    """
    data = {"name": name, "aliases": [name], "status": "Active"}
    created = CUSTOMERS.add(tx, data, anonymous=True)
    _store_names(tx, created)
    raise_event(tx, AnonymousCustomer(id=created.id, name=name, external_id=None, aliases=[name]))
    return created.id


def update(tx: Transaction, stored: Customer, request: CustomerUpdate) -> Customer:
    """Change the fields that the request contains; a null clears its field.

    An anonymous customer becomes an ordinary one.
    """
    if "name" in request.model_fields_set and request.name is None:
        raise invalid_request("name cannot be null: give a name, or leave the field out", "name")
    changes = _changes(tx, request, stored)
    # Any update by its id shows that the user knows this customer.
    changed = CUSTOMERS.change(tx, stored, changes, anonymous=False)
    _note_status(tx, stored, changed)
    _store_names(tx, changed)
    return changed


def _check_currency_change(tx: Transaction, stored: Customer, currency: str | None) -> None:
    """Refuse another currency while a contract is billed in this one: past cycles would change too."""
    billed_in = money.billing_currency(None, stored)
    if billed_in == money.billing_currency(None, stored.model_copy(update={"currency": currency})):
        return
    of = contract.c
    active = of.customer_id == stored.id, of.status == "Active", of.deleted_at.is_(None)
    for contract_id, body in tx.execute(select(of.id, of.body).where(*active)):
        if json.loads(body).get("currency") is None:
            text = f"contract {contract_id} is billed in {billed_in}, the customer's: delete it first"
            raise invalid_request(text, "currency")


def event_details(tx: Transaction, stored: Customer) -> NewCustomer:
    """Return the customer as CustomerCreated and ContractCreated include it, as of now."""
    linked = stored.external_integration or []
    return NewCustomer(
        date=tx.now,
        customer_id=stored.id,
        name=str(stored.name),
        external_id=stored.external_id,
        aliases=stored.aliases or [],
        integration_entities=[
            IntegrationEntity(
                integration_provider=str(each.type),
                integration_external_id=str(each.id),
                sync_status="Synced",
            )
            for each in linked
        ],
    )


def _changes(tx: Transaction, request: CustomerUpdate, stored: Customer | None) -> dict[str, Any]:
    """Check the fields of the request and return them as they are stored, by their names on the wire."""
    _check_fields(request)
    if request.currency is not None:
        money.check_currency(tx, request.currency)
    if stored is not None and "currency" in request.model_fields_set:
        _check_currency_change(tx, stored, request.currency)
    _check_owner(tx, request, stored.id if stored else "")
    changes = request_document(request)
    if request.aliases is not None:
        # A repeated alias is one alias.
        changes["aliases"] = list(dict.fromkeys(request.aliases))
    if "status" in changes:
        changes["status"] = request.status or "Active"
    if "customFields" in changes:
        del changes["customFields"]
        # A null for the whole list clears all values; a list changes only the fields that it names.
        kept = (stored and request.custom_fields is not None and stored.custom_field_values) or []
        kept = custom_fields.set_values(tx, "Customer", kept, request.custom_fields or [])
        changes["customFieldValues"] = [to_document(value) for value in kept]
    return changes


def _check_owner(tx: Transaction, request: CustomerUpdate, owner_id: str) -> None:
    """Reject aliases and integrations that belong to a customer other than `owner_id`."""
    names = {name: f"aliases.{n}" for n, name in enumerate(request.aliases or [])}
    if request.external_id is not None:
        # The external id is a name of its usage, too, so it must not be another customer's alias.
        names.setdefault(request.external_id, "externalId")
    taken = [names[name] for name, owner in ids_by_alias(tx, names).items() if owner != owner_id]
    if taken:
        raise already_exists("another customer has this name", *taken)
    for n, each in enumerate(request.external_integration or []):
        owner = id_by_integration(tx, str(each.type), str(each.id))
        if owner not in (None, owner_id):
            raise already_exists("another customer is linked to this entity", f"externalIntegration.{n}.id")


def _store_names(tx: Transaction, owner: Customer) -> None:
    """Store the aliases and integrations that `owner` can be found by."""
    # Usage may name a customer by its own id, too.
    names = {owner.id, owner.external_id or owner.id, *(owner.aliases or [])}
    # Replaced as a whole: an update may have removed any of them.
    tx.execute(delete(alias).where(alias.c.customer_id == owner.id))
    tx.execute(insert(alias), [{"alias": name, "customer_id": owner.id} for name in names])
    linked = {(each.type, each.id) for each in owner.external_integration or []}
    tx.execute(delete(customer_integration).where(customer_integration.c.customer_id == owner.id))
    for provider, external_id in linked:
        tx.execute(
            insert(customer_integration).values(type=provider, external_id=external_id, customer_id=owner.id)
        )


def id_by_integration(tx: Transaction, provider: str, external_id: str) -> str | None:
    """Return the id of the customer that is linked to this entity of another provider; None without one."""
    linked = customer_integration.c
    return tx.scalar(
        select(linked.customer_id).where(linked.type == provider, linked.external_id == external_id)
    )


def _check_fields(request: CustomerUpdate) -> None:
    """Reject values that could not be stored, or not be looked up by."""
    if request.name is not None and not request.name.strip():
        raise invalid_request("name is empty: give one", "name")
    if request.due_days is not None and not _DAYS.fullmatch(request.due_days):
        raise invalid_request('dueDays must be a whole number as text, such as "30"', "dueDays")
    check_key(request.external_id, "externalId")
    _check_count(request.aliases, "aliases")
    for n, name in enumerate(request.aliases or []):
        check_key(name, f"aliases.{n}")
    _check_count(request.external_integration, "externalIntegration")
    for n, each in enumerate(request.external_integration or []):
        param = f"externalIntegration.{n}.type"
        check_key(each.type or "", param)
        # In GET /customers/integration/{integrationType}/{integrationId} the first slash ends the type.
        if "/" in str(each.type):
            raise invalid_request(f"{param} holds a slash: choose another", param)
        check_key(each.id or "", f"externalIntegration.{n}.id")


def _check_count(request: Sized | None, param: str) -> None:
    if request is not None and len(request) > MAX_ALIASES:
        raise invalid_request(f"{param} has at most {MAX_ALIASES} entries", param)


def customer_views(tx: Transaction, stored: Sequence[Customer]) -> list[Customer]:
    """Return these customers as the service shows them: with amounts owed."""
    owed = owed_amounts(tx, [each.id for each in stored])
    return [
        each.model_copy(update={"custom_field_values": each.custom_field_values or [], **owed[each.id]})
        for each in stored
    ]


def owed_amounts(tx: Transaction, customer_ids: Collection[str]) -> dict[str, dict[str, Decimal]]:
    """Return the five amounts of each of these customers, by Customer's field names. At most 1000.

    Amounts are in US dollars, each invoice at the rate in force when it was issued. The outstanding amount is
    what is still due, including Rejected invoices; the four by status count whole invoices.
    """
    found = {
        customer_id: dict.fromkeys((*_FIELD_BY_STATUS.values(), "total_outstanding_amount"), _NO_AMOUNT)
        for customer_id in customer_ids
    }
    of = invoice.c
    amounts = select(of.customer_id, of.billing_status, of.amount, of.amount_paid, of.usd_rate)
    rows = tx.execute(amounts.where(of.customer_id.in_(customer_ids)))
    with localcontext(EXACT):
        for row in rows:
            owed = found[row.customer_id]
            # Rejected has no amount of its own in the specification.
            if row.billing_status in _FIELD_BY_STATUS:
                owed[_FIELD_BY_STATUS[row.billing_status]] += in_dollars(row.amount, row.usd_rate)
            if row.billing_status != "Paid":
                # Rejected invoices are still owed, so only Paid ones are left out.
                due = row.amount - row.amount_paid
                owed["total_outstanding_amount"] += in_dollars(due, row.usd_rate)
    return found
