"""Measurements: the usage of a day told as one figure, which stands for its events.

Source: spec, "Resources and their fields", Measurement.
"""

from __future__ import annotations

from datetime import date
from typing import Any

from sqlalchemy import insert, update

from billhook.resources import Measurement, NewMeasurement, UsageDate
from billhook.sandbox.billing import customers, meters, usage_changes
from billhook.sandbox.billing.exact import ZERO
from billhook.sandbox.billing.judging import MICROSECONDS_A_DAY
from billhook.sandbox.billing.rollups import Key
from billhook.sandbox.billing.usage import day_of
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.documents import as_sent
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.usage import measurement, usage_day
from billhook.sandbox.transaction import Transaction

__all__ = ["MEASUREMENTS", "measure"]

MEASUREMENTS = Shelf(measurement, Measurement, "msr")


def measure(tx: Transaction, given: NewMeasurement) -> Measurement:
    """Set the figure of a customer's day; an earlier one of the same day is changed, and keeps its id."""
    owner = customers.CUSTOMERS.find(tx, given.customer_id)
    if owner is None:
        raise invalid_request("there is no such customer", "customerId")
    customers.check_active(owner)
    meter = meters.with_id_or_product(tx, given.meter_id)
    if meter is None:
        raise invalid_request("meterId is the id of no meter, and of no product that has one", "meterId")
    if given.value < 0:
        raise invalid_request("value is below 0: a day's usage is 0 or more", "value")
    day = _day(given.usage_date)
    data = as_sent(given)
    key: dict[str, Any] = {"customer_id": given.customer_id, "meter_id": meter.id, "day": day}
    row = (given.customer_id, meter.id, day, day * MICROSECONDS_A_DAY)
    columns = (measurement.c.customer_id, measurement.c.meter_id, measurement.c.day)
    there = MEASUREMENTS.first(
        tx, *(column == value for column, value in zip(columns, key.values(), strict=True))
    )
    stored = MEASUREMENTS.add(tx, data, **key) if there is None else MEASUREMENTS.change(tx, there, data)
    _replace(tx, row, stored)
    usage_changes.follow(tx, {row})
    return stored


def _day(given: UsageDate) -> int:
    try:
        return day_of(date(given.year, given.month, given.day))
    except (ValueError, OverflowError):
        raise invalid_request("usageDate is no day of the calendar", "usageDate") from None


def _replace(tx: Transaction, row: Key, stored: Measurement) -> None:
    """Put the figure on the row with which the day begins."""
    key = {column.name: value for column, value in zip(usage_day.primary_key.columns, row, strict=True)}
    these = [column == value for column, value in zip(usage_day.primary_key.columns, row, strict=True)]
    changed = tx.connection.execute(update(usage_day).where(*these).values(measured=stored.value))
    if changed.rowcount == 0:
        tx.connection.execute(insert(usage_day).values(**key, events=0, total=ZERO, measured=stored.value))
