"""Ingest usage: batches of events, measurements that replace the events of a day, and cloud usage.

A batch is validated, matched to customers, metered and stored in a few statements. Source: spec, "Endpoints",
PUT /events; "States and transitions"; "Events", rule 5; "Resources and their fields", Measurement;
Cloud usage submission result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated

from pydantic import Field, StrictStr
from sqlalchemy import select

from billhook.resources import (
    CloudUsageResult,
    CloudUsageSubmission,
    Measurement,
    NewMeasurement,
    StoredResource,
)
from billhook.sandbox.billing import customers, metered_items
from billhook.sandbox.billing.invoices import statements
from billhook.sandbox.billing.usage import daily_usage, meters
from billhook.sandbox.billing.usage.daily_usage import MICROSECONDS_PER_DAY, UsageKey, UsageRollup, day_number
from billhook.sandbox.billing.usage.event_batch import RawEventBatch, ValidEvent, validate_event
from billhook.sandbox.billing.usage.meters import CompiledMeter
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.options import check_key
from billhook.sandbox.storage.columns import in_texts
from billhook.sandbox.storage.repository import Repository, request_document
from billhook.sandbox.storage.tables import billing
from billhook.sandbox.storage.tables.usage import event, measurement
from billhook.sandbox.storage.transaction import Transaction

MEASUREMENTS = Repository(measurement, Measurement, "msr")
_INSERT_EVENT = (
    "INSERT INTO event (ref, name, alias, customer_id, at, meter_ids, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(slots=True)
class IngestResult:
    """A validated batch; both parts are in the order in which they were sent."""

    accepted: list[ValidEvent] = field(default_factory=list)
    rejected: list[tuple[object, str]] = field(default_factory=list)
    """Each rejected event as it was sent, and the reason."""


def validate_batch(tx: Transaction, batch: RawEventBatch) -> IngestResult:
    """Separate valid events from rejected ones. Of two events with one ref, the first is valid."""
    checked = list(map(validate_event, batch.events, batch.texts(tx)))
    # One query for the whole batch.
    wanted = in_texts(event.c.ref, (valid.ref for valid in checked if isinstance(valid, ValidEvent)))
    stored = set(tx.connection.scalars(select(event.c.ref).where(wanted)))
    result, refs = IngestResult(), set[str]()
    for sent, valid in zip(batch.events, checked, strict=True):
        if isinstance(valid, str):
            result.rejected.append((sent, valid))
        elif valid.ref in stored:
            result.rejected.append((sent, "an event with this ref exists already"))
        elif valid.ref in refs:
            result.rejected.append((sent, "an event before it in this batch has this ref already"))
        else:
            refs.add(valid.ref)
            result.accepted.append(valid)
    return result


def ingest(tx: Transaction, batch: RawEventBatch) -> IngestResult:
    """Store the valid events of a batch and apply the change of usage. Creates anonymous customers.

    Events of an Inactive customer are stored, but counted by no meter.
    """
    result = validate_batch(tx, batch)
    if not result.accepted:
        return result
    # Unknown aliases get anonymous customers, in the order of the events.
    names = dict.fromkeys(valid.alias for valid in result.accepted)
    owners = customers.ids_by_alias(tx, names)
    owners |= {name: customers.make_anonymous(tx, name) for name in names if name not in owners}
    meters_by_name, rollups, rows = compiled_meters(tx, result.accepted), UsageRollup(), []
    inactive = customers.inactive_customers(tx, set(owners.values()))
    days = [valid.at // MICROSECONDS_PER_DAY for valid in result.accepted]
    cuts = daily_usage.cuts_by_day(tx, set(owners.values()), days)
    for valid in result.accepted:
        customer_id = owners[valid.alias]
        counting = () if customer_id in inactive else meters_by_name.get(valid.name, ())
        # Only meters that the event has a value for: the month-end report asks which events were charged.
        meter_ids = " ".join(sorted(rollups.add(customer_id, valid.at, valid.data, counting, cuts)))
        rows.append((valid.ref, valid.name, valid.alias, customer_id, valid.at, meter_ids, valid.text))
    # The driver's own executemany: SQLAlchemy would convert each value of a thousand rows.
    tx.connection.exec_driver_sql(_INSERT_EVENT, rows)
    apply_usage_changes(tx, rollups.write(tx))
    return result


def compiled_meters(tx: Transaction, events: Iterable[ValidEvent]) -> dict[str, list[CompiledMeter]]:
    """Return the meters for the names of these events, by eventName."""
    found = meters.by_event_name(tx, {valid.name for valid in events})
    return {name: [CompiledMeter(meter) for meter in of_name] for name, of_name in found.items()}


def set_measurement(tx: Transaction, request: NewMeasurement) -> Measurement:
    """Set the usage of a customer's day. A second measurement of a day changes the first and keeps its id."""
    # Unlike events, which are stored uncounted, a measurement is nothing but a count.
    customers.check_active(customers.find_named(tx, request.customer_id))
    meter = meters.METERS.find(tx, request.meter_id) or meters.find_by_product(tx, request.meter_id)
    if meter is None:
        raise invalid_request("meterId matches no meter, and no product with a meter", "meterId")
    if request.value < 0:
        raise invalid_request("value is below 0: a day's usage is 0 or more", "value")
    of_usage = request.usage_date
    try:
        day = day_number(date(of_usage.year, of_usage.month, of_usage.day))
    except (ValueError, OverflowError):
        raise invalid_request("usageDate is not a day of the calendar", "usageDate") from None
    data = request_document(request)
    # The first row of the day, also where cuts split the day: a measurement is of the whole day.
    row = (request.customer_id, meter.id, day, day * MICROSECONDS_PER_DAY)
    of = measurement.c
    there = MEASUREMENTS.first(
        tx, of.customer_id == request.customer_id, of.measured_meter_id == meter.id, of.day == day
    )
    if there is None:
        stored = MEASUREMENTS.add(tx, data, measured_meter_id=meter.id, day=day)
    else:
        stored = MEASUREMENTS.change(tx, there, data)
    daily_usage.set_measured(tx, row, request.value)
    apply_usage_changes(tx, {row})
    return stored


def apply_usage_changes(tx: Transaction, changed: Collection[UsageKey]) -> None:
    """Apply changed usage: emit threshold events and draw credits, then bill usage that came late."""
    # In this order: credits are drawn first, so that late usage is charged only for the rest.
    metered_items.handle_usage_changed(tx, changed)
    statements.handle_usage_changed(tx, changed)


class CloudUsageRecord(StoredResource, CloudUsageResult, register=False):
    """A result as it is stored."""

    product_code: Annotated[StrictStr, Field(description="Code of the product.", examples=["API-1"])]


SUBMISSIONS = Repository(billing.cloud_usage, CloudUsageRecord, "cld")


def store_cloud_usage(tx: Transaction, request: CloudUsageSubmission) -> None:
    """Store each result; skip one whose idempotencyKey is stored already or occurs earlier in the request."""
    if not request.product_code.strip():
        raise invalid_request("productCode is empty: give one", "productCode")
    for n, result in enumerate(request.results):
        key = result.idempotency_key
        if key is not None:
            check_key(key, f"results.{n}.idempotencyKey")
            # The same idempotencyKey means the same result, submitted again.
            if SUBMISSIONS.first(tx, billing.cloud_usage.c.idempotency_key == key):
                continue
        data = request_document(result)
        SUBMISSIONS.add(tx, {**data, "productCode": request.product_code})
