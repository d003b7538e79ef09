"""Suspects: runs that start alone, because they may have killed their worker."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # Not in a batch: that would make the table anew on SQLite, and dropping the old one drops all failures.
    for name in ("alone", "excused"):
        op.add_column("run", sa.Column(name, sa.Integer, nullable=False, server_default=sa.text("0")))
    where = sa.text("alone = 1 AND state IN ('due')")
    op.create_index("run_alone_idx", "run", ["due_at"], sqlite_where=where, postgresql_where=where)
