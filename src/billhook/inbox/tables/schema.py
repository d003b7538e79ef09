"""The inbox's tables and their indexes. Which version of them an inbox has: inbox.tables.revision."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    and_,
    literal_column,
    text,
)

from billhook.inbox.tables.sql import UtcDateTime, in_states
from billhook.inbox.tables.states import DeliveryState, RunState

# SQLite gives only INTEGER PRIMARY KEY its row id; PostgreSQL wants the width.
_Id = BigInteger().with_variant(Integer, "sqlite")

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    }
)

delivery = Table(
    "delivery",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("source", Text, nullable=False),
    Column("key", Text, nullable=False),
    # Which of the deliveries of its key it is: see billhook.inbox.storing.ingest.
    Column("variant", Text, nullable=False, server_default=""),
    # "" while it is not read, and where it is missing.
    Column("event_type", Text, nullable=False),
    # The path of the field of the body that has the type, where no header does: it is read when the delivery
    # is planned. Stored, so that any worker knows it.
    Column("type_field", Text),
    # The type as it came, where an operator named another one.
    Column("sent_as", Text),
    # The further types under which its bytes came, as a JSON list: see billhook.inbox.storing.ingest.
    Column("also_sent_as", Text),
    # The first delivery of its key, where this one contradicts it. No foreign key: see run.twin_of.
    Column("conflict_of", _Id),
    # The delivery whose body an operator edited and had handled once more as this one; no foreign key either.
    Column("edited_from", _Id),
    Column("headers", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("error", Text),
    Column("signed_at", UtcDateTime),
    Column("received_at", UtcDateTime, nullable=False),
    # SHA-256 of the body, kept when the body is pruned: the same key with other bytes is no duplicate. NULL
    # when the delivery is erased.
    Column("digest", LargeBinary),
    # What it is about, as its event type identifies it; NULL until it is planned.
    Column("identifier_1", Text),
    Column("identifier_2", Text),
    Column("identifier_3", Text),
    # Last, so that reading the others of a row never walks through a large body.
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("source", "key", "variant"),
    Index(None, "event_type", "id"),
)
IDENTIFIERS = (delivery.c.identifier_1, delivery.c.identifier_2, delivery.c.identifier_3)
NO_REASON = {"error": None, "also_sent_as": None}
"""The columns of a reason, for a delivery that needs no action any more."""
NO_IDENTIFIERS = {column.name: None for column in IDENTIFIERS}
run = Table(
    "run",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("delivery_id", _Id, ForeignKey("delivery.id", ondelete="CASCADE"), nullable=False),
    Column("handler", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    # When the run may next be claimed: its retry time while due, its lease's end while running.
    Column("due_at", UtcDateTime, nullable=False),
    # Until it is claimed: the earliest time that `due_at` may have, as its handler or an operator has said.
    # See billhook.inbox.running.postponing.
    Column("not_before", UtcDateTime),
    # The process that claimed it last, and that process's release; both stay when it is settled.
    Column("worker", Text),
    Column("release_id", Integer),
    # 1: its last claim waits in that worker's queue for a thread. A due run keeps it from a claim that was
    # lost there: it is not queued again, where it would never count.
    Column("queued", Integer, nullable=False, server_default=text("0")),
    Column("token", Integer, nullable=False),
    Column("last_error", Text),
    Column("finished_at", UtcDateTime),
    # Runs of one handler and one order_key are handled in order; without one a run never waits.
    Column("order_key", Text),
    # Of those that wait with one order_key only the newest is needed: 1 by arrival, 2 by newest_key. 0: all.
    Column("newest_only", Integer, nullable=False, server_default=text("0")),
    # What says how new its event is, sortable; empty where the event does not say. NULL: arrival does.
    Column("newest_key", Text),
    # The digest by which its handler knows a content duplicate, and which delivery came first.
    # No foreign key: the number is still true when that delivery is gone.
    Column("identity", Text),
    Column("twin_of", _Id),
    # 1: its last attempt was lost with its worker, so that it may have been what killed it.
    Column("runs_alone", Integer, nullable=False, server_default=text("0")),
    # 1: although it should run alone, other runs were started beside it, because it takes long. A due run
    # keeps it from an attempt that was lost so: it is claimed after those that were lost alone.
    Column("beside_others", Integer, nullable=False, server_default=text("0")),
    # Attempts that do not count: lost beside other runs, or interrupted by an orderly stop.
    Column("uncounted_attempts", Integer, nullable=False, server_default=text("0")),
    # Those of them by which its handler put it off.
    Column("postponements", Integer, nullable=False, server_default=text("0")),
    # How often an operator had it run again after it was finished: see billhook.effects.
    Column("replays", Integer, nullable=False, server_default=text("0")),
    # Of its last attempt: when it was claimed, from its end on when its handler was called, and how long the
    # call took. NULL if it was not called.
    Column("started_at", UtcDateTime),
    Column("duration_seconds", Float),
    UniqueConstraint("delivery_id", "handler"),
)
failure = Table(
    "failure",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("run_id", _Id, ForeignKey("run.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("attempt", Integer, nullable=False),
    Column("failed_at", UtcDateTime, nullable=False, index=True),
    Column("error", Text, nullable=False),
    Column("traceback", Text),
    Column("duration_seconds", Float),
    # 1: the run is tried again for it, so that it is counted as failed. 0 if the run is dead, the worker was
    # lost, or the attempt does not count.
    Column("retried", Integer, nullable=False, server_default=text("0")),
    # Which issue it belongs to, and where the user's code failed: see inbox.watching.issues. NULL for an
    # attempt that was interrupted, or by a worker that lacked the handler, which another may have.
    Column("fingerprint", Text),
    Column("place", Text),
    # Where the attempt was made.
    Column("worker", Text),
    Column("release_id", Integer),
)
# Only of handlers that are paused, limited, or paused after failures: see billhook.inbox.running.limits. And
# of former names.
handler = Table(
    "billhook_handler",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("paused_at", UtcDateTime),
    Column("paused_why", Text),
    # The last error, where it was paused after failures in a row.
    Column("paused_error", Text),
    # Attempts that failed one after the other, of any of its runs.
    Column("failures", Integer, nullable=False, server_default=text("0")),
    # By its rate, when the next run may start.
    Column("next_start_at", UtcDateTime),
    # The name that the handler has now, where this is a former one: see billhook.inbox.running.former_names.
    Column("renamed_to", Text),
)
worker = Table(
    "billhook_worker",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("engine", Text, nullable=False),
    Column("handlers", Integer),
    Column("started_at", UtcDateTime, nullable=False),
    Column("host", Text, nullable=False),
    # Its process id, where that is valid, and when the process started: see billhook.basics.process_identity.
    Column("pid", Integer),
    Column("pid_space", Text),
    Column("pid_ticks", BigInteger),
    # How many runs it executes at once, if known.
    Column("threads", Integer),
    Column("release_id", Integer),
    # The list of handlers by which it plans; NULL once it is asked to stop. No foreign key, as for releases.
    Column("list_id", Integer),
    # Indexed, although it is written often: workers that die again and again leave many rows in a day.
    Column("seen_at", UtcDateTime, nullable=False, index=True),
    # When it stopped in order; NULL while it runs, and of one that died.
    Column("stopped_at", UtcDateTime),
    # When it had died at the latest, if that is proven; of another one that died nothing is seen any more.
    Column("died_at", UtcDateTime),
    # Since when it starts no run, as an operator has said; NULL while it may.
    Column("held_at", UtcDateTime),
    Column("held_why", Text),
)
# The lists of handlers that processes plan by: see billhook.inbox.running.handler_lists.
handler_list = Table(
    "billhook_handler_list",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("content", Text, nullable=False),
    # Since when there is always a live process that has it, or was the last time.
    Column("live_since", UtcDateTime, nullable=False),
    # When a process that has it planned last, or had nothing to plan.
    Column("planned_at", UtcDateTime),
    # Deliveries that other processes planned without it, because those that have it did not: how many, when
    # the last, and which of its handlers they lack, as a JSON object of their numbers.
    Column("missed", Integer, nullable=False, server_default=text("0")),
    Column("missed_at", UtcDateTime),
    Column("missed_names", Text),
)
# The releases of the user's code that processes were started with, by BILLHOOK_RELEASE. No foreign key names
# them: each claim would look it up.
release = Table(
    "billhook_release",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("first_at", UtcDateTime, nullable=False),
)
# What is wrong, and what operators said of it. How often it happened is not here: see inbox.watching.issues.
issue = Table(
    "billhook_issue",
    metadata,
    Column("fingerprint", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    # The handler, or the event type.
    Column("subject", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("place", Text),
    Column("state", Text, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("changed_at", UtcDateTime, nullable=False),
    Column("who", Text),
    Column("why", Text),
    Column("snoozed_until", UtcDateTime),
    # This number of further occurrences ends the snooze, as its time does.
    Column("snoozed_more", Integer),
    # 1: a notification was sent that it is open.
    Column("notified", Integer, nullable=False, server_default=text("0")),
)
# Which process sends notifications, in one row: see billhook.inbox.watching.notifications.
notifier = Table(
    "billhook_notifier",
    metadata,
    Column("owner", Text, nullable=False),
    Column("leased_until", UtcDateTime, nullable=False),
    # When a process last looked for issues.
    Column("looked_at", UtcDateTime, nullable=False),
    # By the line of each address, what it took and since when it fails: as JSON.
    Column("addresses", Text, nullable=False),
)
# What operators did. Texts of payloads are in none of its columns: see billhook.inbox.operating.actions.
action = Table(
    "billhook_action",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("at", UtcDateTime, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("which", Text, nullable=False),
    # How many deliveries it changed; NULL for an action on a handler.
    Column("deliveries", Integer),
)
# What billhook has subscribed at the service, which cannot list it: see inbox.operating.subscriptions.
subscription = Table(
    "billhook_subscription",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("at", UtcDateTime, nullable=False),
    Column("who", Text, nullable=False),
    # The address of the service's API.
    Column("service", Text, nullable=False),
    # Without a password and the text of a query, which may be secret; the digest is of the whole URL.
    Column("url", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("threshold", Text, nullable=False),
    Column("recurring_threshold", Text, nullable=False),
)
# The hourly counts of inbox.counting.counts, and in one row up to where they have what other tables hold.
hourly_count = Table(
    "billhook_count",
    metadata,
    Column("hour", UtcDateTime, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("event_type", Text, primary_key=True),
    Column("handler", Text, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("cause", Text, primary_key=True),
    # The step of duration; -1 for what has none.
    Column("bucket", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
    sqlite_with_rowid=False,
)
watermark = Table(
    "billhook_watermark",
    metadata,
    Column("finished_at", UtcDateTime, nullable=False),
    Column("delivery_id", _Id, nullable=False),
    Column("quarantined_id", _Id, nullable=False),
    Column("failure_id", _Id, nullable=False),
)


# Conditions of the partial indexes. SQLite knows an index by the words of its condition: a query that is to
# use one has the condition itself, also where another one implies it.
UNREAD = in_states(delivery.c.state, DeliveryState.RECEIVED)
UNREAD_TYPE = and_(delivery.c.type_field.is_not(None), UNREAD)
UNFINISHED = in_states(delivery.c.state, DeliveryState.RECEIVED, DeliveryState.PLANNED)
FAILED = in_states(delivery.c.state, DeliveryState.DEAD, DeliveryState.QUARANTINED)
CONFLICTING = delivery.c.conflict_of.is_not(None)
CLAIMABLE = in_states(run.c.state, RunState.DUE, RunState.RUNNING)
"""May be claimed at its time: when it is due, or when its lease runs out."""
DUE_RUN, RUNNING_RUN = (
    and_(CLAIMABLE, run.c.state == state.value) for state in (RunState.DUE, RunState.RUNNING)
)
SUSPECT = and_(run.c.runs_alone == literal_column("1"), in_states(run.c.state, RunState.DUE))
"""Due, and its last attempt was lost with its worker."""
DEAD_RUN = in_states(run.c.state, RunState.DEAD)
UNFINISHED_RUN = in_states(run.c.state, RunState.WAITING, RunState.DUE, RunState.RUNNING)
ORDERED_RUN = and_(run.c.order_key.is_not(None), UNFINISHED_RUN)
HANDLED_NEWEST = and_(run.c.newest_key.is_not(None), in_states(run.c.state, RunState.SUCCEEDED))
"""Handled: an older one of its order key that comes later is not."""
FINISHED_RUN = run.c.finished_at.is_not(None)
FIRST_OF_CONTENT = and_(run.c.identity.is_not(None), run.c.twin_of.is_(None))
HAS_FINGERPRINT = failure.c.fingerprint.is_not(None)


def _partial(name: str, condition: ColumnElement[bool], *columns: Column[Any]) -> None:
    """Define an index of few rows: the others, however many, do not slow a put, a plan or a claim."""
    Index(name, *columns, sqlite_where=condition, postgresql_where=condition)


# Neither of these two does for the other. On SQLite, beside 100,000 planned and 100,000 handled deliveries,
# the oldest unread ones take 126 ms without the first, and a turn of each type (inbox.running.unread) takes
# 2 s without the second; with both they take 0.2 ms.
_partial("delivery_received_idx", UNREAD, delivery.c.id)
_partial("delivery_turn_idx", UNREAD, delivery.c.event_type, delivery.c.source, delivery.c.id)
# For the deliveries of which no type is counted yet: see billhook.inbox.counting.counts.
_partial("delivery_unread_type_idx", UNREAD_TYPE, delivery.c.id)
_partial("delivery_unfinished_idx", UNFINISHED, delivery.c.id)
_partial("delivery_failed_idx", FAILED, delivery.c.state, delivery.c.id)
_partial("delivery_conflict_idx", CONFLICTING, delivery.c.id)
for _identifier in IDENTIFIERS:
    _partial(f"delivery_{_identifier.name}_idx", _identifier.is_not(None), _identifier, delivery.c.id)
# Each poll reads it, and workers that die again and again leave many rows.
_partial("billhook_worker_held_idx", worker.c.held_at.is_not(None), worker.c.owner, worker.c.held_at)
_partial("run_claim_idx", CLAIMABLE, run.c.state, run.c.handler, run.c.due_at, run.c.id)
_partial("run_dead_idx", DEAD_RUN, run.c.handler, run.c.finished_at)
_partial("run_alone_idx", SUSPECT, run.c.due_at)
_partial("run_order_idx", ORDERED_RUN, run.c.handler, run.c.order_key, run.c.state, run.c.delivery_id)
_partial(
    "run_newest_idx", HANDLED_NEWEST, run.c.handler, run.c.order_key, run.c.newest_key, run.c.delivery_id
)
# For the runs above the watermark: see billhook.inbox.counting.counts.
_partial("run_finished_at_idx", FINISHED_RUN, run.c.finished_at)
_partial("run_identity_idx", FIRST_OF_CONTENT, run.c.handler, run.c.identity)
# With the run: an issue's attempts and deliveries are counted without reading its failures.
_partial("failure_fingerprint_idx", HAS_FINGERPRINT, failure.c.fingerprint, failure.c.id, failure.c.run_id)

version = Table(
    "billhook_version",
    MetaData(),
    Column("version_num", Text, nullable=False),
    # The oldest revision whose code may still store deliveries; NULL: no older one than version_num.
    Column("oldest_compatible", Text),
    # The schemas of before the first release had numbers that releases have again, and lack this column.
    Column("released", Integer, nullable=False, server_default=text("1")),
)
"""Alembic's own table with more columns, read without importing alembic (0.8 s)."""
