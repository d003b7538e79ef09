"""The actions of operators: who, what, which deliveries or handler, when."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

MOMENT = sa.DateTime(timezone=True)
ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "billhook_action",
        sa.Column("id", ID, primary_key=True),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("which", sa.Text, nullable=False),
        sa.Column("deliveries", sa.Integer),
    )
