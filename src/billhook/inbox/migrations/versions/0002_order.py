"""Order keys and content duplicates of runs, and indexes for the queries."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    with op.batch_alter_table("run") as run:
        run.add_column(sa.Column("order_key", sa.Text))
        run.add_column(sa.Column("identity", sa.Text))
        run.add_column(sa.Column("twin_of", ROW_ID))
    _partial_index(
        "run_order_idx",
        ["handler", "order_key", "state", "delivery_id"],
        "order_key IS NOT NULL AND state IN ('waiting', 'due', 'running')",
    )
    _partial_index("run_identity_idx", ["handler", "identity"], "identity IS NOT NULL AND twin_of IS NULL")
    # With the id, for a claim goes by both: PostgreSQL would sort all that is due, however little it takes.
    op.drop_index("run_due_at_idx", "run")
    _partial_index("run_due_at_idx", ["due_at", "id"], "state IN ('due', 'running')")
    # What the backlog is counted by.
    _partial_index("delivery_unfinished_idx", ["id"], "state IN ('received', 'planned')", table="delivery")


def _partial_index(name: str, columns: list[str], condition: str, table: str = "run") -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
