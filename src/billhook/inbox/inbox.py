"""Inbox: the database of deliveries. The receiver puts, the engines claim and settle in transactions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, ParamSpec, TypeVar

from sqlalchemy import Executable, UpdateBase, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from billhook.basics import failpoints
from billhook.basics.concurrency import observe_crashes, reset_in_child, run_blocking
from billhook.errors import ConfigError, MissingExtra
from billhook.inbox.counting import compaction, counts, retention
from billhook.inbox.counting.counts import Counted, Counts, Sum
from billhook.inbox.counting.crashes import crash_key
from billhook.inbox.counting.retention import Cutoffs, PruneResult
from billhook.inbox.counting.unconsumed import unconsumed_key
from billhook.inbox.running import due, handler_lists, workers
from billhook.inbox.running import limits as handler_limits
from billhook.inbox.running.due import NEVER, NextTimes, PendingDelivery, PollStart, Unread, read_unread
from billhook.inbox.running.former_names import record_former_names
from billhook.inbox.running.handler_lists import EVERY_TYPE, HandlerList, LiveList, TypeFilter
from billhook.inbox.running.transaction import NO_LIMITS, InboxTransaction, count_skipped, every_name
from billhook.inbox.running.unread import RoundRobin
from billhook.inbox.sqlite import SqliteDatabase
from billhook.inbox.storing.buffered_counts import BufferedCounts
from billhook.inbox.storing.committer import BacklogLimit, Committer
from billhook.inbox.storing.ingest import ingest
from billhook.inbox.storing.probe import Probe, StartupCheck
from billhook.inbox.tables.database import Database, Waker
from billhook.inbox.tables.records import HandlerLimits, Lease, PausedHandler, StoredDelivery, WorkerRecord
from billhook.inbox.tables.revision import any_schema, found_revision, upgradable_revision, upgrade_schema
from billhook.inbox.tables.schema import version
from billhook.inbox.tables.states import DeliveryState

P = ParamSpec("P")
T = TypeVar("T")


class Inbox:
    """Deliveries and the runs they cause, in one database.

    Safe under threads and under fork: every process opens connections of its own at first use.
    """

    def __init__(
        self,
        url: str,
        *,
        deadline_seconds: float = 2.5,
        backlog_limit: int | None = None,
        schema: str = "billhook",
        pool_mode: str = "transaction",
        own_folder: bool = False,
        known_types: Collection[str] | None = None,
        release: str = "",
    ) -> None:
        """`url` is sqlite:///PATH or postgresql+psycopg://…; see open_database.

        Deliveries of `known_types` are counted by type, all others together; None: each by its own type.
        `release` names the release of the user's code that runs in this process.
        """
        self._deadline_seconds = deadline_seconds
        self.known_types = known_types
        self._release = release
        self._release_id: int | None = None
        """The number of the process's release, once a transaction has looked it up."""
        self.limits: Callable[[], Mapping[str, HandlerLimits]] = dict
        """Return the limits of handlers that are loaded, by the names that their runs are stored under."""
        self.held: set[Lease] = set()
        """The leases that workers of this process hold, from a committed claim to the result's commit."""
        reset_in_child(self._reset_in_child)
        self._noted: counts.Note | None = None
        # SQLite waits for another program's lock, but not so long that the response misses its deadline.
        self.database = open_database(
            url,
            busy_seconds=deadline_seconds * 0.6,
            schema=schema,
            pool_mode=pool_mode,
            own_folder=own_folder,
        )
        self.waker: Waker = self.database.waker
        """Wakes every engine of this inbox, in any process; notified after each commit of deliveries."""
        count = self._native(self._count_unfinished)
        self._probe = Probe(self._native(self._commit_nothing))
        self._committer = Committer(
            partial(ingest, self.database),
            # After the responses are on their way: neither is worth a sender's time. Once a batch, not once a
            # delivery: a worker that wakes up polls for all of it.
            self.database.after_commit,
            deadline_seconds,
            backlog=None if backlog_limit is None else BacklogLimit(count, backlog_limit),
            on_failure=self._probe.discard_answer,
            insert_blocks=self.database.waits_in_c,
            write_lock_holder=self.database.write_lock_holder,
            turn=self.database.turn,
        )
        self._counts = BufferedCounts(self._native(self._write_counts))
        self.count = self._counts.add
        """Count what no transaction is written for, a refusal or a duplicate; see BufferedCounts.add."""
        observe_crashes(self._count_crash)
        self.put = self._committer.put
        """Return a Receipt once a delivery is on stable storage; see Committer.put."""
        self.put_async = self._committer.put_async
        """Return the Receipt to a coroutine; see Committer.put_async."""

    def _reset_in_child(self) -> None:
        self.held.clear()  # those are the parent's

    def _native(self, work: Callable[P, T]) -> Callable[P, T]:
        """Wrap `work` so that gevent's other greenlets run while the disk works, as they do with a server."""
        return partial(run_blocking, work) if self.database.waits_in_c else work

    def fetch(self, query: Executable) -> Sequence[Any]:
        """Return the rows of a query in a snapshot of its own."""
        with self.database.read() as connection:
            return connection.execute(query).all()

    def apply(self, change: UpdateBase) -> int:
        """Make a change in a transaction of its own; return how many rows it changed."""
        with self.database.write() as connection:
            return connection.execute(change).rowcount

    def read_counts(
        self,
        *labels: str,
        since: datetime = counts.BEFORE,
        only: Collection[Counted] = tuple(Counted),
        by_minute: bool = False,
    ) -> Counts:
        """Return what happened by these labels; see billhook.inbox.counting.counts.read_counts."""
        which = (self.known_types, labels, since, only)
        with self.database.read() as connection:
            return counts.read_counts(connection, *which, by_minute=by_minute)

    @property
    def is_missing(self) -> bool:
        """Whether it is a file that does not exist; a server's database is not created here."""
        return self.database.is_missing

    def now(self) -> datetime:
        """Return the time of the inbox's clock, which all times in it are from; may ask the server for it.

        Raises InboxUnavailable.
        """
        return self.database.now()

    def prepare(self, timeout_seconds: float | None = None) -> None:
        """Create or upgrade a SQLite file at start, and refuse a database that this code does not fit.
        Leaves no connection open, so that a fork may follow. Raises SchemaMismatch or InboxUnavailable. A
        server that takes longer than `timeout_seconds` is checked on in a thread.
        """
        if any_schema.get():
            return
        if timeout_seconds is None or not self.database.may_be_away:
            self.database.prepare()
        else:
            check = StartupCheck(self.database.prepare, self.database.display_url)
            self._committer.startup_check = check
            check.result(timeout_seconds)

    def revision(self) -> str | None:
        """Return the schema's revision, of any age; None without tables."""
        with self.database.migration_transaction() as connection:
            return found_revision(connection)

    def upgrade(self, *, dry_run: bool = False) -> None:
        """Upgrade the schema to this code's revision; several processes may do so at once.

        Raises SchemaForbidden, SchemaMismatch; a `dry_run` does nothing else.
        """
        with self.database.migration_transaction() as connection:
            if upgradable_revision(connection) is None:
                self.database.create_schema(connection, dry_run=dry_run)
            if not dry_run:
                upgrade_schema(connection)

    def start(self) -> None:
        """Start the thread that commits, now rather than at the first `put`. Raises OutOfResources."""
        self._committer.reopen()
        self._counts.reopen()
        self._committer.start()

    def _count_unfinished(self, limit: int) -> int:
        with self.database.read(storing=True) as connection:
            return due.count_unfinished(connection, limit)

    def received(
        self, limit: int, turns: RoundRobin | None = None, types: TypeFilter = EVERY_TYPE
    ) -> list[StoredDelivery]:
        """Return deliveries that no engine has read yet: the oldest, or of each of these types in turn."""
        with self.database.read() as connection:
            return read_unread(connection, limit, turns, types).deliveries

    def live_lists(self, now: datetime) -> list[LiveList]:
        """Return the lists of handlers of live processes, the newest first."""
        with self.database.read(checked=False) as connection:
            return handler_lists.read_live_lists(connection, now)

    def waits_since(self, types: TypeFilter) -> datetime | None:
        """Return when the oldest unread delivery of none of these types was received; None without one."""
        with self.database.read(checked=False) as connection:
            return handler_lists.waits_since(connection, types)

    def poll(
        self,
        limit: int,
        limits: Mapping[str, HandlerLimits] = NO_LIMITS,
        only: int | None = None,
        turns: RoundRobin | None = None,
        *,
        types: TypeFilter = EVERY_TYPE,
        alive_since: datetime = NEVER,
        start: PollStart | None = None,
    ) -> tuple[Unread, NextTimes]:
        """Return what an engine has to do: unread deliveries of these types, and when runs are due.

        With `only`, look at that delivery alone, of any type. It has no runs while it is unread. `limits` are
        those of handlers, by the names that their runs are stored under. Processes that were seen since
        `alive_since` are alive. The engine's transaction checks the schema. From a `start` on, look there.
        """
        with self.database.read(checked=False) as connection:
            unread = read_unread(connection, limit, turns, types, alive_since, only, start)
            if only is not None and unread.deliveries:
                return unread, due.NOTHING_DUE
            return unread, due.next_times(connection, limits, only, start)

    def next_times(self, limits: Mapping[str, HandlerLimits]) -> NextTimes:
        """Return when the next runs are due of handlers with these limits."""
        with self.database.read() as connection:
            return due.next_times(connection, limits)

    def pending(
        self,
        limits: Mapping[str, HandlerLimits],
        *,
        received_before: datetime,
        now: datetime,
        limit: int,
        types: TypeFilter = EVERY_TYPE,
        which: Callable[[str], bool] = every_name,
    ) -> tuple[list[PendingDelivery], NextTimes]:
        """Return deliveries that should be in progress, and when further ones should be.

        Unread ones are of these types, and the others have runs under names that `which` accepts.
        """
        with self.database.read() as connection:
            times = due.next_times(connection, limits).of(which)
            deliveries = due.pending(
                *(connection, limits, times),
                received_before=received_before,
                now=now,
                limit=limit,
                types=types,
            )
            return deliveries, times

    @contextmanager
    def transaction(
        self, owner: str, limits: Mapping[str, HandlerLimits] = NO_LIMITS
    ) -> Iterator[InboxTransaction]:
        """Open a write transaction of an engine: all of it is committed or nothing.

        `limits` are those of handlers, by the names that their runs are stored under.
        """
        now = self.now() if self._release_id is None else None
        with self.database.write() as connection:
            release_id = self._release_id
            if now is not None:
                release_id = workers.release_number(connection, self._release, now)
            transaction = InboxTransaction(connection, owner, limits, self.held, release_id, self.known_types)
            yield transaction
            transaction.finish()
            if failpoints.ARMED:  # tests kill the process here, and below
                for step in transaction.steps:
                    failpoints.reach(f"in_{step}")
        self._release_id = release_id
        if failpoints.ARMED:
            for step in transaction.steps:
                failpoints.reach(f"after_{step}")

    def count_skipped(self, unplanned: Collection[int], unsettled: Collection[Lease]) -> int:
        """Count the rows that no transaction has changed although one should have: the database skipped them.

        `unplanned` are deliveries that it left out, `unsettled` leases that it found lost.
        """
        with self.database.read(checked=False) as connection:
            return count_skipped(connection, unplanned, unsettled)

    def prune(
        self,
        cutoffs: Cutoffs,
        after: int = 0,
        limit: int = retention.BATCH_LIMIT,
        *,
        states: Collection[DeliveryState] = retention.PRUNABLE,
        dry_run: bool = False,
    ) -> PruneResult:
        """Prune up to `limit` old deliveries in these states, in one transaction.

        Starts behind the id `after`: call it again with the result's own `after` until the result says
        `over`. A `dry_run` counts and changes nothing.
        """
        with self.database.read() as connection:  # the search takes no lock that a put would wait for
            rows: Sequence[Any]
            rows, after, over = retention.find(connection, cutoffs, after, limit, states)
        if rows and not dry_run:
            with self.database.write() as connection:
                rows = retention.prune(connection, rows, cutoffs, self.known_types)
        return retention.counted(rows, cutoffs, after, over=over)

    def compact_counts(self, now: datetime) -> int:
        """Merge some of the old counts; returns how many rows, 0 when there is nothing left to do."""
        with self.database.write() as connection:
            return compaction.compact(connection, now)

    def advance_watermark(self, now: datetime) -> bool:
        """Move the watermark of counts to some seconds ago; True if there is more.

        On PostgreSQL one call moves it to what an earlier one noted, once the transactions of that time
        are over.
        """
        with self.database.read() as connection:
            latest = counts.note(connection, now)
        # Where only one writes, those that were open are over when this one does.
        noted = self._noted if self.database.writes_overlap else latest
        more = False
        if noted is not None and latest is not None:
            if noted.transactions & latest.transactions:
                return False
            if latest.end.finished_at < noted.end.finished_at:
                self._noted = latest  # the clock was set back: what finishes now may be before that end
                return False
            with self.database.write() as connection:
                more = counts.advance(connection, noted.end, self.known_types)
                failpoints.reach("in_watermark")
            failpoints.reach("after_watermark")
        self._noted = noted if more else latest
        return more

    def _count_crash(self, thread: str, error: Exception) -> None:
        now = self.database.clock.now()
        self._counts.put(crash_key(thread, error, now), Sum(1, 0.0, now))

    def note_unconsumed(self, queue: str, now: datetime) -> None:
        """Note that no worker consumes a broker's queue; in the inbox some seconds later."""
        self._counts.put(unconsumed_key(queue, now), Sum(1, 0.0, now))

    def _write_counts(self, buffered: Counts) -> None:
        with self.database.write(storing=True) as connection:
            buffered.write(connection)

    def pause_handler(self, name: str, why: str | None, now: datetime) -> bool:
        """Pause a handler in all workers: its runs wait; False if it was paused already."""
        with self.database.write() as connection:
            return handler_limits.pause(connection, name, why, now)

    def resume_handler(self, name: str) -> bool:
        """Resume a paused handler; False if it was not paused."""
        with self.database.write() as connection:
            resumed = handler_limits.resume(connection, name)
        self.waker.wake()
        return resumed

    def paused_handlers(self, name: str | None = None) -> list[PausedHandler]:
        """Return the handlers whose runs wait for `resume_handler`; only this one, by any of its names."""
        with self.database.read() as connection:
            return handler_limits.find_paused(connection, name)

    def record_worker(
        self,
        seen: WorkerRecord,
        now: datetime,
        own_list: HandlerList | None = None,
        *,
        read_at: datetime | None = None,
    ) -> int | None:
        """Record that a process is alive with its list of handlers; return the number of the list.

        `read_at`: when it last read what it plans, since it was recorded last. Deletes the rows of those not
        seen for long. What is due later than any wait may take is made due: the clock was ahead then.
        """
        with self.database.write() as connection:
            # Looked up each time: the file may have been replaced.
            release_id = workers.release_number(connection, self._release, now)
            list_id = None if own_list is None else handler_lists.list_number(connection, own_list, now)
            workers.record_worker(connection, seen, release_id, list_id, now)
            if read_at is not None and list_id is not None:
                handler_lists.note_planned(connection, list_id, read_at)
            due.reset_far_due_times(connection, due.next_times(connection, NO_LIMITS).due, now)
        self._release_id = release_id
        record_former_names(self.database, own_list, list_id, now)
        return list_id

    def record_list(self, own_list: HandlerList, now: datetime) -> int:
        """Record a list of handlers whose processes another one records as alive; return its number."""
        with self.database.write() as connection:
            number = handler_lists.list_number(connection, own_list, now)
        record_former_names(self.database, own_list, number, now)
        return number

    def record_stopping(self, owner: str) -> None:
        """Record that a process was asked to stop: others plan what its list of handlers decided."""
        with self.database.write() as connection:
            workers.record_stopping(connection, owner)

    def record_stop(self, owner: str) -> None:
        """Record that a worker stopped in order."""
        now = self.now()
        with self.database.write() as connection:
            workers.record_stop(connection, owner, now)

    def worker_seen_at(self) -> datetime | None:
        """Return when any worker was last seen; None if there was none, or all stopped in order."""
        with self.database.read() as connection:
            return workers.worker_times(connection)[0]

    def check_writable(self, max_age_seconds: float = 0.0) -> None:
        """Raise InboxUnavailable unless a write can be committed now, within the deadline.

        Raises SchemaMismatch also if this code may store deliveries in a newer schema: see its `stores`. A
        success up to `max_age_seconds` ago is used again, unless a write has failed since.
        """
        self._probe.ask(self._deadline_seconds, max_age_seconds)

    def _commit_nothing(self) -> None:
        with self.database.write(storing=True) as connection:
            connection.execute(update(version).values(version_num=version.c.version_num))
        self.database.checkpoint(at_once=True)  # a probe every second must not make the log grow
        with self.database.read():
            pass  # the schema is that of this code

    def close(self) -> None:
        """Commit what waits, refuse new deliveries, and close this process's connections."""
        self._committer.close()
        self._counts.close()
        self.database.close()


_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")


def open_database(
    url: str, *, busy_seconds: float, schema: str, pool_mode: str, own_folder: bool
) -> Database:
    """Open sqlite:///PATH, or postgresql+psycopg://USER@HOST/NAME with the extra billhook[postgres].

    `schema`: where the tables are on PostgreSQL, unless the URL's search_path says. `pool_mode`: what a
    pooler before it keeps for a connection, "session" or "transaction". `own_folder`: whether a SQLite file's
    folder may be created. `busy_seconds`: how long to wait for a locked SQLite file.
    Raises ConfigError for any other URL, without repeating its password; MissingExtra.
    """
    if not _SCHEMA.fullmatch(schema):
        raise ConfigError(
            f"BILLHOOK_INBOX_SCHEMA is {schema!r}: it must be at most 63 of a to z, 0 to 9 and _, "
            "begin with no digit and not with pg_"
        )
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ConfigError(
            "BILLHOOK_INBOX_URL is no database URL: write sqlite:///PATH or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        ) from None
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise ConfigError("BILLHOOK_INBOX_URL must name a file: an inbox in memory would lose deliveries")
        return SqliteDatabase(str(parsed.database), busy_seconds, own_folder=own_folder)
    if parsed.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ConfigError(
            f"BILLHOOK_INBOX_URL names {parsed.drivername!r}: an inbox is sqlite:///PATH or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        )
    if (
        "@" in f"{parsed.host}{parsed.database}"
    ):  # what stands before it may be part of the password: do not repeat it
        raise ConfigError(
            "BILLHOOK_INBOX_URL has an @ too many: in a password write %40 for @, %2F for / and %25 for %"
        )
    try:
        from billhook.inbox.postgres import PostgresDatabase  # last: a wrong URL is no missing extra
    except ImportError:
        raise MissingExtra("an inbox in PostgreSQL", "postgres") from None
    try:
        return PostgresDatabase(
            parsed.set(drivername="postgresql+psycopg"), schema, is_session=pool_mode == "session"
        )
    except (ArgumentError, ValueError):
        raise ConfigError(
            "BILLHOOK_INBOX_URL names several hosts in a way that is not understood: write "
            "postgresql+psycopg://USER:PASSWORD@/NAME?host=FIRST:PORT&host=SECOND:PORT"
        ) from None
