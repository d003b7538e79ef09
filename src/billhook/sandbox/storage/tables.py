"""The tables: customers and what is billed to them, usage, webhooks; tokens and settings.

A resource is stored as JSON in `body`; other columns repeat what queries filter, order or add up by.
"""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from billhook.sandbox.storage.columns import (
    DecimalText,
    UtcMicroseconds,
    document,
    metadata,
    record,
    required,
    serial,
)

customer = document(
    "customer",
    Column("external_id", Text, unique=True),
    required("anonymous", Boolean, default=False),
    Column("status", Text),
)
"""Customers. `anonymous` is true if usage under an unknown alias created the customer, and no request has
changed it since."""

inactive_span = Table(
    "inactive_span",
    metadata,
    serial(),
    required("customer_id", Text, index=True),
    required("since", UtcMicroseconds),
    Column("until", UtcMicroseconds),
)
"""When customers were Inactive; `until` is null while they are."""

alias = Table(
    "alias",
    metadata,
    # The primary key: a name cannot belong to two customers, even if a request does not check it.
    Column("alias", Text, primary_key=True),
    required("customer_id", Text, ForeignKey("customer.id"), index=True),
)
"""The names by which usage refers to customers, each of one customer: aliases, external id and id."""

customer_integration = Table(
    "customer_integration",
    metadata,
    Column("type", Text, primary_key=True),
    Column("external_id", Text, primary_key=True),
    required("customer_id", Text, ForeignKey("customer.id"), index=True),
)
"""Entities of other providers, each linked to one customer."""

plan = document("plan", Column("external_id", Text, unique=True))

catalog_product = document("catalog_product", Column("external_id", Text, unique=True))

custom_field = document(
    "custom_field",
    required("entity", Text),
    required("custom_field_name", Text),
    # A customer and a contract may have fields of the same name.
    UniqueConstraint("entity", "custom_field_name"),
)

setting = Table("setting", metadata, required("name", Text, primary_key=True), Column("value", Text))
"""Values of the sandbox itself: the offset of its clock, its keys."""

contract = document(
    "contract",
    required("customer_id", Text, index=True),
    # Not unique: the external id of a deleted contract is free for another one.
    Column("external_id", Text, index=True),
    required("status", Text),
    required("start_date", UtcMicroseconds),
    Column("end_date", UtcMicroseconds),
    Column("deleted_at", UtcMicroseconds),
    Column("in_force_at", UtcMicroseconds),
)
"""Contracts. A deleted contract remains, with `deleted_at`: invoices still refer to it. `in_force_at` is its
start, or its creation or activation if that was later; null while it is in review."""

invoice = document(
    "invoice",
    required("customer_id", Text),
    Column("contract_id", Text),
    required("billing_status", Text),
    required("currency", Text),
    required("amount", DecimalText),
    required("amount_paid", DecimalText),
    required("carried", DecimalText),
    # The rate at the time of issue: a later change must not revalue an issued invoice.
    required("usd_rate", DecimalText),
    required("issued_at", UtcMicroseconds),
    Column("cycle_start", UtcMicroseconds),
    Column("cycle_end", UtcMicroseconds),
    required("year", Integer),
    required("number", Integer),
    UniqueConstraint("year", "number"),
    # For the amounts of customers, which are added up by status.
    Index("invoice_customer", "customer_id", "billing_status"),
    Index("invoice_issued", "issued_at"),
    Index("invoice_cycle", "contract_id", "cycle_start"),
)
"""Invoices: of a contract's cycle, from `cycle_start` to `cycle_end`, or of a top-up of credits, without.
`number` counts the invoices of a `year`. `usd_rate`: US dollars for one unit of `currency`. `carried` is what
the invoice leaves to later ones, less what it has taken over from earlier ones of its contract."""

scheduled_job = Table(
    "agenda",
    metadata,
    serial(),
    required("due_at", UtcMicroseconds, index=True),
    required("kind", Text),
    # No foreign key: depending on `kind` it is a contract, an invoice, a lot of credits or none.
    required("subject_id", Text, index=True),
    sqlite_autoincrement=True,
)
"""Scheduled jobs of the sandbox's clock, run in the order of `due_at`, then `seq`. A job that has run is
deleted."""

credit_product = document("credit_product")

credit_pool = record(
    "credit_pool",
    required("customer_id", Text, index=True),
    required("credit_product_id", Text),
    required("kind", Text),
    required("balance", DecimalText),
    required("filled_to", DecimalText),
    required("told_share", DecimalText),
    # Credits of one product and kind must not be spread over two pools.
    Index("credit_pool_of", "customer_id", "credit_product_id", "kind", unique=True),
)
"""One credit pool for each customer, credit product and kind. `filled_to` is the balance after the last
grant, less what has expired since: the 100 % that the used share refers to. `told_share` is the highest used
share since that grant, in percent, that was compared with thresholds."""

credit_lot = record(
    "credit_lot",
    required("pool_id", Text, ForeignKey("credit_pool.id"), index=True),
    Column("contract_id", Text, index=True),
    required("remaining", DecimalText),
    Column("expires_at", UtcMicroseconds),
    required("automatic", Boolean),
    Column("price_due_at", UtcMicroseconds),
)
"""The credits left of each grant. The balance of a pool is the sum of its lots. A lot that is used up
remains: what was drawn from it may go back. `automatic` is true if usage draws from the lot without a
request; `contract_id` is the contract that granted it, and `price_due_at` says which of its invoices charges
for it, null without a price."""

credit_draw = Table(
    "credit_draw",
    metadata,
    Column("product_key", Text, primary_key=True),
    Column("cycle_start", UtcMicroseconds, primary_key=True),
    Column("lot_id", Text, ForeignKey("credit_lot.id"), primary_key=True),
    required("contract_id", Text, index=True),
    required("amount", DecimalText),
    sqlite_with_rowid=False,
)
"""What usage has drawn from a lot, less what has gone back to it: by the contract's product and the cycle."""

ledger_entry = record(
    "ledger_entry",
    required("customer_id", Text),
    required("pool_id", Text, ForeignKey("credit_pool.id")),
    required("type", Text),
    required("amount", DecimalText),
    required("balance_after", DecimalText),
    Column("invoice_id", Text),
    Column("contract_id", Text),
    required("created_at", UtcMicroseconds),
    Column("product_key", Text),
    Column("cycle_start", UtcMicroseconds),
    Column("grant_number", Integer),
    Column("grant_due_at", UtcMicroseconds),
    # The order in which a customer's ledger is listed.
    Index("ledger_entry_of", "customer_id", "seq"),
    Index("ledger_entry_grant", "contract_id", "grant_due_at"),
)
"""Every change of a pool's balance; `amount` is negative if the balance falls. An entry for usage names the
product and the cycle. An entry for credits of a contract has their number among its creditGrants, and when
they were due."""

usage_peak = Table(
    "reached",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("cycle_start", UtcMicroseconds, primary_key=True),
    required("units", DecimalText),
    required("money", DecimalText),
)
"""The highest usage of a product or group in each cycle: a threshold is crossed once, even if usage falls and
rises again, or comes late."""

event = Table(
    "event",
    metadata,
    serial(),
    required("ref", Text, unique=True),
    required("name", Text),
    required("alias", Text),
    # No foreign key: the id is from the same transaction, and each check would cost a look-up per row.
    required("customer_id", Text),
    required("at", UtcMicroseconds),
    required("meter_ids", Text),
    required("body", Text),
    # GET /events lists by time; `seq` orders events with the same time.
    Index("event_at", "at", "seq"),
    # Aggregations, and recounts of a day that is cut.
    Index("event_customer", "customer_id", "name", "at"),
    sqlite_autoincrement=True,
)
"""Accepted usage events. `body` is the event's JSON as sent; `meter_ids` are the ids of the meters that
counted it, sorted and separated by spaces."""

meter = document(
    "meter",
    required("event_name", Text, index=True),
    required("key", Text),
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
    required("events", BigInteger, default=0),
    required("total", DecimalText, default=Decimal(0)),
    Column("highest", DecimalText),
    Column("last", DecimalText),
    Column("last_at", BigInteger),
    Column("measured", DecimalText),
    required("after_invoice", BigInteger),
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
    required("customer_id", Text),
    required("measured_meter_id", Text),
    required("day", BigInteger),
    UniqueConstraint("customer_id", "measured_meter_id", "day"),
)
"""The latest measurement of each day, with the meter also where its `meter_id` is a product's."""

# Of all deliveries in the log only few are due: partial indexes stay small.
_IS_DUE = text("due_at IS NOT NULL")

subscription = record(
    "subscription",
    required("callback_url", Text),
    required("event_type", Text, index=True),
    Column("threshold", DecimalText),
    Column("recurring_threshold", DecimalText),
    required("created_at", UtcMicroseconds),
    # Not unique: the thresholds distinguish subscriptions, too, and null never equals null in a constraint.
    Index("subscription_of", "callback_url", "event_type"),
)
"""One subscription for each URL, event type and pair of thresholds. Only one transaction writes at a time, so
a query before the insert is enough."""

raised_event = record(
    "raised",
    required("event_type", Text, index=True),
    required("body", LargeBinary),
    required("raised_at", UtcMicroseconds),
    required("cause", Text),
)
"""Every event that was raised, with or without subscriptions; `raised_at` is the sandbox's time. `cause` is
what raised it: the method and path of an operation, or the kind of a scheduled job and the id of its
subject."""

delivery = record(
    "delivery",
    required("raised_id", Text, ForeignKey("raised.id"), index=True),
    # No foreign key: deliveries remain in the log after their subscription was deleted.
    required("subscription_id", Text, index=True),
    required("url", Text),
    required("state", Text, index=True),
    required("attempts", Integer, default=0),
    Column("due_at", UtcMicroseconds),
    required("held", Boolean, default=False, server_default=false()),
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
    required("delivery_id", Text, ForeignKey("delivery.id"), index=True),
    required("number", Integer),
    required("started_at", UtcMicroseconds),
    required("milliseconds", Integer),
    Column("status", Integer),
    Column("error", Text),
    Column("fault", Text),
    Column("answer", Text),
    sqlite_autoincrement=True,
)
"""Every attempt of a delivery, in the order in which the attempts ended; times are the machine's."""

fault = record(
    "fault",
    required("kind", Text),
    Column("event_type", Text),
    Column("subscription_id", Text),
    required("probability", DecimalText),
    Column("times", Integer),
    Column("seconds", DecimalText),
    # A text: a seed of the wire may have more than 64 bits.
    required("seed", Text),
    required("struck", Integer, default=0),
    required("created_at", UtcMicroseconds),
)
"""Active faults; of several that match a delivery the oldest strikes first."""

applied_fault = Table(
    "strike",
    metadata,
    Column("delivery_id", Text, primary_key=True),
    Column("fault_id", Text, primary_key=True),
)
"""Which fault struck which delivery: a fault strikes each delivery once at most."""
