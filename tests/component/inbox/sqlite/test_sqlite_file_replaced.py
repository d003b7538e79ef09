"""A SQLite file that is replaced while it is used, or after, with the log of the one before beside it."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from billhook.errors import InboxUnavailable
from billhook.inbox.sqlite.file import check_log_belongs, record_log_owner
from billhook.inbox.sqlite.library import sqlite3
from support.inbox_view import incoming, open_inbox, rows, value

TOLD = (
    r"billhook\.db failed: it was replaced, and billhook\.db-wal and billhook\.db-shm of the one before are "
    r"still there: stop all that uses it, remove billhook\.db-wal and billhook\.db-shm, and start again; "
    r"`billhook db restore` replaces it safely"
)


@pytest.fixture
def inbox(path):
    """An inbox whose log holds what a backup of it has not."""
    opened = open_inbox(path)
    fill(opened, "before")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(path.with_name("copy.db")),))
    fill(opened, "after")
    return opened


def fill(inbox, name):
    for number in range(60):
        inbox.put(incoming(f"{name}{number}", body=os.urandom(2000)))


def replace(path):
    path.with_name("copy.db").replace(path)


def remove_log(path):
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def integrity(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            found = connection.execute("PRAGMA integrity_check").fetchall()
            return found == [("ok",)] and connection.execute("SELECT count(*) FROM delivery").fetchone()[0]
        except sqlite3.DatabaseError as error:
            return str(error)


def test_a_replaced_file_beside_an_old_wal_is_refused_until_the_wal_is_removed(inbox, path):
    replace(path)

    uses = (
        lambda: inbox.put(incoming("during")),
        inbox.check_writable,
        lambda: inbox.received(1),
        lambda: open_inbox(path),  # of a process that starts then
    )
    for use in uses * 3:
        with pytest.raises(InboxUnavailable, match=TOLD):
            use()
    remove_log(path)
    assert inbox.put(incoming("good")).delivery_id == 61

    inbox.close()
    assert integrity(path) == 61
    assert value(path, "SELECT count(*) FROM delivery WHERE key LIKE 'before%'") == 60


def test_put_together_as_sqlite_would_they_are_destroyed(inbox, path, tmp_path):
    replace(path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    for suffix in ("", "-wal"):
        shutil.copy(path.with_name(path.name + suffix), elsewhere / ("billhook.db" + suffix))

    assert integrity(elsewhere / "billhook.db") != 60


def test_a_file_that_moved_with_its_log_is_taken(inbox, path, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for name in sorted(path.parent.glob("billhook.db*")):
        if name.is_file():
            shutil.copy(name, other / name.name)

    open_inbox(other / "billhook.db")

    assert rows(other / "billhook.db", "SELECT count(*) FROM delivery") == [(120,)]


def test_the_log_owner_note_matches_the_files(path):
    path.touch()
    log, note = path.with_name("billhook.db-wal"), path.with_name("billhook.db-lock")
    log.touch()

    check_log_belongs(path)  # nothing is noted yet
    record_log_owner(path)
    written = note.stat().st_mtime_ns
    record_log_owner(path)
    unchanged = note.stat().st_mtime_ns
    _replace_with_another(path)
    with pytest.raises(OSError, match=r"and billhook\.db-wal of the one before is still there"):
        check_log_belongs(path)
    note.write_bytes(b"\xff nonsense")
    check_log_belongs(path)  # a note that nobody can read forbids nothing
    log.unlink()
    record_log_owner(path)

    assert unchanged == written
    assert note.read_text().split("\n")[1:] == ["none", "none"]


def _replace_with_another(path: Path) -> None:
    other = path.with_name("another")
    other.touch()
    other.replace(path)


def test_a_lock_file_that_is_a_link_is_not_followed(path, tmp_path):
    """Another user of the folder could have it lead to a file of ours, which would be overwritten."""
    open_inbox(path).close()
    victim, link = tmp_path / "victim", path.with_name(path.name + "-lock")
    victim.write_text("precious")
    link.unlink(missing_ok=True)
    link.symlink_to(victim)

    with pytest.raises(
        InboxUnavailable, match=r"billhook\.db-lock failed: Too many levels of symbolic links"
    ):
        open_inbox(path)
    link.unlink()
    opened = open_inbox(path)
    opened.put(incoming("stored"))
    opened.close()

    assert victim.read_text() == "precious"
    assert value(path, "SELECT count(*) FROM delivery") == 1
