"""Handlers that are paused or limited, with the state that all workers share."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

MOMENT = sa.DateTime(timezone=True)
ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "billhook_handler",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("paused_at", MOMENT),
        sa.Column("paused_why", sa.Text),
        sa.Column("failures", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("release_at", MOMENT),
        sa.Column("next_start_at", MOMENT),
        sa.Column("started", sa.Text, nullable=False, server_default=sa.text("'[]'")),
        sa.UniqueConstraint("name", name="billhook_handler_name_key"),
    )
