"""Meters: which events count, and how they are added up. The specification shows no fields of theirs.

Source: spec, "Endpoints", Meters; "Event (ingested)", on eventName; POST /events/dry-run.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import select

from billhook.sandbox.billing.meter_fields import Meter, NewMeter
from billhook.sandbox.limits import MAX_CONDITIONS
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.bulk import among
from billhook.sandbox.storage.documents import as_sent
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.entities import catalog_product
from billhook.sandbox.storage.tables.usage import meter
from billhook.sandbox.transaction import Transaction

__all__ = [
    "METERS",
    "by_event_name",
    "by_key",
    "create",
    "of_product",
    "of_products",
    "with_id_or_product",
]

METERS = Shelf(meter, Meter, "mtr")


def create(tx: Transaction, given: NewMeter) -> Meter:
    """Add a meter. It counts events that come from now on."""
    _check_filters(given)
    for name in ("event_name", "key", "property", "catalog_product_id"):
        if (text := getattr(given, name)) is not None:
            check_key(text, NewMeter.model_fields[name].alias or name)
    key = given.key or _free_key(tx, given.event_name)
    if by_key(tx, given.event_name, key) is not None:
        raise invalid_request("another meter of this event has this key", "key", code="already_exists")
    if given.catalog_product_id is not None:
        _check_product(tx, given.catalog_product_id)
    data = as_sent(given)
    return METERS.add(
        tx,
        {**data, "key": key, "filters": data.get("filters") or []},
        event_name=given.event_name,
        key=key,
        catalog_product_id=given.catalog_product_id,
    )


def of_product(tx: Transaction, catalog_product_id: str) -> Meter | None:
    """The meter that measures the usage of a catalog product."""
    return METERS.first(tx, meter.c.catalog_product_id == catalog_product_id)


def of_products(tx: Transaction, catalog_product_ids: Collection[str]) -> dict[str, Meter]:
    """The same of several products, by their ids and by one query; those without a meter are left out."""
    which = among(tx.connection, meter.c.catalog_product_id, catalog_product_ids)
    return {str(each.catalog_product_id): each for each in METERS.all(tx, which)}


def with_id_or_product(tx: Transaction, meter_or_product_id: str) -> Meter | None:
    """The meter with this id, or that of the catalog product with this id. Source: spec, Measurement."""
    return METERS.find(tx, meter_or_product_id) or of_product(tx, meter_or_product_id)


def by_key(tx: Transaction, event_name: str, key: str) -> Meter | None:
    """The meter of this event with this key."""
    return METERS.first(tx, meter.c.event_name == event_name, meter.c.key == key)


def by_event_name(tx: Transaction, names: Collection[str]) -> dict[str, list[Meter]]:
    """The meters of events with these names, oldest first. At most 1000 names."""
    found: defaultdict[str, list[Meter]] = defaultdict(list)
    for one in METERS.all(tx, meter.c.event_name.in_(names)):
        found[one.event_name].append(one)
    return found


def _check_filters(given: NewMeter) -> None:
    """Each of them is a condition of its own for every event that is added up."""
    if len(given.filters) > MAX_CONDITIONS:
        raise invalid_request(f"a meter has at most {MAX_CONDITIONS} filters", "filters")
    for n, one in enumerate(given.filters):
        if isinstance(one.value, list) and len(one.value) > MAX_CONDITIONS:
            raise invalid_request(f"a filter has at most {MAX_CONDITIONS} values", f"filters.{n}.value")


def _free_key(tx: Transaction, event_name: str) -> str:
    """The event's name, with a number if a meter has that already."""
    names = itertools.chain([event_name], (f"{event_name}-{n}" for n in itertools.count(2)))
    return next(name for name in names if by_key(tx, event_name, name) is None)


def _check_product(tx: Transaction, catalog_product_id: str) -> None:
    there = select(catalog_product.c.seq).where(catalog_product.c.id == catalog_product_id)
    if tx.connection.execute(there).first() is None:
        raise invalid_request("there is no such catalog product", "catalogProductId")
    if of_product(tx, catalog_product_id) is not None:
        raise invalid_request(
            "another meter measures this product", "catalogProductId", code="already_exists"
        )
