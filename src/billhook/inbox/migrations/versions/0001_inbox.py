"""The inbox as first released, in SQL: it stays as it is when the tables in the code change."""

from alembic import op

revision = "0001"
down_revision = None

TABLES = """
ALTER TABLE billhook_version ADD COLUMN oldest_compatible TEXT;
ALTER TABLE billhook_version ADD COLUMN released INTEGER DEFAULT 1 NOT NULL;

CREATE TABLE delivery (
    id {id} NOT NULL CONSTRAINT delivery_pkey PRIMARY KEY, source TEXT NOT NULL, key TEXT NOT NULL,
    variant TEXT DEFAULT '' NOT NULL, event_type TEXT NOT NULL, type_field TEXT, sent_as TEXT,
    also_sent_as TEXT, conflict_of {ref}, edited_from {ref}, headers TEXT NOT NULL, state TEXT NOT NULL,
    error TEXT, signed_at {time}, received_at {time} NOT NULL, digest {bytes},
    identifier_1 TEXT, identifier_2 TEXT, identifier_3 TEXT, body {bytes} NOT NULL,
    CONSTRAINT delivery_source_key_variant_key UNIQUE (source, key, variant)
);
CREATE INDEX delivery_event_type_id_idx ON delivery (event_type, id);
CREATE INDEX delivery_received_idx ON delivery (id) WHERE state IN ('received');
CREATE INDEX delivery_turn_idx ON delivery (event_type, source, id) WHERE state IN ('received');
CREATE INDEX delivery_unread_type_idx ON delivery (id) WHERE type_field IS NOT NULL AND state IN ('received');
CREATE INDEX delivery_unfinished_idx ON delivery (id) WHERE state IN ('received', 'planned');
CREATE INDEX delivery_failed_idx ON delivery (state, id) WHERE state IN ('dead', 'quarantined');
CREATE INDEX delivery_conflict_idx ON delivery (id) WHERE conflict_of IS NOT NULL;
CREATE INDEX delivery_identifier_1_idx ON delivery (identifier_1, id) WHERE identifier_1 IS NOT NULL;
CREATE INDEX delivery_identifier_2_idx ON delivery (identifier_2, id) WHERE identifier_2 IS NOT NULL;
CREATE INDEX delivery_identifier_3_idx ON delivery (identifier_3, id) WHERE identifier_3 IS NOT NULL;

CREATE TABLE run (
    id {id} NOT NULL CONSTRAINT run_pkey PRIMARY KEY,
    delivery_id {ref} NOT NULL, handler TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL,
    due_at {time} NOT NULL, not_before {time},
    worker TEXT, release_id INTEGER, queued INTEGER DEFAULT 0 NOT NULL, token INTEGER NOT NULL,
    last_error TEXT, finished_at {time}, order_key TEXT, newest_only INTEGER DEFAULT 0 NOT NULL,
    newest_key TEXT, identity TEXT, twin_of {ref}, runs_alone INTEGER DEFAULT 0 NOT NULL,
    beside_others INTEGER DEFAULT 0 NOT NULL, uncounted_attempts INTEGER DEFAULT 0 NOT NULL,
    postponements INTEGER DEFAULT 0 NOT NULL,
    replays INTEGER DEFAULT 0 NOT NULL, started_at {time}, duration_seconds FLOAT,
    CONSTRAINT run_delivery_id_fkey FOREIGN KEY (delivery_id) REFERENCES delivery (id) ON DELETE CASCADE,
    CONSTRAINT run_delivery_id_handler_key UNIQUE (delivery_id, handler)
);
CREATE INDEX run_claim_idx ON run (state, handler, due_at, id) WHERE state IN ('due', 'running');
CREATE INDEX run_dead_idx ON run (handler, finished_at) WHERE state IN ('dead');
CREATE INDEX run_alone_idx ON run (due_at) WHERE runs_alone = 1 AND state IN ('due');
CREATE INDEX run_order_idx ON run (handler, order_key, state, delivery_id)
    WHERE order_key IS NOT NULL AND state IN ('waiting', 'due', 'running');
CREATE INDEX run_newest_idx ON run (handler, order_key, newest_key, delivery_id)
    WHERE newest_key IS NOT NULL AND state IN ('succeeded');
CREATE INDEX run_finished_at_idx ON run (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX run_identity_idx ON run (handler, identity) WHERE identity IS NOT NULL AND twin_of IS NULL;

CREATE TABLE failure (
    id {id} NOT NULL CONSTRAINT failure_pkey PRIMARY KEY,
    run_id {ref} NOT NULL, attempt INTEGER NOT NULL, failed_at {time} NOT NULL, error TEXT NOT NULL,
    traceback TEXT,
    duration_seconds FLOAT, retried INTEGER DEFAULT 0 NOT NULL, fingerprint TEXT, place TEXT,
    worker TEXT, release_id INTEGER,
    CONSTRAINT failure_run_id_fkey FOREIGN KEY (run_id) REFERENCES run (id) ON DELETE CASCADE
);
CREATE INDEX failure_run_id_idx ON failure (run_id);
CREATE INDEX failure_failed_at_idx ON failure (failed_at);
CREATE INDEX failure_fingerprint_idx ON failure (fingerprint, id, run_id) WHERE fingerprint IS NOT NULL;

CREATE TABLE billhook_issue (
    fingerprint TEXT NOT NULL CONSTRAINT billhook_issue_pkey PRIMARY KEY, kind TEXT NOT NULL,
    subject TEXT NOT NULL, title TEXT NOT NULL, place TEXT, state TEXT NOT NULL, opened_at {time} NOT NULL,
    changed_at {time} NOT NULL, who TEXT, why TEXT, snoozed_until {time}, snoozed_more INTEGER,
    notified INTEGER DEFAULT 0 NOT NULL
);
CREATE TABLE billhook_handler (
    id {id} NOT NULL CONSTRAINT billhook_handler_pkey PRIMARY KEY, name TEXT NOT NULL, paused_at {time},
    paused_why TEXT, paused_error TEXT, failures INTEGER DEFAULT 0 NOT NULL, next_start_at {time},
    renamed_to TEXT, CONSTRAINT billhook_handler_name_key UNIQUE (name)
);
CREATE TABLE billhook_worker (
    owner TEXT NOT NULL CONSTRAINT billhook_worker_pkey PRIMARY KEY, engine TEXT NOT NULL, handlers INTEGER,
    started_at {time} NOT NULL, host TEXT NOT NULL, pid INTEGER, pid_space TEXT, pid_ticks BIGINT,
    threads INTEGER, release_id INTEGER, list_id INTEGER, seen_at {time} NOT NULL, stopped_at {time},
    died_at {time}, held_at {time}, held_why TEXT
);
CREATE INDEX billhook_worker_seen_at_idx ON billhook_worker (seen_at);
CREATE INDEX billhook_worker_held_idx ON billhook_worker (owner, held_at) WHERE held_at IS NOT NULL;
CREATE TABLE billhook_handler_list (
    id {id} NOT NULL CONSTRAINT billhook_handler_list_pkey PRIMARY KEY, digest TEXT NOT NULL,
    content TEXT NOT NULL, live_since {time} NOT NULL, planned_at {time},
    missed INTEGER DEFAULT 0 NOT NULL, missed_at {time}, missed_names TEXT,
    CONSTRAINT billhook_handler_list_digest_key UNIQUE (digest)
);
CREATE TABLE billhook_release (
    id {id} NOT NULL CONSTRAINT billhook_release_pkey PRIMARY KEY, name TEXT NOT NULL,
    first_at {time} NOT NULL, CONSTRAINT billhook_release_name_key UNIQUE (name)
);
CREATE TABLE billhook_action (
    id {id} NOT NULL CONSTRAINT billhook_action_pkey PRIMARY KEY, at {time} NOT NULL, who TEXT NOT NULL,
    what TEXT NOT NULL, which TEXT NOT NULL, deliveries INTEGER
);
CREATE TABLE billhook_subscription (
    id {id} NOT NULL CONSTRAINT billhook_subscription_pkey PRIMARY KEY, at {time} NOT NULL, who TEXT NOT NULL,
    service TEXT NOT NULL, url TEXT NOT NULL, digest TEXT NOT NULL, event_type TEXT NOT NULL,
    threshold TEXT NOT NULL, recurring_threshold TEXT NOT NULL
);
CREATE TABLE billhook_count (
    hour {time} NOT NULL, source TEXT NOT NULL, event_type TEXT NOT NULL, handler TEXT NOT NULL,
    what TEXT NOT NULL, cause TEXT NOT NULL, bucket INTEGER NOT NULL, number BIGINT NOT NULL,
    seconds FLOAT NOT NULL, last_at {time} NOT NULL,
    CONSTRAINT billhook_count_pkey PRIMARY KEY (hour, source, event_type, handler, what, cause, bucket)
) {without_rowid};
CREATE TABLE billhook_watermark (
    finished_at {time} NOT NULL, delivery_id {ref} NOT NULL, quarantined_id {ref} NOT NULL,
    failure_id {ref} NOT NULL
);
INSERT INTO billhook_watermark VALUES ({epoch}, 0, 0, 0);
CREATE TABLE billhook_notifier (
    owner TEXT NOT NULL, leased_until {time} NOT NULL, looked_at {time} NOT NULL, addresses TEXT NOT NULL
);
INSERT INTO billhook_notifier VALUES ('', {epoch}, {epoch}, '{{}}')
"""
WORDS = ("id", "ref", "time", "bytes", "without_rowid", "epoch")
OF_DATABASE = {
    "sqlite": ("INTEGER", "INTEGER", "DATETIME", "BLOB", "WITHOUT ROWID", "'1970-01-01 00:00:00.000000'"),
    "postgresql": ("BIGSERIAL", "BIGINT", "TIMESTAMPTZ", "BYTEA", "", "'1970-01-01 00:00:00+00'"),
}


def upgrade() -> None:
    words = dict(zip(WORDS, OF_DATABASE[op.get_bind().dialect.name], strict=True))
    for statement in TABLES.format(**words).split(";\n"):
        op.get_bind().exec_driver_sql(statement)
