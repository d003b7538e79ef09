"""Conflicting deliveries in slots beside the first of their key, and an index for lists of one type."""

import hashlib
import sqlite3
from typing import cast

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
MOMENT = sa.DateTime(timezone=True)
OLD = "id, source, key, event_type, headers, state, error, signed_at, received_at, body"
# A pruned delivery has no body, so its digest cannot be computed.
DIGEST = "CASE WHEN state = 'pruned' THEN NULL ELSE sha256(body) END"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        _make_anew()
    else:
        _change()
    op.create_index("delivery_event_type_id_idx", "delivery", ["event_type", "id"])
    _partial_index("delivery_conflict_idx", "conflict_of IS NOT NULL")


def _change() -> None:
    op.add_column("delivery", sa.Column("slot", sa.Text, nullable=False, server_default=""))
    op.add_column("delivery", sa.Column("sent_as", sa.Text))
    op.add_column("delivery", sa.Column("conflict_of", ROW_ID))
    op.add_column("delivery", sa.Column("digest", sa.LargeBinary))
    op.drop_constraint("delivery_source_key_key", "delivery")
    op.create_unique_constraint("delivery_source_key_slot_key", "delivery", ["source", "key", "slot"])
    op.execute(f"UPDATE delivery SET digest = {DIGEST}")  # noqa: S608 - of constants


def _make_anew() -> None:
    """Make the table again: SQLite drops no constraint.

    And the new columns belong before the body, see billhook.inbox.schema.
    """
    driver = cast("sqlite3.Connection", op.get_bind().connection.driver_connection)
    driver.create_function("sha256", 1, lambda body: hashlib.sha256(body).digest(), deterministic=True)
    op.create_table(
        "delivery_0003",
        sa.Column("id", ROW_ID, primary_key=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("slot", sa.Text, nullable=False, server_default=""),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("sent_as", sa.Text),
        sa.Column("conflict_of", ROW_ID),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("signed_at", MOMENT),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.Column("digest", sa.LargeBinary),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("source", "key", "slot", name="delivery_source_key_slot_key"),
    )
    copied = f"SELECT {OLD}, {DIGEST} FROM delivery ORDER BY id"  # noqa: S608 - of constants
    op.execute(f"INSERT INTO delivery_0003 ({OLD}, digest) {copied}")
    op.drop_table("delivery")  # its runs stay: see new_engine() in billhook.inbox.sqlite.driver
    op.rename_table("delivery_0003", "delivery")
    _partial_index("delivery_received_idx", "state IN ('received')")
    _partial_index("delivery_unfinished_idx", "state IN ('received', 'planned')")


def _partial_index(name: str, condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, "delivery", ["id"], sqlite_where=where, postgresql_where=where)
