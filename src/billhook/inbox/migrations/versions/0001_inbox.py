"""The inbox as first released: delivery, run, failure."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "delivery",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("signed_at", MOMENT),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("source", "key", name="delivery_source_key_key"),
    )
    _partial_index("delivery_received_idx", "delivery", ["id"], "state IN ('received')")
    op.create_table(
        "run",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("delivery_id", ROW_ID, sa.ForeignKey("delivery.id", ondelete="CASCADE"), nullable=False),
        sa.Column("handler", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", MOMENT, nullable=False),
        sa.Column("lease_owner", sa.Text),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("last_error", sa.Text),
        sa.Column("finished_at", MOMENT),
        sa.UniqueConstraint("delivery_id", "handler", name="run_delivery_id_handler_key"),
    )
    _partial_index("run_due_at_idx", "run", ["due_at"], "state IN ('due', 'running')")
    op.create_table(
        "failure",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("run_id", ROW_ID, sa.ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("failed_at", MOMENT, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("traceback", sa.Text),
    )
    op.create_index("failure_run_id_idx", "failure", ["run_id"])


def _partial_index(name: str, table: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
