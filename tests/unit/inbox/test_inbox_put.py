"""Storing: durable, once per key, in groups, under threads, within the deadline."""

from __future__ import annotations

import contextlib
import fcntl
import resource
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from kit import NOON, Foreigner, incoming, open_inbox, rows, together, until, value

from billhook.errors import (
    BacklogFull,
    ConfigError,
    DeadlinePassed,
    Draining,
    InboxUnavailable,
    SchemaMismatch,
)
from billhook.inbox import Inbox, Incoming, Receipt, Verdict
from billhook.inbox.committer import Committer


@pytest.fixture
def path(tmp_path):
    return tmp_path / "billhook.db"


def test_what_was_put_is_what_is_stored(inbox, path):
    body = bytes(range(256))
    zone = timezone(timedelta(hours=5, minutes=30))
    signed_at = datetime(2026, 1, 15, 17, 30, tzinfo=zone)

    receipt = inbox.put(Incoming("eu", "k\u00e9y 1", "Some.Type", body, '{"A": "\u00fc"}', signed_at, NOON))

    columns = "id, source, key, event_type, body, headers, state, signed_at, received_at"
    (row,) = rows(path, f"SELECT {columns} FROM delivery")
    assert receipt == (receipt.__class__(Verdict.ACCEPTED, row[0], "Some.Type"))
    assert row[1:7] == ("eu", "k\u00e9y 1", "Some.Type", body, '{"A": "\u00fc"}', "received")
    assert row[7:] == ("2026-01-15 12:00:00.000000", "2026-01-15 12:00:00.000000")


def test_what_was_put_is_what_comes_out(inbox):
    given = incoming("k", body=b"\x00\xff", at=datetime(2026, 1, 15, 12, 0, 0, 123456, tzinfo=UTC))
    receipt = inbox.put(given)

    (stored,) = inbox.received(10)

    assert stored.delivery_id == receipt.delivery_id
    assert (stored.key, stored.body, stored.headers) == ("k", b"\x00\xff", "{}")
    assert (stored.signed_at, stored.received_at) == (given.signed_at, given.received_at)


def test_a_delivery_without_a_time_of_signing_has_none(inbox):
    inbox.put(Incoming("s", "k", "T", b"", "{}", None, NOON))

    assert inbox.received(1)[0].signed_at is None


def test_deliveries_come_out_oldest_first_and_one_by_one_if_asked(inbox):
    receipts = [inbox.put(incoming(f"k{n}")) for n in range(3)]

    assert [stored.key for stored in inbox.received(2)] == ["k0", "k1"]
    assert [stored.key for stored in inbox.received(10, only=receipts[2].delivery_id)] == ["k2"]


# --- once per key ---------------------------------------------------------------------------------


def test_the_same_key_again_is_a_duplicate_with_the_first_ones_id(inbox, path):
    first = inbox.put(incoming("k", body=b"1"))

    second = inbox.put(incoming("k", body=b"2"))

    assert (first.verdict, second.verdict) == (Verdict.ACCEPTED, Verdict.DUPLICATE)
    assert first.delivery_id == second.delivery_id
    assert rows(path, "SELECT body FROM delivery") == [(b"1",)]


def test_the_same_key_under_another_type_is_a_conflict_that_names_the_first(inbox, path):
    inbox.put(incoming("k", event_type="MonthEndReport"))

    receipt = inbox.put(incoming("k", event_type="UnchargedEvents"))

    assert (receipt.verdict, receipt.stored_event_type) == (Verdict.CONFLICT, "MonthEndReport")
    assert rows(path, "SELECT event_type FROM delivery") == [("MonthEndReport",)]


def test_the_same_key_of_another_source_is_another_delivery(inbox, path):
    verdicts = [inbox.put(incoming("k", source=source)).verdict for source in ("eu", "us")]

    assert verdicts == [Verdict.ACCEPTED, Verdict.ACCEPTED]
    assert value(path, "SELECT count(*) FROM delivery") == 2


def test_one_key_from_64_threads_is_accepted_once(inbox, path):
    receipts = together(64, lambda _: inbox.put(incoming("k")))

    verdicts = [receipt.verdict for receipt in receipts]
    assert verdicts.count(Verdict.ACCEPTED) == 1
    assert verdicts.count(Verdict.DUPLICATE) == 63
    assert {receipt.delivery_id for receipt in receipts} == {value(path, "SELECT id FROM delivery")}


def test_a_crowd_of_new_repeated_and_conflicting_keys_each_get_their_own_verdict(inbox, path):
    inbox.put(incoming("old"))

    def put(number):
        key, event_type = [
            ("old", "PingTest"),
            ("old", "Other"),
            ("mixed", "PingTest"),
            (f"k{number}", "PingTest"),
        ][number % 4]
        return key, inbox.put(incoming(key, event_type=event_type, body=b"%d" % number))

    results = together(48, put)

    for number, (key, receipt) in enumerate(results):
        expected = value(path, "SELECT id FROM delivery WHERE key = ?", key)
        assert receipt.delivery_id == expected
        if number % 4 == 0:
            assert receipt.verdict is Verdict.DUPLICATE
        if number % 4 == 1:
            assert receipt.verdict is Verdict.CONFLICT
        if number % 4 == 3:
            assert receipt.verdict is Verdict.ACCEPTED
            assert value(path, "SELECT body FROM delivery WHERE key = ?", key) == b"%d" % number
    mixed = [receipt.verdict for key, receipt in results if key == "mixed"]
    assert mixed.count(Verdict.ACCEPTED) == 1


def test_each_receipt_of_a_crowd_is_its_own(inbox, path):
    receipts = together(100, lambda n: inbox.put(incoming(f"k{n}")))

    stored = dict(rows(path, "SELECT key, id FROM delivery"))
    assert [receipt.delivery_id for receipt in receipts] == [stored[f"k{n}"] for n in range(100)]
    assert {receipt.verdict for receipt in receipts} == {Verdict.ACCEPTED}


# --- durable, and in groups -----------------------------------------------------------------------


class Recorded(sqlite3.Connection):
    """A connection that keeps the statements SQLite ran."""

    statements: list[str]

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.set_trace_callback(type(self).statements.append)


@pytest.fixture
def statements(monkeypatch):
    """What SQLite runs, in any connection made from now on."""
    Recorded.statements = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "factory": Recorded}))
    return Recorded.statements


def inserts(statements):
    """Each batch once, however often it was tried."""
    return {text for text in statements if text.startswith("INSERT INTO delivery")}


def test_puts_that_wait_together_share_a_transaction(inbox, path, statements):
    with Foreigner(path) as foreigner:
        thread = threading.Thread(target=inbox.put, args=(incoming("first"),))
        thread.start()
        time.sleep(0.1)  # it holds the committer now, and the rest queue up behind it
        crowd = [threading.Thread(target=inbox.put, args=(incoming(f"k{n}"),)) for n in range(40)]
        for one in crowd:
            one.start()
        time.sleep(0.1)
        foreigner.let_go()
    for one in (thread, *crowd):
        one.join()

    assert value(path, "SELECT count(*) FROM delivery") == 41
    assert len(set(inserts(statements))) <= 6  # one that found the file locked was tried again


def test_puts_one_after_the_other_do_not_wait_for_company(inbox, path, statements):
    started = time.monotonic()

    for number in range(20):
        inbox.put(incoming(f"k{number}"))

    assert len(inserts(statements)) == 20
    assert time.monotonic() - started < 2


class Lax(sqlite3.Connection):
    """A driver, or a build, that goes its own way about durability."""

    ignored = "?"

    def execute(self, statement, *rest):
        if statement.startswith(f"PRAGMA {self.ignored}="):
            statement = f"PRAGMA {self.ignored}"
        return super().execute(statement, *rest)


@pytest.mark.parametrize(
    ("pragma", "facts"), [("synchronous", r"\('wal', 2\)"), ("journal_mode", r"\('delete', 2\)")]
)
def test_a_connection_that_would_not_be_durable_is_refused(path, monkeypatch, pragma, facts):
    if pragma == "synchronous":
        # The build's own default is FULL already: make the request for it one for less.
        monkeypatch.setattr(Lax, "execute", _less_synchronous)
        facts = r"\('wal', 1\)"
    monkeypatch.setattr(Lax, "ignored", pragma)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "factory": Lax}))

    with pytest.raises(InboxUnavailable, match=rf"journal_mode, synchronous are {facts}, need \('wal', 2\)"):
        open_inbox(path)


def _less_synchronous(self, statement, *rest):
    return sqlite3.Connection.execute(
        self, statement.replace("synchronous=FULL", "synchronous=NORMAL"), *rest
    )


def test_every_connection_is_in_wal_mode_and_fully_synchronous(inbox, statements):
    inbox.put(incoming("k"))
    with inbox.database.write() as connection:
        facts = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]

    assert facts == ["wal", 2, 1]


def test_the_file_is_readable_by_its_owner_only_and_its_folder_is_made(tmp_path):
    path = tmp_path / "new" / "folder" / "inbox.db"

    open_inbox(path).close()

    assert path.stat().st_mode & 0o777 == 0o600


# --- the deadline ---------------------------------------------------------------------------------


def test_a_foreign_lock_makes_a_put_give_up_within_the_deadline_and_recover(path):
    inbox = open_inbox(path, deadline_seconds=0.5)

    with Foreigner(path):
        started = time.monotonic()
        with pytest.raises(InboxUnavailable, match=r"locked|no commit within"):
            inbox.put(incoming("k"))
        seconds = time.monotonic() - started
    verdict = inbox.put(incoming("k")).verdict

    assert seconds < 0.6
    assert verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE)
    assert value(path, "SELECT count(*) FROM delivery") == 1
    inbox.close()


def test_the_time_that_is_left_is_the_time_that_is_waited(path):
    inbox = open_inbox(path, deadline_seconds=5)

    with Foreigner(path):
        started = time.monotonic()
        with pytest.raises(DeadlinePassed, match=r"no commit within 0\.1 s"):
            inbox.put(incoming("k"), timeout_seconds=0.1)
        seconds = time.monotonic() - started

    assert seconds < 0.3
    inbox.close()


@pytest.mark.parametrize("left", [0.0, -1.0])
def test_no_time_left_is_a_deadline_passed(inbox, path, left):
    with Foreigner(path), pytest.raises(DeadlinePassed, match="no commit within"):
        inbox.put(incoming("k"), timeout_seconds=left)


def test_while_a_batch_hangs_nobody_waits_behind_it(tmp_path, path):
    inbox = open_inbox(path, deadline_seconds=0.3)
    inbox.put(incoming("before"))
    with path.with_name(path.name + "-lock").open("r+b") as turn, Foreigner(path):
        fcntl.flock(turn, fcntl.LOCK_EX)  # a process that stopped in its turn
        with pytest.raises(DeadlinePassed, match="no commit within"):
            inbox.put(incoming("k1"))
        time.sleep(0.1)
        started = time.monotonic()
        with pytest.raises(DeadlinePassed, match="the inbox does not answer"):
            inbox.put(incoming("k2"))
        seconds = time.monotonic() - started

    assert seconds < 0.05
    until(lambda: _accepted(inbox, "k3"))
    inbox.close()


def _accepted(inbox, key):
    with contextlib.suppress(InboxUnavailable):
        return inbox.put(incoming(key))
    return None


def test_a_lock_that_cannot_be_opened_is_a_failure_of_storage_until_it_can(inbox, path):
    lock = path.with_name(path.name + "-lock")
    inbox.close()
    lock.unlink()
    lock.mkdir()

    with pytest.raises(InboxUnavailable, match=r"lock.* failed: "):
        inbox.check_writable()
    lock.rmdir()

    inbox.check_writable()


def test_a_statement_that_cannot_run_is_a_failure_of_storage_until_it_can(inbox, path):
    inbox.put(incoming("before"))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE delivery RENAME TO lost")
    with pytest.raises(InboxUnavailable, match="no such table: delivery"):
        inbox.put(incoming("during"))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE lost RENAME TO delivery")

    assert inbox.put(incoming("during")).verdict is Verdict.ACCEPTED


def test_those_who_gave_up_keep_nobody_from_being_stored(inbox, path):
    with Foreigner(path) as foreigner:
        first = threading.Thread(target=inbox.put, args=(incoming("first"),))
        first.start()
        time.sleep(0.1)
        gave_up = together(5, lambda n: inbox.put(incoming(f"gave up {n}"), timeout_seconds=0.05))
        patient = threading.Thread(target=inbox.put, args=(incoming("patient"),))
        patient.start()
        time.sleep(0.05)
        foreigner.let_go()
    first.join()
    patient.join()

    receipt = inbox.put(incoming("last"))

    assert {type(result) for result in gave_up} == {DeadlinePassed}
    assert value(path, "SELECT id FROM delivery WHERE key = 'last'") == receipt.delivery_id
    assert value(path, "SELECT count(*) FROM delivery WHERE key IN ('first', 'patient')") == 2


def test_a_crowd_larger_than_a_batch_is_stored_in_several(inbox, path, statements):
    def put(number):
        return inbox.put(incoming(f"k{number}"), timeout_seconds=10).verdict

    with Foreigner(path) as foreigner:
        holder = threading.Thread(target=inbox.put, args=(incoming("first"),))
        holder.start()
        time.sleep(0.1)
        releasing = threading.Timer(0.3, foreigner.let_go)
        releasing.start()
        verdicts = together(300, put)
        releasing.join()
    holder.join()

    assert verdicts == [Verdict.ACCEPTED] * 300
    assert value(path, "SELECT count(*) FROM delivery") == 301
    assert 2 < len(inserts(statements)) < 30


def test_a_disk_without_room_is_a_failure_of_storage_and_costs_no_descriptor(inbox, path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    descriptors = []

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        for _ in range(10):
            with pytest.raises(InboxUnavailable, match=r"billhook\.db failed: "):
                inbox.check_writable()
            descriptors.append(len(list(Path("/proc/self/fd").iterdir())))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert descriptors[-1] == descriptors[1]
    inbox.check_writable()


def test_the_log_is_moved_into_the_file_now_and_then(inbox, path, tmp_path):
    for number in range(300):
        inbox.put(incoming(f"k{number}"))

    alone = tmp_path / "alone" / "copy.db"
    alone.parent.mkdir()
    alone.write_bytes(path.read_bytes())  # without the log beside it

    assert value(alone, "SELECT count(*) FROM delivery") > 100
    assert value(path, "SELECT count(*) FROM delivery") == 300


def test_whether_it_can_be_written_is_answered_within_the_deadline_to_all_who_ask(path):
    inbox = open_inbox(path, deadline_seconds=0.3)
    inbox.check_writable()
    with path.with_name(path.name + "-lock").open("r+b") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # a process that stopped in its turn
        started = time.monotonic()
        answers = together(5, lambda _: inbox.check_writable())
        seconds = time.monotonic() - started

    assert {type(answer) for answer in answers} == {DeadlinePassed}
    assert seconds < 0.6
    until(lambda: _writable(inbox))
    inbox.close()


def _writable(inbox):
    with contextlib.suppress(InboxUnavailable):
        inbox.check_writable()
        return True
    return False


def test_while_one_finds_out_whether_storage_is_back_the_others_are_told_at_once(path):
    inbox = open_inbox(path, deadline_seconds=0.5)
    inbox.put(incoming("before"))
    with Foreigner(path):
        with pytest.raises(InboxUnavailable, match="locked"):
            inbox.put(incoming("k1"))
        time.sleep(0.05)  # the committer is idle again
        one = threading.Thread(target=lambda: _accepted(inbox, "k2"))
        one.start()
        time.sleep(0.05)
        started = time.monotonic()
        with pytest.raises(InboxUnavailable, match="the inbox is failing"):
            inbox.put(incoming("k3"))
        seconds = time.monotonic() - started
        one.join()

    assert seconds < 0.1
    assert inbox.put(incoming("after")).verdict is Verdict.ACCEPTED
    inbox.close()


def test_what_fails_after_a_commit_ends_neither_it_nor_the_committer(caplog):
    def tidy():
        raise LookupError("tidying")

    committer = Committer(lambda take: [Receipt(Verdict.ACCEPTED, 1, one.key) for one in take()], tidy, 1.0)

    keys = [committer.put(incoming(key), 1.0).stored_event_type for key in ("k1", "k2")]
    committer.close()

    assert keys == ["k1", "k2"]
    assert "tidying up after a commit failed; the commit stands" in caplog.text


# --- the end --------------------------------------------------------------------------------------


def test_closing_commits_what_waits(path):
    inbox = open_inbox(path)
    results = []
    with Foreigner(path) as foreigner:
        threads = [
            threading.Thread(target=lambda n=n: results.append(inbox.put(incoming(f"k{n}"))))
            for n in range(10)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        closing = threading.Thread(target=inbox.close)
        closing.start()
        time.sleep(0.05)
        foreigner.let_go()
    for thread in (*threads, closing):
        thread.join()

    assert [receipt.verdict for receipt in results] == [Verdict.ACCEPTED] * 10
    assert value(path, "SELECT count(*) FROM delivery") == 10


def test_after_closing_nothing_more_is_taken(path):
    used, unused = open_inbox(path), open_inbox(path)
    used.put(incoming("k"))
    used.close()
    unused.close()

    for inbox in (used, unused):
        with pytest.raises(Draining, match="shutting down"):
            inbox.put(incoming("late"))
        inbox.close()


# --- the backlog ----------------------------------------------------------------------------------


def test_a_full_backlog_takes_nothing_until_it_shrinks(path):
    inbox = open_inbox(path, backlog_limit=3)
    for number in range(3):
        inbox.put(incoming(f"k{number}"))

    with pytest.raises(BacklogFull, match="3 deliveries wait already"):
        inbox.put(incoming("k3"))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE delivery SET state = 'done' WHERE key = 'k0'")

    assert inbox.put(incoming("k3")).verdict is Verdict.ACCEPTED
    inbox.close()


# --- which file, which schema ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqlite://", "must name a file: an inbox in memory would lose deliveries"),
        ("sqlite:///:memory:", "must name a file"),
        ("postgresql+psycopg2://u:hunter2hunter2@h/d", r"names 'postgresql\+psycopg2': an inbox is"),
        ("mysql://u:hunter2hunter2@h/d", "names 'mysql'"),
        ("u:hunter2hunter2@nonsense", "is no database URL: write sqlite:///PATH"),
        ("postgresql://u:hunter2hunter2@h:port/d", "is no database URL"),
        ("", "is no database URL"),
    ],
)
def test_what_is_no_file_is_refused_without_its_password(url, text):
    with pytest.raises(ConfigError, match=text) as caught:
        Inbox(url)

    assert "hunter2" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"the inbox .*file/inbox\.db cannot be opened: "):
        open_inbox(tmp_path / "file" / "inbox.db")


def _set_version(path, text):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE billhook_version SET version_num = ?", (text,))


def test_a_newer_schema_is_refused_at_start_and_left_alone(path):
    open_inbox(path).close()
    _set_version(path, "9999")

    with pytest.raises(
        SchemaMismatch, match=r"has schema 9999, .* needs 0001: it is newer .*: upgrade the package"
    ):
        open_inbox(path)

    assert value(path, "SELECT version_num FROM billhook_version") == "9999"


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0000", r"has schema 0000, this billhook needs 0001: run `billhook db upgrade`"),
        ("9999", "it is newer"),
    ],
)
def test_a_schema_of_another_version_is_refused_by_whoever_only_opens(path, version, text):
    open_inbox(path).close()
    _set_version(path, version)
    inbox = Inbox(f"sqlite:///{path}")

    for use in (lambda: inbox.received(1), inbox.check_writable, lambda: inbox.put(incoming("k"))):
        with pytest.raises((SchemaMismatch, InboxUnavailable), match=f"{text}|the commit failed"):
            use()
    inbox.close()


def test_a_missing_schema_is_refused_by_whoever_only_opens(path):
    path.touch()
    inbox = Inbox(f"sqlite:///{path}")

    with pytest.raises(SchemaMismatch, match=r"has schema none, .* needs 0001: run `billhook db upgrade`"):
        inbox.check_writable()

    inbox.upgrade()
    inbox.check_writable()
    inbox.close()


def test_a_missing_file_is_never_made_by_whoever_only_opens(path):
    inbox = Inbox(f"sqlite:///{path}")

    with pytest.raises(InboxUnavailable, match=r"failed: .*No such file or directory"):
        inbox.put(incoming("k"))

    assert not path.exists()
    inbox.close()


def test_preparing_twice_changes_nothing(inbox, path):
    inbox.put(incoming("k"))
    before = rows(path, "SELECT sql FROM sqlite_master ORDER BY name")

    open_inbox(path).close()

    assert rows(path, "SELECT sql FROM sqlite_master ORDER BY name") == before
    assert value(path, "SELECT count(*) FROM delivery") == 1


def test_the_migrations_make_the_tables_of_the_code(path):
    from sqlalchemy import create_engine, inspect

    from billhook.inbox.schema import REVISION, metadata

    open_inbox(path).close()
    engine = create_engine(f"sqlite:///{path}")
    found = inspect(engine)

    tables = {
        table.name: {(column.name, column.nullable) for column in table.columns}
        for table in metadata.sorted_tables
    }
    made = {
        name: {(column["name"], column["nullable"]) for column in found.get_columns(name)} for name in tables
    }
    assert made == tables
    for table in metadata.sorted_tables:
        assert {index["name"] for index in found.get_indexes(table.name)} == {i.name for i in table.indexes}
    assert value(path, "SELECT version_num FROM billhook_version") == REVISION
    assert sorted(found.get_table_names()) == ["billhook_version", "delivery", "failure", "run"]
    engine.dispose()


def test_others_tables_in_the_same_file_are_left_alone(path):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.execute("INSERT INTO mine VALUES (1)")

    open_inbox(path).close()

    assert rows(path, "SELECT x FROM mine") == [(1,)]


def test_a_foreign_table_of_our_name_is_a_plain_refusal(path):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE delivery (x)")

    with pytest.raises(InboxUnavailable, match="table delivery already exists"):
        open_inbox(path)
