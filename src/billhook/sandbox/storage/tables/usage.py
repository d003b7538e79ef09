"""Tables of usage events, meters and daily totals."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text, UniqueConstraint

from billhook.sandbox.storage.columns import DecimalText, UtcMicroseconds, document, metadata, serial

__all__ = ["event", "measurement", "meter", "usage_cut", "usage_day", "usage_instance"]

event = Table(
    "event",
    metadata,
    serial(),
    Column("ref", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("alias", Text, nullable=False),
    Column("customer_id", Text, nullable=False),
    Column("at", UtcMicroseconds, nullable=False),
    Column("meter_ids", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("event_at", "at", "seq"),
    Index("event_customer", "customer_id", "name", "at"),
    sqlite_autoincrement=True,
)
"""Events that were taken. `body`: the event's JSON as it was sent; `meter_ids`: the meters that counted it,
sorted, with a space between. No foreign key: the ids come from the same transaction, and each would cost a
look-up a row."""

meter = document(
    "meter",
    Column("event_name", Text, nullable=False, index=True),
    Column("key", Text, nullable=False),
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
    Column("events", BigInteger, nullable=False),
    Column("total", DecimalText, nullable=False),
    Column("highest", DecimalText),
    Column("last", DecimalText),
    Column("last_at", UtcMicroseconds),
    Column("measured", DecimalText),
    sqlite_with_rowid=False,
)
"""What a meter makes of a customer's day, kept as events come. `day`: days since 1970, in UTC; `since`: where
the row begins, in microseconds: at midnight, or at a cut, where a cycle of the customer ends within the day;
`measured`: the figure of a measurement, on the row of midnight, which stands for all others of the day."""

usage_cut = Table(
    "usage_cut",
    metadata,
    Column("customer_id", Text, primary_key=True),
    Column("at", UtcMicroseconds, primary_key=True),
    sqlite_with_rowid=False,
)
"""Moments within a day at which what a customer uses begins to count for another cycle."""

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
"""The same for meters that count instances: each one once a day. `instance`: its JSON."""

measurement = document(
    "measurement",
    Column("customer_id", Text, nullable=False),
    Column("meter_id", Text, nullable=False),
    Column("day", BigInteger, nullable=False),
    UniqueConstraint("customer_id", "meter_id", "day"),
)
"""The last measurement of each day; `meter_id` is a meter's, whatever id it was sent under."""
