"""The number of replays of a run: `delivery.once` counts an effect once for each."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    # Not in a batch: that would make the table anew on SQLite, and dropping the old one drops all failures.
    op.add_column("run", sa.Column("replays", sa.Integer, nullable=False, server_default=sa.text("0")))
