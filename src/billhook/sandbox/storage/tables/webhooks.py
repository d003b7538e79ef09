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

from billhook.sandbox.storage.columns import DecimalText, UtcMicroseconds, metadata, record, serial

# Of all deliveries in the log only few are due: partial indexes stay small.
_IS_DUE = text("due_at IS NOT NULL")

subscription = record(
    "subscription",
    Column("callback_url", Text, nullable=False),
    Column("event_type", Text, nullable=False, index=True),
    Column("threshold", DecimalText),
    Column("recurring_threshold", DecimalText),
    Column("created_at", UtcMicroseconds, nullable=False),
    # Not unique: the thresholds distinguish subscriptions, too, and null never equals null in a constraint.
    Index("subscription_of", "callback_url", "event_type"),
)
"""One subscription for each URL, event type and pair of thresholds. Only one transaction writes at a time, so
a query before the insert is enough."""

raised_event = record(
    "raised",
    Column("event_type", Text, nullable=False, index=True),
    Column("body", LargeBinary, nullable=False),
    Column("raised_at", UtcMicroseconds, nullable=False),
    Column("cause", Text, nullable=False),
)
"""Every event that was raised, with or without subscriptions; `raised_at` is the sandbox's time. `cause` is
what raised it: the method and path of an operation, or the kind of a scheduled job and the id of its
subject."""

delivery = record(
    "delivery",
    Column("raised_id", Text, ForeignKey("raised.id"), nullable=False, index=True),
    # No foreign key: deliveries remain in the log after their subscription was deleted.
    Column("subscription_id", Text, nullable=False, index=True),
    Column("url", Text, nullable=False),
    Column("state", Text, nullable=False, index=True),
    Column("attempts", Integer, nullable=False, default=0),
    Column("due_at", UtcMicroseconds),
    Column("held", Boolean, nullable=False, default=False, server_default=false()),
    Column("held_up_by", Text),
    Index("delivery_due", "url", "due_at", sqlite_where=_IS_DUE),
    # The sender sleeps until the first of these moments.
    Index("delivery_next", "due_at", sqlite_where=_IS_DUE),
    Index("delivery_held", "url", sqlite_where=text("held = 1")),
)
"""The delivery of one event to one subscription. `state` is pending, delivered, failed or cancelled.
`due_at` is the machine's time; null if there will be no further attempt. A delivery in progress is still due,
so it is sent again after a crash. `attempts` counts those of the current schedule of retries. `held` is true
while the fault `reorder` holds it for a later delivery; `held_up_by` names the faults that delayed its next
attempt, comma-separated."""

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
"""Every attempt of a delivery, in the order in which the attempts ended; times are the machine's."""

fault = record(
    "fault",
    Column("kind", Text, nullable=False),
    Column("event_type", Text),
    Column("subscription_id", Text),
    Column("probability", DecimalText, nullable=False),
    Column("times", Integer),
    Column("seconds", DecimalText),
    # A text: a seed of the wire may have more than 64 bits.
    Column("seed", Text, nullable=False),
    Column("struck", Integer, nullable=False, default=0),
    Column("created_at", UtcMicroseconds, nullable=False),
)
"""Active faults; of several that match a delivery the oldest strikes first."""

applied_fault = Table(
    "strike",
    metadata,
    Column("delivery_id", Text, primary_key=True),
    Column("fault_id", Text, primary_key=True),
)
"""Which fault struck which delivery: a fault strikes each delivery once at most."""
