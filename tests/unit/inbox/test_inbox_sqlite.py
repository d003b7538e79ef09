"""What only a SQLite file needs: its settings, its locks, its log, the file itself and its folder."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
from pathlib import Path

import pytest
from kit import incoming, open_inbox, rows, value

from billhook.errors import ConfigError, InboxUnavailable
from billhook.inbox import Inbox


@pytest.fixture
def path(tmp_path):
    return tmp_path / "billhook.db"


@pytest.fixture
def inbox(path):
    opened = open_inbox(path)
    yield opened
    opened.close()


# --- every commit is on the disk ------------------------------------------------------------------


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


def test_every_connection_is_in_wal_mode_and_fully_synchronous(inbox):
    inbox.put(incoming("k"))
    with inbox.database.write() as connection:
        facts = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]

    assert facts == ["wal", 2, 1]


def test_the_log_is_moved_into_the_file_now_and_then(inbox, path, tmp_path):
    for number in range(300):
        inbox.put(incoming(f"k{number}"))

    alone = tmp_path / "alone" / "copy.db"
    alone.parent.mkdir()
    alone.write_bytes(path.read_bytes())  # without the log beside it

    assert value(alone, "SELECT count(*) FROM delivery") > 100
    assert value(path, "SELECT count(*) FROM delivery") == 300


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


# --- the file ------------------------------------------------------------------------------------


def test_the_file_is_readable_by_its_owner_only_and_its_folder_is_made(tmp_path):
    path = tmp_path / "new" / "folder" / "inbox.db"

    open_inbox(path).close()

    assert path.stat().st_mode & 0o777 == 0o600


def test_where_it_is_can_be_told(inbox, path):
    assert inbox.database.place == str(path)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"the inbox .*file/inbox\.db cannot be opened: "):
        open_inbox(tmp_path / "file" / "inbox.db")


def test_a_missing_file_is_never_made_by_whoever_only_opens(path):
    inbox = Inbox(f"sqlite:///{path}")

    with pytest.raises(InboxUnavailable, match=r"failed: .*No such file or directory"):
        inbox.put(incoming("k"))

    assert not path.exists()
    inbox.close()


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


def test_a_log_that_somebody_else_began_is_emptied_before_it_is_written_to(path):
    log = path.with_name(path.name + "-wal")
    open_inbox(path).close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("SELECT key FROM delivery").fetchall()  # so the log does not go with its last user
        left = open_inbox(path)
        left.put(incoming("before"))
        left.close()
        assert log.stat().st_size > 0

        inbox = open_inbox(path)
        with inbox.database.write():
            assert log.stat().st_size == 0
        inbox.put(incoming("after"))

        assert other.execute("SELECT key FROM delivery ORDER BY id").fetchall() == [("before",), ("after",)]
    inbox.close()


def test_a_reader_who_keeps_the_log_from_being_emptied_is_waited_for_and_then_told(path):
    open_inbox(path).close()
    inbox = Inbox(f"sqlite:///{path}", deadline_seconds=0.5)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM delivery").fetchall()
        with contextlib.closing(sqlite3.connect(path)) as writer, writer:
            writer.execute("UPDATE billhook_version SET version_num = version_num")

        with pytest.raises(InboxUnavailable, match="locked: somebody reads or writes it for too long"):
            inbox.put(incoming("k"), timeout_seconds=5)
        reader.execute("COMMIT")

    inbox.put(incoming("k"))
    inbox.close()
