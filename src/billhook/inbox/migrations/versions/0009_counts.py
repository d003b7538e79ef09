"""Counts by hour; how often a delivery was planned, and how long an attempt took."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

MOMENT = sa.DateTime(timezone=True)
LABELS = ("source", "event_type", "handler", "what", "cause")


def upgrade() -> None:
    op.create_table(
        "billhook_count",
        sa.Column("hour", MOMENT, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in LABELS),
        sa.Column("bucket", sa.Integer, nullable=False),
        sa.Column("shard", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("last_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("hour", *LABELS, "bucket", "shard", name="billhook_count_pkey"),
        sqlite_with_rowid=False,
    )
    # Not in a batch: that would make the tables anew on SQLite, and dropping the old ones drops all runs.
    op.add_column("delivery", sa.Column("plans", sa.Integer))
    op.add_column("run", sa.Column("started_at", MOMENT))
    op.add_column("run", sa.Column("duration_seconds", sa.Float))
    op.add_column("failure", sa.Column("duration_seconds", sa.Float))
    few = sa.text("state IN ('dead', 'quarantined')")
    op.create_index(
        "delivery_failed_idx", "delivery", ["state", "id"], sqlite_where=few, postgresql_where=few
    )
    _count_stored()


def _count_stored() -> None:
    """Count the deliveries that were accepted before: those that are unread are counted by their plan."""
    if op.get_bind().dialect.name == "postgresql":
        hour = "date_trunc('hour', received_at, 'UTC')"
    else:
        hour = "strftime('%Y-%m-%d %H:00:00.000000', received_at)"
    op.execute("UPDATE delivery SET plans = 0 WHERE state = 'received'")
    counted = (
        f"SELECT {hour}, source, event_type, '', 'accepted', '', -1, -1, count(*), 0, max(received_at) "  # noqa: S608 - of constants
        f"FROM delivery WHERE slot = '' AND state <> 'received' GROUP BY {hour}, source, event_type"
    )
    columns = f"hour, {', '.join(LABELS)}, bucket, shard, number, seconds, last_at"
    op.execute(f"INSERT INTO billhook_count ({columns}) {counted}")
