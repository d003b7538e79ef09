"""Tables of the outbox: subscriptions, events, deliveries, attempts and faults."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    false,
    text,
)

from billhook.sandbox.storage.columns import DecimalText, UtcMicroseconds, metadata, serial

__all__ = ["attempt", "delivery", "fault", "raised", "strike", "subscription"]

_UNDONE = text("due_at IS NOT NULL")

subscription = Table(
    "subscription",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("callback_url", Text, nullable=False),
    Column("event_type", Text, nullable=False, index=True),
    Column("threshold", DecimalText),
    Column("recurring_threshold", DecimalText),
    Column("created_at", UtcMicroseconds, nullable=False),
    Index("subscription_of", "callback_url", "event_type"),
    sqlite_autoincrement=True,
)
"""One for each address, type and thresholds: who writes does so alone, and looks first."""

raised = Table(
    "raised",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("event_type", Text, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
    Column("raised_at", UtcMicroseconds, nullable=False),
    sqlite_autoincrement=True,
)
"""Every event, whether somebody had asked for it or not; `raised_at` is the sandbox's time."""

delivery = Table(
    "delivery",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("raised_id", Text, ForeignKey("raised.id"), nullable=False, index=True),
    Column("subscription_id", Text, nullable=False, index=True),
    Column("url", Text, nullable=False),
    Column("state", Text, nullable=False, index=True),
    Column("attempts", Integer, nullable=False, default=0),
    Column("due_at", UtcMicroseconds),
    Column("held", Boolean, nullable=False, default=False, server_default=false()),
    Column("held_up_by", Text),
    Index("delivery_due", "url", "due_at", sqlite_where=_UNDONE, postgresql_where=_UNDONE),
    Index("delivery_next", "due_at", sqlite_where=_UNDONE, postgresql_where=_UNDONE),
    Index("delivery_held", "url", sqlite_where=text("held = 1"), postgresql_where=text("held")),
    sqlite_autoincrement=True,
)
"""One event to one subscription. `state` is pending, delivered, failed or cancelled; `due_at` is the
machine's time, and null when there is no more to do. What is being sent is still due: so it is sent again
by whoever starts after a crash. `attempts` counts those of the present schedule; `held`: until a later
one went; `held_up_by`: the faults that its next attempt waited for, to be shown with that."""

attempt = Table(
    "attempt",
    metadata,
    serial(),
    Column("delivery_id", Text, ForeignKey("delivery.id"), nullable=False, index=True),
    Column("number", Integer, nullable=False),
    Column("started_at", UtcMicroseconds, nullable=False),
    Column("milliseconds", Integer, nullable=False),
    Column("status", Integer),
    Column("error", Text),
    Column("fault", Text),
    Column("answer", Text),
    sqlite_autoincrement=True,
)
"""Every try, in the order in which they ended; times are the machine's."""

fault = Table(
    "fault",
    metadata,
    serial(),
    Column("id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("event_type", Text),
    Column("subscription_id", Text),
    Column("probability", DecimalText, nullable=False),
    Column("times", Integer),
    Column("seconds", DecimalText),
    Column("seed", Text, nullable=False),
    Column("struck", Integer, nullable=False, default=0),
    Column("created_at", UtcMicroseconds, nullable=False),
    sqlite_autoincrement=True,
)
"""What is to go wrong on request, oldest first."""

strike = Table(
    "strike",
    metadata,
    Column("delivery_id", Text, primary_key=True),
    Column("fault_id", Text, primary_key=True),
)
"""Which fault struck which delivery: none does it twice."""
