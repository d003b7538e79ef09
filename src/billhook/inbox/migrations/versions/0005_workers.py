"""The workers of the inbox, and when each was last seen."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    # With a prefix: an inbox of an earlier version may be in the file of an app that has workers of its own.
    op.create_table(
        "billhook_worker",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("handlers", sa.Integer),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("seen_at", MOMENT, nullable=False),
    )
