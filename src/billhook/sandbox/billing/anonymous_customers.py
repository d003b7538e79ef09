"""Merge an anonymous customer into the customer that a request gives its name.

Usage under an unknown alias creates an anonymous customer of that name. When a request gives the name to
a known customer, the usage was that customer's all along, so its events are moved. Source: spec, "States and
transitions", "Customer absent"; what becomes of an anonymous customer is not shown.
"""

from __future__ import annotations

from sqlalchemy import delete, update

from billhook.resources import Customer, CustomerUpdate
from billhook.sandbox.billing.contracts import customers
from billhook.sandbox.billing.invoicing import statements
from billhook.sandbox.billing.usage.daily_usage import UsageBatch
from billhook.sandbox.storage.columns import in_texts
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.tables import (
    alias,
    contract,
    credit_pool,
    customer,
    event,
    invoice,
    measurement,
    usage_day,
    usage_instance,
)

_USED_BY_ID = (contract, invoice, credit_pool, measurement)
"""Tables that have a customer only if a request named it by its id: such a customer is not merged."""


def save_customer(tx: Transaction, stored: Customer | None, request: CustomerUpdate) -> Customer:
    """Create a customer, or change `stored`, and merge the anonymous customers of its names into it."""
    # First the names, then the customer: it may have no names that are still taken.
    claimed = _release_names(tx, request, stored.id if stored else "")
    saved = customers.update(tx, stored, request) if stored else customers.create(tx, request)
    _merge_into(tx, claimed, saved.id)
    return saved


def _release_names(tx: Transaction, request: CustomerUpdate, owner_id: str) -> list[str]:
    """Delete the aliases of the anonymous customers whose names the request claims, and return their ids."""
    names = [*(request.aliases or []), *([] if request.external_id is None else [request.external_id])]
    # A customer may give itself a name that it has already.
    owners = {owner for owner in customers.ids_by_alias(tx, names).values() if owner != owner_id}
    claimed = [owner for owner in sorted(owners) if _has_only_usage(tx, owner)]
    if claimed:
        tx.execute(delete(alias).where(in_texts(alias.c.customer_id, claimed)))
    return claimed


def _has_only_usage(tx: Transaction, customer_id: str) -> bool:
    """Return whether this is an anonymous customer with usage events and nothing else."""
    return tx.any(customer, customer.c.id == customer_id, customer.c.anonymous) and not any(
        tx.any(table, table.c.customer_id == customer_id) for table in _USED_BY_ID
    )


def _merge_into(tx: Transaction, claimed: list[str], owner_id: str) -> None:
    """Move the events of the claimed customers to this one, and apply the change of its usage.

    The events are not counted by any meter if the customer is Inactive.
    """
    is_counted = not customers.inactive_customers(tx, [owner_id])
    usage = UsageBatch()
    for customer_id in claimed:
        own = event.c.customer_id == customer_id
        if is_counted:
            usage.add_stored(tx, owner_id, own)
        # Month-end reports list events without meters as uncharged.
        uncounted = {} if is_counted else {"meter_ids": ""}
        tx.execute(update(event).where(own).values(customer_id=owner_id, **uncounted))
        # Not moved but counted again: the owner's days may be cut at other moments.
        for table in (usage_instance, usage_day):
            tx.execute(delete(table).where(table.c.customer_id == customer_id))
        # Nothing refers to it any more: only customers without other rows are merged.
        tx.execute(delete(customer).where(customer.c.id == customer_id))
    statements.handle_usage_changed(tx, usage.write(tx))
