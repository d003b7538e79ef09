"""Customers that claim a name which usage had come under before they were known.

Usage under a name that nobody had made an anonymous customer of that name; whoever is given the name then is
who it was all the time, and takes its events over. Source: spec, "States and transitions", "Customer absent";
what becomes of an anonymous customer is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, delete, select, update

from billhook.resources import Customer, CustomerUpdate
from billhook.sandbox.billing import customers, meters, usage_changes, usage_cuts
from billhook.sandbox.billing.judging import MICROSECONDS_A_DAY
from billhook.sandbox.billing.metering import Metering
from billhook.sandbox.billing.rollups import Rollups
from billhook.sandbox.storage.bulk import among
from billhook.sandbox.storage.tables.billing import contract, invoice
from billhook.sandbox.storage.tables.credit import credit_pool
from billhook.sandbox.storage.tables.entities import alias, customer
from billhook.sandbox.storage.tables.usage import event, measurement, usage_day, usage_instance
from billhook.sandbox.storage.types import microseconds
from billhook.sandbox.transaction import Transaction
from billhook.wire import strict_json

__all__ = ["change", "create"]

_MORE_THAN_USAGE = (contract, invoice, credit_pool, measurement)
"""Where a customer may stand that was dealt with by its id: such a one is not taken over."""


def create(tx: Transaction, given: CustomerUpdate) -> Customer:
    """As `customers.create`; the anonymous customers whose names are given become part of the new one."""
    claimed = _released(tx, given, "")
    made = customers.create(tx, given)
    _take_over(tx, claimed, made.id)
    return made


def change(tx: Transaction, stored: Customer, given: CustomerUpdate) -> Customer:
    """As `customers.change`, with the same."""
    claimed = _released(tx, given, stored.id)
    changed = customers.change(tx, stored, given)
    _take_over(tx, claimed, changed.id)
    return changed


def _released(tx: Transaction, given: CustomerUpdate, owner_id: str) -> list[str]:
    """Set the names free that `given` claims of anonymous customers: the ids of these, without names now."""
    names = [*(given.aliases or []), *([] if given.external_id is None else [given.external_id])]
    owners = {owner for owner in customers.match(tx, names).values() if owner != owner_id}
    claimed = [owner for owner in sorted(owners) if _is_usage_alone(tx, owner)]
    if claimed:
        tx.connection.execute(delete(alias).where(among(tx.connection, alias.c.customer_id, claimed)))
    return claimed


def _is_usage_alone(tx: Transaction, customer_id: str) -> bool:
    """Is it an anonymous customer that nobody has dealt with by its id?"""
    anonymous = select(customer.c.seq).where(customer.c.id == customer_id, customer.c.anonymous)
    if tx.connection.execute(anonymous).first() is None:
        return False
    return not any(
        tx.connection.execute(select(table.c.seq).where(table.c.customer_id == customer_id).limit(1)).first()
        for table in _MORE_THAN_USAGE
    )


def _take_over(tx: Transaction, claimed: list[str], owner_id: str) -> None:
    """Let the events of those be this customer's, and announce what its usage has passed by that.

    For one that is Inactive no meter counts them any more.
    """
    is_counted = not customers.inactive(tx, [owner_id])
    rollups = Rollups()
    for customer_id in claimed:
        own = event.c.customer_id == customer_id
        if is_counted:
            _count(tx, rollups, own, owner_id)
        uncounted = {} if is_counted else {"meter_ids": ""}
        tx.connection.execute(update(event).where(own).values(customer_id=owner_id, **uncounted))
        for table in (usage_instance, usage_day):
            tx.connection.execute(delete(table).where(table.c.customer_id == customer_id))
        tx.connection.execute(delete(customer).where(customer.c.id == customer_id))
    usage_changes.follow(tx, rollups.write(tx))


def _count(tx: Transaction, rollups: Rollups, own: ColumnElement[bool], owner_id: str) -> None:
    """Add what the meters that counted these events made of each, in the order in which they came."""
    metered: dict[str, Metering] = {}
    cuts = usage_cuts.of_customer(tx, owner_id)
    columns = (event.c.at, event.c.meter_ids, event.c.body)
    for at, meter_ids, body in tx.connection.execute(select(*columns).where(own).order_by(event.c.seq)):
        for meter_id in meter_ids.split():
            if meter_id not in metered:
                metered[meter_id] = Metering(meters.METERS.get(tx, meter_id))
            contribution = metered[meter_id].contribution(_data(body))
            if contribution is not None:
                moment = microseconds(at)
                day = moment // MICROSECONDS_A_DAY
                since = usage_cuts.since(cuts.get(day, ()), moment)
                rollups.add((owner_id, meter_id, day, since), contribution, moment)


def _data(body: str) -> Mapping[str, Any]:
    sent: Any = strict_json.loads(body.encode())
    return sent.get("data") or {}
