"""Tables of usage events, meters and daily totals."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import BigInteger, Column, Index, Table, Text, UniqueConstraint

from billhook.sandbox.storage.columns import DecimalText, UtcMicroseconds, document, metadata, serial

event = Table(
    "event",
    metadata,
    serial(),
    Column("ref", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("alias", Text, nullable=False),
    # No foreign key: the id is from the same transaction, and each check would cost a look-up per row.
    Column("customer_id", Text, nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("meter_ids", Text, nullable=False),
    Column("body", Text, nullable=False),
    # GET /events lists by time; `seq` orders the events of one moment.
    Index("event_at", "at", "seq"),
    # Aggregations, and recounts of a day that is cut.
    Index("event_customer", "customer_id", "name", "at"),
    sqlite_autoincrement=True,
)
"""Accepted usage events. `body` is the event's JSON as sent; `meter_ids` are the ids of the meters that
counted it, sorted and separated by spaces."""

meter = document(
    "meter",
    Column("event_name", Text, nullable=False, index=True),
    Column("key", Text, nullable=False),
    # Two meters of one product would bill its usage twice.
    Column("catalog_product_id", Text, unique=True),
    UniqueConstraint("event_name", "key"),
)

usage_day = Table(
    "usage_day",
    metadata,
    Column("customer_id", Text, primary_key=True),
    Column("meter_id", Text, primary_key=True),
    Column("day", BigInteger, primary_key=True),
    Column("since", BigInteger, primary_key=True),
    Column("events", BigInteger, nullable=False, default=0),
    Column("total", DecimalText, nullable=False, default=Decimal(0)),
    Column("highest", DecimalText),
    Column("last", DecimalText),
    Column("last_at", BigInteger),
    Column("measured", DecimalText),
    Column("after_invoice", BigInteger, nullable=False),
    # Each invoice looks for usage that came after the one before it.
    Index("usage_day_changed", "customer_id", "after_invoice"),
    # Other rows are found by their primary key alone: without a rowid SQLite stores them in its order.
    sqlite_with_rowid=False,
)
"""A customer's usage of a meter on a day, updated as events arrive. `day` counts days since 1970 in UTC.
`since` is where the row begins, in microseconds: midnight, or a cut, where a billing cycle of the customer
ends within the day. `measured` is the value of a measurement: it is in the row of midnight and replaces the
figures of the whole day. `after_invoice` is the serial number of the newest invoice when the row, or whose
usage it is, last changed: invoices after it were issued with the change."""

usage_cut = Table(
    "usage_cut",
    metadata,
    Column("customer_id", Text, primary_key=True),
    Column("at", UtcMicroseconds, primary_key=True),
    sqlite_with_rowid=False,
)
"""Moments within a day at which a billing cycle of the customer ends and the next one begins."""

usage_instance = Table(
    "usage_instance",
    metadata,
    Column("customer_id", Text, primary_key=True),
    Column("meter_id", Text, primary_key=True),
    Column("day", BigInteger, primary_key=True),
    Column("since", BigInteger, primary_key=True),
    Column("instance", Text, primary_key=True),
    sqlite_with_rowid=False,
)
"""Distinct values counted by a meter of the method `unique`, by day; `instance` is the value's JSON."""

measurement = document(
    "measurement",
    Column("customer_id", Text, nullable=False),
    Column("measured_meter_id", Text, nullable=False),
    Column("day", BigInteger, nullable=False),
    UniqueConstraint("customer_id", "measured_meter_id", "day"),
)
"""The latest measurement of each day, with the meter also where its `meter_id` is a product's."""
