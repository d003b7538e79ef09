"""What only a SQLite file needs: its settings, its locks, its log, the file itself and its folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from billhook.errors import ConfigError, DeadlinePassed, InboxUnavailable, SchemaMismatch
from billhook.inbox import Inbox
from billhook.inbox.sqlite import database, driver
from billhook.inbox.sqlite.driver import FORK_GUARD, ForkGuard
from billhook.inbox.sqlite.library import sqlite3
from support.apps import make_app
from support.inbox_view import NOON, change, incoming, open_inbox, rows, value
from support.processes import limited, run_command
from support.sqlite_libraries import using
from support.templates import new_inbox

FRAME_BYTES = 4096 + 24


@pytest.fixture
def inbox(path):
    return open_inbox(path)


# --- every commit is on the disk ------------------------------------------------------------------


class Lax(sqlite3.Connection):
    """A driver, or a build, that goes its own way about durability."""

    asked, done = "", ""

    def execute(self, statement, *rest):
        return super().execute(statement.replace(self.asked, self.done), *rest)


@pytest.mark.parametrize(
    ("asked", "done", "facts"),
    [
        ("synchronous=FULL", "synchronous=NORMAL", r"\('wal', 1\)"),
        ("journal_mode=WAL", "journal_mode", r"\('delete', 2\)"),
    ],
)
def test_a_connection_that_would_not_be_durable_is_refused(path, monkeypatch, asked, done, facts):
    monkeypatch.setattr(Lax, "asked", asked)
    monkeypatch.setattr(Lax, "done", done)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **{**k, "factory": Lax}))

    with pytest.raises(InboxUnavailable, match=rf"journal_mode, synchronous are {facts}, need \('wal', 2\)"):
        open_inbox(path)


def test_every_connection_is_in_wal_mode_and_fully_synchronous(inbox):
    inbox.put(incoming("k"))
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    expected |= {"fullfsync": 1, "checkpoint_fullfsync": 1}  # on macOS what fsync is elsewhere
    with inbox.database.write() as connection:
        found = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in expected}

    assert found == expected


COMMITS = 40


@pytest.fixture
def often(monkeypatch):
    """Checkpoints after COMMITS commits."""
    monkeypatch.setattr(database, "CHECKPOINT_COMMITS", COMMITS)


def test_a_log_that_grew_beside_a_reader_is_emptied_without_a_probe(inbox, path, often, monkeypatch):
    monkeypatch.setattr(database, "LARGE_LOG_BYTES", 8_000_000)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM delivery").fetchone() == (0,)
        for number in range(10):
            inbox.put(incoming(f"large{number}", body=os.urandom(1_000_000)))
        commit(inbox, 2 * COMMITS)
        grown = log_of(path).stat().st_size
        assert reader.execute("SELECT count(*) FROM delivery").fetchone() == (0,)
        reader.execute("COMMIT")

    commit(inbox, COMMITS)

    assert log_of(path).stat().st_size < 8_000_000 < grown
    assert value(path, "SELECT count(*) FROM delivery") == 10 + 3 * COMMITS
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_under_load_a_large_log_is_emptied_at_most_once_a_minute(inbox, path, often, monkeypatch):
    """While its file grows again, each commit takes longer."""
    commit(inbox, 2 * COMMITS)
    usual = log_of(path).stat().st_size
    monkeypatch.setattr(database, "LARGE_LOG_BYTES", usual // 2)
    sizes = []
    for seconds in (60.0, 60.0, 0.0):
        monkeypatch.setattr(database, "EMPTY_SECONDS", seconds)
        commit(inbox, COMMITS)
        sizes.append(log_of(path).stat().st_size)

    assert usual > COMMITS * FRAME_BYTES
    assert max(sizes[0], sizes[2]) < usual // 2 < sizes[1]


def commit(inbox, count):
    for _ in range(count):
        inbox.put(incoming(uuid.uuid4().hex))


# --- failing --------------------------------------------------------------------------------------


def test_a_lock_that_cannot_be_opened_is_a_failure_of_storage_until_it_can(inbox, path):
    lock = path.with_name(path.name + "-lock")
    inbox.close()
    lock.unlink()
    lock.mkdir()

    with pytest.raises(InboxUnavailable, match=r"lock.* failed: "):
        inbox.check_writable()
    lock.rmdir()

    inbox.check_writable()


def test_a_disk_without_room_is_a_failure_of_storage_and_costs_no_descriptor(inbox, path):
    descriptors = []

    with limited(resource.RLIMIT_FSIZE, 0):
        for _ in range(10):
            with pytest.raises(InboxUnavailable, match=r"billhook\.db failed: "):
                inbox.check_writable()
            descriptors.append(len(list(Path("/dev/fd").iterdir())))

    assert descriptors[-1] == descriptors[1]
    inbox.check_writable()


# --- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("free_mib", "says"), [(0, True), (2, False)])
def test_an_error_says_that_the_disk_is_full(inbox, path, monkeypatch, free_mib, says):
    usage = SimpleNamespace(free=free_mib * 1024**2)
    monkeypatch.setattr("billhook.inbox.sqlite.database.shutil.disk_usage", lambda _: usage)
    path.unlink()

    with pytest.raises(InboxUnavailable) as failed:
        inbox.put(incoming("a"))

    assert ("; 0 KiB are free on its disk: free some space" in str(failed.value)) is says


def test_the_file_is_readable_by_its_owner_only_and_a_folder_of_billhooks_own_is_made(tmp_path):
    path = tmp_path / "new" / "folder" / "inbox.db"

    open_inbox(path, own_folder=True).close()

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_missing_configured_folder_is_reported_and_not_created(tmp_path):
    with pytest.raises(
        ConfigError, match=r"the inbox's folder .*/no/such does not exist: make it, or correct"
    ):
        make_app(tmp_path, BILLHOOK_INBOX_URL=f"sqlite:///{tmp_path / 'no' / 'such' / 'x.db'}")

    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("file/inbox.db", "File exists"),
        ("folder", "Is a directory"),
        ("read only.db", "Permission denied"),
    ],
)
def test_a_file_that_cannot_be_opened_is_reported(tmp_path, monkeypatch, name, why):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    open_inbox(tmp_path / "read only.db").close()
    monkeypatch.setattr(os, "access", lambda file, mode: not file.name.startswith("read only"))  # root may

    with pytest.raises(ConfigError, match=rf"the inbox .*{name} cannot be opened: .*{why}"):
        open_inbox(tmp_path / name)


def test_opening_a_missing_file_does_not_create_it(path):
    inbox = Inbox(f"sqlite:///{path}")

    with pytest.raises(InboxUnavailable, match=r"failed: .*No such file or directory"):
        inbox.put(incoming("k"))

    assert not path.exists()
    inbox.close()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_file_of_another_program_is_refused_and_nothing_in_it_or_beside_it_changes(path, mode):
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute("CREATE TABLE delivery (x)")
        connection.executescript("".join(f"CREATE TABLE mine{number} (x);" for number in range(6)))
    before = path.read_bytes()
    told = (
        r"billhook\.db holds tables of something else \(delivery, mine0, mine1, mine2, mine3, …\) and "
        r"no inbox: give the inbox a file of its own in BILLHOOK_INBOX_URL"
    )

    for use in (
        Inbox.prepare,
        Inbox.upgrade,
        Inbox.revision,
        lambda inbox: inbox.poll(1),
        Inbox.paused_handlers,
        Inbox.check_writable,
        lambda inbox: inbox.put(incoming("k")),
    ):
        inbox = Inbox(f"sqlite:///{path}")
        with pytest.raises((SchemaMismatch, InboxUnavailable), match=told):
            use(inbox)
        inbox.close()

    assert path.read_bytes() == before
    assert {one.name for one in path.parent.iterdir()} <= {path.name, f"{path.name}-lock"}


def test_another_programs_tables_that_are_in_its_log_alone_are_seen_behind_a_link_too(path):
    link = path.parent / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE mine (x)")

        for name, use in ((path, Inbox.prepare), (link, Inbox.paused_handlers)):
            told = rf"{name.name} holds tables of something else \(mine\) and no inbox"
            with pytest.raises(ConfigError, match=told):
                use(Inbox(f"sqlite:///{name}"))

        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_an_inbox_that_an_earlier_version_put_beside_other_tables_is_taken(path):
    open_inbox(path).close()
    change(path, "CREATE TABLE mine (x)")
    change(path, "INSERT INTO mine VALUES (1)")

    opened = open_inbox(path)
    opened.put(incoming("k"))
    opened.close()

    assert rows(path, "SELECT x FROM mine") == [(1,)]


# --- sorting --------------------------------------------------------------------------------------

SORTS = """
import contextlib, resource, sys
from datetime import timedelta
from support.inbox_view import NOON, incoming, open_inbox
from billhook.inbox import RunPlan
from billhook.inbox.sqlite.library import sqlite3

query = "SELECT body FROM delivery ORDER BY key || 'x', body"
inbox = open_inbox(sys.argv[1])
ids = [inbox.put(incoming(f"k{n}", body=b"x" * 200_000)).delivery_id for n in range(64)]
with inbox.transaction("me") as transaction:
    transaction.plan([RunPlan(one, ("h",)) for one in ids], NOON)
inbox.database.close()
with inbox.database.write():  # which empties the log
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
with inbox.transaction("me") as transaction:
    claims = transaction.claim(64, NOON, NOON + timedelta(minutes=1))
    print([one.delivery.delivery_id for one in claims] == ids)
with inbox.database.read() as connection:
    print(len(connection.exec_driver_sql(query).all()))
with contextlib.closing(sqlite3.connect(sys.argv[1])) as plain:
    try:
        print(len(plain.execute(query).fetchall()))
    except sqlite3.OperationalError as error:
        print(error)
inbox.close()
"""


BUSY_RECOVERY = sqlite3.SQLITE_BUSY | 1 << 8


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, BUSY_RECOVERY, sqlite3.SQLITE_IOERR])
def test_a_log_that_is_on_the_disk_need_not_be_emptied_while_others_open_it(tmp_path, monkeypatch, code):
    """As when several processes start at once."""
    file = Path(new_inbox(f"sqlite:///{tmp_path / 'inbox.db'}").removeprefix("sqlite:///"))

    def refuse(path, mode):
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = code
        raise error

    monkeypatch.setattr(driver, "checkpoint", refuse)
    if code == sqlite3.SQLITE_IOERR:
        with pytest.raises(sqlite3.OperationalError):
            driver.take_over_log(file, 1)
    else:
        driver.take_over_log(file, 1)


@pytest.mark.slow
def test_sorting_uses_no_temporary_file(path):
    """A temporary file of that size is refused to this process, wherever SQLite would put it."""
    # pysqlite3 is compiled to use none, whatever the setting is.
    ran = run_command([sys.executable, "-c", SORTS, str(path)], env=using("sqlite3"))

    assert ran.stderr == ""
    claimed, ours, plain = ran.stdout.splitlines()
    assert (claimed, ours) == ("True", "64")
    assert plain in ("database or disk is full", "disk I/O error")  # without our settings


@pytest.mark.parametrize("of_a_fork", [False, True])
def test_a_log_that_was_left_is_taken_over_before_writing(path, of_a_fork):
    """While connections are closed, for a fork too, another process may have failed to sync the log."""
    inbox = open_inbox(path)
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("SELECT key FROM delivery").fetchall()  # so the log does not go with its last user
        inbox.put(incoming("before"))
        if of_a_fork:
            FORK_GUARD.before()
            FORK_GUARD.after_in_parent()
        else:
            inbox.close()
        assert log_of(path).stat().st_size > 0

        inbox = inbox if of_a_fork else open_inbox(path)
        with inbox.database.write():
            assert log_of(path).stat().st_size == 0
        inbox.put(incoming("after"))

        assert other.execute("SELECT key FROM delivery ORDER BY id").fetchall() == [("before",), ("after",)]


def test_no_delivery_is_committed_beside_the_checkpoint_of_another_process(path):
    inbox = open_inbox(path)
    inbox.put(incoming("before"))
    with path.with_name(path.name + "-lock").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # as `checkpoint` holds it

        with pytest.raises(DeadlinePassed):
            inbox.put(incoming("meanwhile"), 0.3)
        committed = rows(path, "SELECT key FROM delivery")

    inbox.put(incoming("after"))
    assert committed == [("before",)]
    assert rows(path, "SELECT key FROM delivery ORDER BY id") == [("before",), ("meanwhile",), ("after",)]


def test_a_reader_that_blocks_the_checkpoint_holds_up_no_delivery(path):
    open_inbox(path).close()
    inbox = open_inbox(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM delivery").fetchall()
        with contextlib.closing(sqlite3.connect(path)) as writer, writer:
            writer.execute("UPDATE billhook_version SET version_num = version_num")

        inbox.put(incoming("k"))

        assert log_of(path).stat().st_size > 0
        assert reader.execute("SELECT key FROM delivery").fetchall() == []
        reader.execute("COMMIT")
        assert reader.execute("SELECT key FROM delivery").fetchall() == [("k",)]


# --- the probe's traces ---------------------------------------------------------------------------


def log_of(path):
    return path.with_name(path.name + "-wal")


def test_a_probe_leaves_an_empty_log_unless_something_reads_beside_it(inbox, path):
    inbox.put(incoming("k1"))
    with inbox.database.read() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM delivery").fetchall()
        inbox.check_writable()
        left = log_of(path).stat().st_size

    inbox.check_writable()

    assert left > 0
    assert log_of(path).stat().st_size == 0
    assert value(path, "SELECT count(*) FROM delivery") == 1


def test_times_that_an_operator_wrote_by_sql_are_read(inbox, path):
    receipt = inbox.put(incoming("by hand"))
    midnight = NOON.replace(hour=0)

    for text, moment in [
        ("2026-01-15 12:00:00", NOON),
        ("2026-01-15T12:00Z", NOON),
        ("2026-01-15 13:00:00.000000+01:00", NOON),
        ("2026-01-15 12:00", NOON),
        ("2026-01-15", midnight),
    ]:
        change(path, "UPDATE delivery SET received_at = ? WHERE id = ?", text, receipt.delivery_id)
        (stored,) = inbox.received(1)
        assert stored.received_at == moment, text


class Closer:
    """What closes connections before a fork."""

    closed = 0

    def close(self):
        self.closed += 1


def test_a_thread_that_forks_within_its_own_work_keeps_its_connections():
    guard, closer = ForkGuard(), Closer()
    guard.before_fork(closer.close)

    with guard.at_work():
        guard.before()
        guard.after_in_parent()
    within = closer.closed
    guard.before()
    guard.after_in_parent()

    assert (within, closer.closed) == (0, 1)


@pytest.mark.parametrize(("rows_of_a_batch", "checks"), [(2, 2), (3, 1)])
def test_under_load_the_file_is_looked_at_once_for_many_batches(path, monkeypatch, rows_of_a_batch, checks):
    """Each look releases the interpreter's lock, which costs more than the commit then."""
    monkeypatch.setattr("billhook.inbox.sqlite.database.CHECK_SECONDS", 3600.0)
    database, looks, look = open_inbox(path).database, [], os.stat
    database.insert_new([incoming("opens connections")])
    database._checked_at = -3600.0
    monkeypatch.setattr(os, "stat", lambda at, *more, **named: looks.append(at) or look(at, *more, **named))

    for batch in "ab":
        database.insert_new([incoming(f"{batch}{number}") for number in range(rows_of_a_batch)])

    assert looks.count(database.path) == checks
