"""Customers: the names that their usage comes under, and what they owe.

Source: spec, "Resources and their fields", Customer; "States and transitions".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select

from billhook.events import AnonymousCustomer, CustomerCreated, IntegrationEntity, NewCustomer
from billhook.resources import Customer, CustomerUpdate, CustomFieldValue
from billhook.sandbox.billing import agenda, currencies, custom_fields
from billhook.sandbox.billing.customer_rules import check
from billhook.sandbox.refusals import invalid_request, not_found
from billhook.sandbox.storage.bulk import among
from billhook.sandbox.storage.documents import as_document, as_sent
from billhook.sandbox.storage.keys import key_fault
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.entities import alias, customer, customer_integration
from billhook.sandbox.transaction import Transaction

__all__ = [
    "CUSTOMERS",
    "as_told",
    "by_alias",
    "by_external_id",
    "by_integration",
    "change",
    "check_active",
    "create",
    "find",
    "inactive",
    "is_inactive",
    "make_anonymous",
    "match",
]

CUSTOMERS = Shelf(customer, Customer, "cus")
INACTIVE = "Inactive"
"""The status of a customer that is neither metered nor billed."""
UNTIL_MISSED = timedelta(days=7)
"""How long after it was created a customer's contract is missed."""


def find(tx: Transaction, customer_id: str) -> Customer:
    """The customer with this id, as it is stored; a refusal, not_found, if there is none."""
    return _there(CUSTOMERS.find(tx, customer_id))


def by_external_id(tx: Transaction, external_id: str) -> Customer:
    """The same by the id that it has in its user's own system."""
    return _there(CUSTOMERS.first(tx, customer.c.external_id == external_id))


def by_alias(tx: Transaction, name: str) -> Customer:
    """The same by any name that its usage may come under."""
    return find(tx, match(tx, [name]).get(name, ""))


def by_integration(tx: Transaction, provider: str, external_id: str) -> Customer:
    """The same by its counterpart at another provider."""
    return find(tx, _linked_to(tx, provider, external_id) or "")


def match(tx: Transaction, aliases: Collection[str]) -> dict[str, str]:
    """Whose usage it is: customer ids by alias, without those that nobody has."""
    wanted = {name for name in aliases if key_fault(name) is None}
    named = among(tx.connection, alias.c.alias, wanted)
    rows = tx.connection.execute(select(alias.c.alias, alias.c.customer_id).where(named))
    return {row.alias: row.customer_id for row in rows}


def is_inactive(stored: Customer) -> bool:
    """Is it neither metered nor billed now?"""
    return stored.status == INACTIVE


def inactive(tx: Transaction, customer_ids: Collection[str]) -> set[str]:
    """Those of these customers that are."""
    found = select(customer.c.id).where(
        among(tx.connection, customer.c.id, customer_ids), customer.c.inactive.is_(True)
    )
    return set(tx.connection.scalars(found))


def check_active(stored: Customer) -> None:
    """Refuse what meters or bills a customer that is."""
    if is_inactive(stored):
        raise invalid_request(
            "the customer is Inactive, neither metered nor billed: set its status to Active first",
            "customerId",
            code="inactive_customer",
        )


def create(tx: Transaction, given: CustomerUpdate) -> Customer:
    """Add a customer. Raises CustomerCreated, and NewCustomerWithoutContract if it has none in a week."""
    if given.name is None:
        raise invalid_request("a customer has a name: give one", "name")
    check(given)
    if given.currency is not None:
        currencies.check(tx, given.currency, "currency")
    _check_owner(tx, given, "")
    changes = {"status": "Active", **_changes(tx, given, [])}
    made = CUSTOMERS.add(
        tx,
        changes,
        external_id=given.external_id,
        anonymous=False,
        inactive=changes["status"] == INACTIVE,
    )
    _link(tx, made)
    tx.raise_event(CustomerCreated.model_validate(as_told(tx, made).model_dump(exclude_unset=True)))
    agenda.add(tx, tx.now + UNTIL_MISSED, "customer_without_contract", made.id)
    return made


def make_anonymous(tx: Transaction, name: str) -> str:
    """Make a customer up for usage under a name that nobody has; its id. Raises AnonymousCustomer.

    Source: spec, "Events", rule 5.
    """
    data = {"name": name, "aliases": [name], "status": "Active"}
    made = CUSTOMERS.add(tx, data, external_id=None, anonymous=True)
    _link(tx, made)
    tx.raise_event(AnonymousCustomer(id=made.id, name=name, external_id=None, aliases=[name]))
    return made.id


def change(tx: Transaction, stored: Customer, given: CustomerUpdate) -> Customer:
    """Change what is given; a null clears its field. An anonymous one is an ordinary one from then on."""
    if "name" in given.model_fields_set and given.name is None:
        raise invalid_request("a customer has a name: give one, or leave it out", "name")
    check(given)
    if given.currency is not None:
        currencies.check(tx, given.currency, "currency")
    _check_owner(tx, given, stored.id)
    changes = _changes(tx, given, stored.custom_field_values or [])
    columns: dict[str, Any] = {"anonymous": False}
    if "status" in changes:
        columns["inactive"] = changes["status"] == INACTIVE
    if "external_id" in given.model_fields_set:
        columns["external_id"] = given.external_id
    changed = CUSTOMERS.change(tx, stored, changes, **columns)
    _link(tx, changed)
    return changed


def as_told(tx: Transaction, stored: Customer) -> NewCustomer:
    """The customer as CustomerCreated and ContractCreated tell it, now."""
    told: dict[str, Any] = {
        "date": tx.now,
        "customer_id": stored.id,
        "name": stored.name,
        "external_id": stored.external_id,
        "aliases": stored.aliases or [],
        "integration_entities": [
            IntegrationEntity(
                integration_provider=str(each.type),
                integration_external_id=str(each.id),
                sync_status="Synced",
            )
            for each in stored.external_integration or []
        ],
    }
    return NewCustomer(**told)


def _there(found: Customer | None) -> Customer:
    if found is None:
        raise not_found("customer")
    return found


def _changes(tx: Transaction, given: CustomerUpdate, values: Sequence[CustomFieldValue]) -> dict[str, Any]:
    """What is given, as it is kept, in the wire's spelling."""
    changes = as_sent(given)
    if given.aliases is not None:
        changes["aliases"] = list(dict.fromkeys(given.aliases))
    if "status" in changes:
        changes["status"] = given.status or "Active"
    if "customFields" in changes:
        del changes["customFields"]
        kept = [] if given.custom_fields is None else values
        kept = custom_fields.set_values(tx, "Customer", kept, given.custom_fields or [])
        changes["customFieldValues"] = [as_document(value) for value in kept]
    return changes


def _check_owner(tx: Transaction, given: CustomerUpdate, owner_id: str) -> None:
    """Refuse names and counterparts that another customer than `owner_id` has."""
    names = {name: f"aliases.{n}" for n, name in enumerate(given.aliases or [])}
    if given.external_id is not None:
        names.setdefault(given.external_id, "externalId")
    taken = [names[name] for name, owner in match(tx, names).items() if owner != owner_id]
    if taken:
        raise invalid_request("another customer has this name", *taken, code="already_exists")
    for n, each in enumerate(given.external_integration or []):
        owner = _linked_to(tx, str(each.type), str(each.id))
        if owner not in (None, owner_id):
            raise invalid_request(
                "another customer is linked to it", f"externalIntegration.{n}.id", code="already_exists"
            )


def _link(tx: Transaction, owner: Customer) -> None:
    """Write down what `owner` is found by."""
    names = {owner.id, owner.external_id or owner.id, *(owner.aliases or [])}
    tx.connection.execute(delete(alias).where(alias.c.customer_id == owner.id))
    tx.connection.execute(insert(alias), [{"alias": name, "customer_id": owner.id} for name in names])
    linked = {(each.type, each.id) for each in owner.external_integration or []}
    tx.connection.execute(delete(customer_integration).where(customer_integration.c.customer_id == owner.id))
    for provider, external_id in linked:
        tx.connection.execute(
            insert(customer_integration).values(type=provider, external_id=external_id, customer_id=owner.id)
        )


def _linked_to(tx: Transaction, provider: str, external_id: str) -> str | None:
    linked = customer_integration.c
    return tx.connection.execute(
        select(linked.customer_id).where(linked.type == provider, linked.external_id == external_id)
    ).scalar_one_or_none()
