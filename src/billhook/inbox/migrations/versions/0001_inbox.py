"""The inbox as first released."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
TIME = sa.DateTime(timezone=True)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
IDENTIFIERS = ("identifier_1", "identifier_2", "identifier_3")
LABELS = ("source", "event_type", "handler", "what", "cause")


def upgrade() -> None:
    op.add_column(
        "billhook_version",
        sa.Column("oldest_compatible", sa.Text),
        schema=op.get_context().version_table_schema,
    )
    _make_delivery()
    _make_run()
    op.create_table(
        "failure",
        sa.Column("id", ID, primary_key=True),
        sa.Column("run_id", ID, sa.ForeignKey("run.id", ondelete="CASCADE"), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("failed_at", TIME, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("traceback", sa.Text),
        sa.Column("duration_seconds", sa.Float),
        sa.Column("retried", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("fingerprint", sa.Text),
        sa.Column("place", sa.Text),
        sa.Column("worker", sa.Text),
        sa.Column("release_id", sa.Integer),
    )
    op.create_index("failure_run_id_idx", "failure", ["run_id"])
    op.create_index("failure_failed_at_idx", "failure", ["failed_at"])
    _partial_index("failure_fingerprint_idx", "fingerprint IS NOT NULL", "fingerprint", "id", "run_id")
    op.create_table(
        "billhook_issue",
        sa.Column("fingerprint", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("kind", "subject", "title")),
        sa.Column("place", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("changed_at", TIME, nullable=False),
        sa.Column("who", sa.Text),
        sa.Column("why", sa.Text),
        sa.Column("ignored_until", TIME),
        sa.Column("notified", sa.Integer, nullable=False, server_default=sa.text("0")),
    )
    op.create_table(
        "billhook_handler",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("paused_at", TIME),
        sa.Column("paused_why", sa.Text),
        sa.Column("paused_error", sa.Text),
        sa.Column("failures", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("next_start_at", TIME),
        sa.UniqueConstraint("name", name="billhook_handler_name_key"),
    )
    op.create_table(
        "billhook_worker",
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("handlers", sa.Integer),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("pid", sa.Integer),
        sa.Column("threads", sa.Integer),
        sa.Column("release_id", sa.Integer),
        sa.Column("seen_at", TIME, nullable=False),
        sa.Column("stopped_at", TIME),
    )
    op.create_table(
        "billhook_release",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("first_at", TIME, nullable=False),
        sa.UniqueConstraint("name", name="billhook_release_name_key"),
    )
    op.create_table(
        "billhook_action",
        sa.Column("id", ID, primary_key=True),
        sa.Column("at", TIME, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("which", sa.Text, nullable=False),
        sa.Column("deliveries", sa.Integer),
    )
    op.create_table(
        "billhook_count",
        sa.Column("hour", TIME, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in LABELS),
        sa.Column("bucket", sa.Integer, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("last_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("hour", *LABELS, "bucket", name="billhook_count_pkey"),
        sqlite_with_rowid=False,
    )
    closed = op.create_table(
        "billhook_closed",
        sa.Column("finished_at", TIME, nullable=False),
        *(sa.Column(name, ID, nullable=False) for name in ("delivery_id", "quarantined_id", "failure_id")),
    )
    nothing = {"delivery_id": 0, "quarantined_id": 0, "failure_id": 0}
    op.execute(closed.insert().values(finished_at=EPOCH, **nothing))
    notifier = op.create_table(
        "billhook_notifier",
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("leased_until", TIME, nullable=False),
        sa.Column("looked_at", TIME, nullable=False),
        sa.Column("addresses", sa.Text, nullable=False),
    )
    op.execute(notifier.insert().values(owner="", leased_until=EPOCH, looked_at=EPOCH, addresses="{}"))


def _make_delivery() -> None:
    op.create_table(
        "delivery",
        sa.Column("id", ID, primary_key=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("variant", sa.Text, nullable=False, server_default=""),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("type_field", sa.Text),
        sa.Column("sent_as", sa.Text),
        sa.Column("also_sent_as", sa.Text),
        sa.Column("conflict_of", ID),
        sa.Column("edited_from", ID),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("signed_at", TIME),
        sa.Column("received_at", TIME, nullable=False),
        sa.Column("digest", sa.LargeBinary),
        *(sa.Column(name, sa.Text) for name in IDENTIFIERS),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("source", "key", "variant", name="delivery_source_key_variant_key"),
    )
    op.create_index("delivery_event_type_id_idx", "delivery", ["event_type", "id"])
    _partial_index("delivery_received_idx", "state IN ('received')", "id")
    _partial_index("delivery_turn_idx", "state IN ('received')", "event_type", "source", "id")
    _partial_index("delivery_unread_type_idx", "type_field IS NOT NULL AND state IN ('received')", "id")
    _partial_index("delivery_unfinished_idx", "state IN ('received', 'planned')", "id")
    _partial_index("delivery_failed_idx", "state IN ('dead', 'quarantined')", "state", "id")
    _partial_index("delivery_conflict_idx", "conflict_of IS NOT NULL", "id")
    for name in IDENTIFIERS:
        _partial_index(f"delivery_{name}_idx", f"{name} IS NOT NULL", name, "id")


def _make_run() -> None:
    op.create_table(
        "run",
        sa.Column("id", ID, primary_key=True),
        sa.Column("delivery_id", ID, sa.ForeignKey("delivery.id", ondelete="CASCADE"), nullable=False),
        sa.Column("handler", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("release_id", sa.Integer),
        sa.Column("queued", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("last_error", sa.Text),
        sa.Column("finished_at", TIME),
        sa.Column("order_key", sa.Text),
        sa.Column("newest_only", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("identity", sa.Text),
        sa.Column("twin_of", ID),
        sa.Column("runs_alone", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("beside_others", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("uncounted_attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("replays", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("started_at", TIME),
        sa.Column("duration_seconds", sa.Float),
        sa.UniqueConstraint("delivery_id", "handler", name="run_delivery_id_handler_key"),
    )
    _partial_index("run_claim_idx", "state IN ('due', 'running')", "state", "handler", "due_at", "id")
    _partial_index("run_dead_idx", "state IN ('dead')", "handler", "finished_at")
    _partial_index("run_alone_idx", "runs_alone = 1 AND state IN ('due')", "due_at")
    unfinished = "order_key IS NOT NULL AND state IN ('waiting', 'due', 'running')"
    _partial_index("run_order_idx", unfinished, "handler", "order_key", "state", "delivery_id")
    _partial_index("run_finished_at_idx", "finished_at IS NOT NULL", "finished_at")
    _partial_index("run_identity_idx", "identity IS NOT NULL AND twin_of IS NULL", "handler", "identity")


def _partial_index(name: str, condition: str, *columns: str) -> None:
    where, table = sa.text(condition), name.partition("_")[0]
    op.create_index(name, table, [*columns], sqlite_where=where, postgresql_where=where)
