"""Ingest usage: batches of events, measurements that replace the events of a day, and cloud usage.

A batch is validated event by event, matched to customers, metered and stored in a few statements. Source:
spec, "Endpoints", PUT /events; "Limits"; "States and transitions"; "Events", rule 5; "Resources and their
fields", Event (ingested); Measurement; Cloud usage submission result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Self

from pydantic import ConfigDict, PrivateAttr
from sqlalchemy import select

from billhook import resources
from billhook.errors import InvalidJSON, InvalidResource
from billhook.fields import strict_json
from billhook.fields.model import require_object
from billhook.resources.usage import check_count, check_size
from billhook.sandbox.billing.contracts import customers
from billhook.sandbox.billing.invoicing import statements
from billhook.sandbox.billing.usage import daily_usage, meters
from billhook.sandbox.billing.usage.daily_usage import MICROSECONDS_PER_DAY, UsageBatch, day_number
from billhook.sandbox.billing.usage.meters import CompiledMeter
from billhook.sandbox.errors import check_key, invalid_request, key_error
from billhook.sandbox.storage.columns import in_texts, to_microseconds
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import Repository, request_document
from billhook.sandbox.storage.tables import event, measurement

_IN_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{3}(?:[0-9]{3})?)?Z")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
MEASUREMENTS = Repository(measurement, resources.Measurement, "msr")
_INSERT_EVENT = (
    "INSERT INTO event (ref, name, alias, customer_id, at, meter_ids, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
)


class RawEventBatch(resources.EventBatch, register=False):
    """A batch whose events are validated one by one: an invalid event does not reject the others."""

    model_config = ConfigDict(title="EventBatch")
    _body: str = PrivateAttr()

    @classmethod
    def from_json(cls, body: bytes) -> Self:
        """Parse a batch of 1 to 1000 elements, at most 256 KB. Raises InvalidResource and LimitBroken."""
        # Checked before parsing, so that an oversized body costs nothing.
        check_size(body)
        try:
            events = require_object(strict_json.loads(body), InvalidResource).get("events")
        except InvalidJSON as error:
            raise InvalidResource(str(error)) from None
        if not isinstance(events, list):
            mistake = {"loc": ("events",), "msg": "must be a list of events", "type": "list_type"}
            raise InvalidResource("the body is not a batch: events must be a list of events", [mistake])
        check_count(len(events))
        # Not validated here: `validate_event` reports each invalid event by itself.
        batch = cls.model_construct(events=events)
        batch._body = body.decode()
        return batch

    def texts(self, tx: Transaction) -> Sequence[str]:
        """Return the JSON of each event as it was sent, without white space."""
        # By SQLite, which copies it: formatting what was parsed takes as long as all else.
        rows = tx.connection.exec_driver_sql(
            "SELECT sent.value FROM json_each(?) AS field, json_each(field.value) AS sent"
            " WHERE field.key = 'events'",
            (self._body,),
        )
        return rows.scalars().all()


@dataclass(slots=True)
class ValidEvent:
    """A valid event."""

    ref: str
    name: str
    alias: str
    at: int
    """Its timestamp, in microseconds since 1970."""
    data: Mapping[str, Any]
    text: str
    """Its JSON, with the timestamp in UTC."""


def validate_event(sent: Any, text: str) -> ValidEvent | str:
    """Return the valid event, or the error as text; `text` is the JSON of what was `sent`.

    The fast path accepts plain events, which most are. UsageEvent validates the others; its rules define what
    is valid.
    """
    # `type(...) is` instead of isinstance: bool is an int, and JSON has no subclasses.
    if type(sent) is dict:
        get: Callable[..., Any] = sent.get
        ref, name, alias = get("ref"), get("name"), get("customerAlias")
        timestamp, data = get("timestamp"), get("data", {})
        is_plain = type(ref) is type(name) is type(alias) is type(timestamp) is str and type(data) is dict
        if is_plain and _IN_UTC.fullmatch(timestamp):
            with suppress(ValueError):  # no such day: UsageEvent has the error text
                return _storable(ref, name, alias, datetime.fromisoformat(timestamp), data, text)
    try:
        event = resources.UsageEvent.from_wire(sent)
    except InvalidResource as error:
        if not error.details:
            return "an event must be an object"
        return "; ".join(
            f"{'.'.join(map(str, each['loc']))} is missing"
            if each["type"] == "missing"
            else f"{'.'.join(map(str, each['loc']))}: {each['msg']}"
            for each in error.details
        )
    if not _IN_UTC.fullmatch(sent["timestamp"]):
        text = strict_json.dumps({**sent, "timestamp": event.timestamp}).decode()
    return _storable(event.ref, event.name, event.customer_alias, event.timestamp, event.data or {}, text)


def _storable(
    ref: str, name: str, alias: str, at: datetime, data: Mapping[str, Any], text: str
) -> ValidEvent | str:
    # The model allows longer texts than the database's indexes take.
    for param, key in (("name", name), ("customerAlias", alias), ("ref", ref)):
        if fault := key_error(key):
            return f"{param} {fault}"
    if "\\u0000" in text and _NUL.search(text):
        return "a NUL character (\\u0000) cannot be stored"
    return ValidEvent(ref, name, alias, to_microseconds(at), data, text)


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
    stored = set(tx.scalars(select(event.c.ref).where(wanted)))
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
    meters_by_name, usage, rows = compiled_meters(tx, result.accepted), UsageBatch(), []
    inactive = customers.inactive_customers(tx, set(owners.values()))
    days = [valid.at // MICROSECONDS_PER_DAY for valid in result.accepted]
    cuts = daily_usage.cuts_by_day(tx, set(owners.values()), days)
    for valid in result.accepted:
        customer_id = owners[valid.alias]
        counting = () if customer_id in inactive else meters_by_name.get(valid.name, ())
        # Only meters that the event has a value for: the month-end report asks which events were charged.
        meter_ids = " ".join(sorted(usage.add(customer_id, valid.at, valid.data, counting, cuts)))
        rows.append((valid.ref, valid.name, valid.alias, customer_id, valid.at, meter_ids, valid.text))
    # The driver's own executemany: SQLAlchemy would convert each value of a thousand rows.
    tx.connection.exec_driver_sql(_INSERT_EVENT, rows)
    statements.handle_usage_changed(tx, usage.write(tx))
    return result


def compiled_meters(tx: Transaction, events: Iterable[ValidEvent]) -> dict[str, list[CompiledMeter]]:
    """Return the meters for the names of these events, by eventName."""
    found = meters.by_event_name(tx, {valid.name for valid in events})
    return {name: [CompiledMeter(meter) for meter in of_name] for name, of_name in found.items()}


def set_measurement(tx: Transaction, request: resources.NewMeasurement) -> resources.Measurement:
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
    statements.handle_usage_changed(tx, {row})
    return stored


def check_cloud_usage(request: resources.CloudUsageSubmission) -> None:
    """Reject a submission that names no product, or whose idempotencyKey could not be compared."""
    if not request.product_code.strip():
        raise invalid_request("productCode is empty: give one", "productCode")
    for n, result in enumerate(request.results):
        check_key(result.idempotency_key, f"results.{n}.idempotencyKey")
