"""Backups of an inbox: made while it is used, and put in its place while nobody uses it."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from billhook.errors import ConfigError, InboxError
from billhook.inbox import Inbox
from billhook.inbox.running.workers import WorkerRecord
from billhook.inbox.sqlite.library import sqlite3
from support.inbox_view import change, incoming, open_inbox, rows, upgraded, value
from support.postgres import libpq
from support.processes import limited, run_command


def silent(done, total):
    """Nobody watches."""


@pytest.fixture
def inbox(path):
    opened = open_inbox(path)
    for number in range(20):
        opened.put(incoming(f"k{number}", body=os.urandom(200_000)))
    return opened


@pytest.fixture
def backup(inbox, tmp_path):
    """A backup of the inbox, which got one delivery more since and is closed."""
    target = tmp_path / "backup.db"
    inbox.database.back_up(target, silent)
    inbox.put(incoming("later"))
    inbox.close()
    return target


def restore(path, backup):
    return Inbox(f"sqlite:///{path}").database.restore(backup, silent)


def keys(path):
    return [key for (key,) in rows(path, "SELECT key FROM delivery ORDER BY id")]


def beside(path):
    return sorted(one.name for one in path.parent.iterdir())


# --- backups ----------------------------------------------------------------------------------------


def test_a_backup_is_a_snapshot_of_one_moment(inbox, tmp_path):
    other = open_inbox(inbox.database.path)
    other.put(incoming("first"))
    told = []

    def store_more(done, total):
        told.append((done, total))
        other.put(incoming(f"meanwhile{len(told)}"))

    deliveries = inbox.database.back_up(tmp_path / "backup.db", store_more)

    assert deliveries == 21
    assert keys(tmp_path / "backup.db") == [*(f"k{number}" for number in range(20)), "first"]
    assert 1 < len(told) < 10
    assert told[-1][0] == told[-1][1]
    assert len(keys(inbox.database.path)) == 21 + len(told)


def test_a_backup_is_one_sound_file_for_its_owner_alone(inbox, tmp_path):
    folder = tmp_path / "backups"
    folder.mkdir()

    inbox.database.back_up(folder / "backup.db", silent)

    assert beside(folder / "backup.db") == ["backup.db"]
    assert (folder / "backup.db").stat().st_mode & 0o777 == 0o600
    assert rows(folder / "backup.db", "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("there.db", "there.db is there already: a backup replaces no file"),
        ("no/x.db", "x.db cannot be made: No such"),
    ],
)
def test_a_backup_that_has_no_place_is_refused(inbox, tmp_path, name, told):
    (tmp_path / "there.db").write_text("mine")

    with pytest.raises(ConfigError, match=told):
        inbox.database.back_up(tmp_path / name, silent)

    assert (tmp_path / "there.db").read_text() == "mine"


def test_a_backup_for_which_there_is_no_room_leaves_nothing(inbox, tmp_path):
    told = r"the backup .*backup\.db failed: (database or disk is full|disk I/O)"
    with limited(resource.RLIMIT_FSIZE, 1_000_000), pytest.raises(InboxError, match=told):
        inbox.database.back_up(tmp_path / "backup.db", silent)

    assert not list(tmp_path.glob("backup.db*"))


# --- restoring --------------------------------------------------------------------------------------


def test_a_restored_inbox_has_the_backups_deliveries_and_works(path, backup):
    assert len(keys(path)) == 21

    assert restore(path, backup) == 20

    assert keys(path) == [f"k{number}" for number in range(20)]
    assert path.stat().st_mode & 0o777 == 0o600
    assert open_inbox(path).put(incoming("new")).delivery_id == 21
    assert "billhook.db-restoring" not in beside(path)


def test_a_log_that_was_left_is_put_into_no_restored_inbox(path, backup):
    """As after a crash, or after somebody replaced the file by hand."""
    crash = (
        "import os; from support.inbox_view import *; "
        f"open_inbox({str(path)!r}).put(incoming('lost')); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", crash], env=_here(), check=True)
    left = path.with_name(path.name + "-wal").stat().st_size
    path.with_name(path.name + "-restoring").write_text("of a restore that was cut off")

    restore(path, backup)

    assert left > 0
    assert not path.with_name(path.name + "-wal").exists()
    assert "lost" not in keys(path)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_an_inbox_that_is_missing_or_damaged_is_restored(path, backup, tmp_path):
    new = tmp_path / "new.db"
    path.write_bytes(b"no database any more" * 1000)

    restore(path, backup)
    restore(new, backup)

    assert keys(path) == keys(new) == [f"k{number}" for number in range(20)]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_file_of_another_program_is_not_replaced(backup, tmp_path, mode):
    shop = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(shop)) as connection:
        connection.execute(f"PRAGMA journal_mode={mode}")
        connection.executescript("CREATE TABLE users (name); INSERT INTO users VALUES ('ada')")
        if mode == "wal":  # in use: its tables are in the log alone
            with pytest.raises(ConfigError, match=r"shop\.db holds tables of something else \(users\)"):
                restore(shop, backup)

    with pytest.raises(ConfigError, match=r"shop\.db holds tables of something else \(users\)"):
        restore(shop, backup)

    assert rows(shop, "SELECT name FROM users") == [("ada",)]


@pytest.mark.parametrize("how", ["open", "moved away", "writing"])
def test_an_inbox_that_is_used_is_not_replaced(path, backup, tmp_path, how):
    code = (
        "import sys; from support.inbox_view import *\n"
        f"inbox = open_inbox({str(path)!r}); inbox.received(1)\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    if how == "writing":
        code = (
            "import fcntl, sys; from pathlib import Path\n"
            f"turn = open({str(path)!r} + '-lock', 'a'); fcntl.flock(turn, fcntl.LOCK_EX)\n"
            "print('open', flush=True); sys.stdin.read()"
        )
    before = len(keys(path))
    with subprocess.Popen(
        [sys.executable, "-c", code], env=_here(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout.readline() == b"open\n"
        if how == "moved away":  # its user holds the log's index all the same
            path.rename(tmp_path / "moved.db")
            shutil.copy(backup, path)
        with pytest.raises(InboxError, match=r"billhook\.db is in use: stop the receivers and workers"):
            restore(path, backup)
        user.communicate(b"")

    assert len(keys(path)) == (20 if how == "moved away" else before)
    assert restore(path, backup) == 20


def test_restore_into_a_missing_folder_is_refused(backup, tmp_path):
    with pytest.raises(ConfigError, match=r"the inbox .*/no/x\.db cannot be replaced: No such file"):
        restore(tmp_path / "no" / "x.db", backup)


def damaged(backup):
    with backup.open("r+b") as stream:
        stream.seek(8 * 4096)
        stream.write(os.urandom(100_000))


def inconsistent(backup):
    """Its pages are sound, its content is not: a value is missing that its schema asks for."""
    with contextlib.closing(sqlite3.connect(backup)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        sql = "replace(sql, 'error TEXT', 'error TEXT NOT NULL')"
        connection.execute(f"UPDATE sqlite_master SET sql = {sql} WHERE name = 'delivery'")


def too_new(backup):
    change(backup, "UPDATE billhook_version SET version_num = '9999'")


def something_else(backup):
    backup.unlink()
    with contextlib.closing(sqlite3.connect(backup)) as connection, connection:
        connection.execute("CREATE TABLE mine (x)")


@pytest.mark.parametrize(
    ("harm", "error", "told"),
    [
        (damaged, InboxError, r"backup\.db failed: (it is damaged: |database disk image is malformed)"),
        (inconsistent, InboxError, r"backup\.db failed: it is damaged: NULL value in delivery\.error"),
        (lambda backup: backup.write_bytes(b"text " * 2000), InboxError, "failed: file is not a database"),
        (too_new, ConfigError, "failed: the inbox has schema 9999, .* upgrade the package"),
        (something_else, ConfigError, r"backup\.db failed: there is no inbox in it"),
        (lambda backup: backup.write_bytes(b""), ConfigError, "there is no inbox in it"),
        (lambda backup: backup.unlink(), ConfigError, r"there is no backup .*backup\.db"),
    ],
)  # fmt: skip
def test_an_invalid_backup_changes_nothing(path, backup, harm, error, told):
    harm(backup)
    before = keys(path)

    with pytest.raises(error, match=told):
        restore(path, backup)

    assert keys(path) == before
    assert "billhook.db-restoring" not in beside(path)


def test_an_inbox_is_no_backup_of_itself(path, backup):
    with pytest.raises(ConfigError, match=r"billhook\.db is the inbox itself, and no backup of it"):
        restore(path, path)

    assert len(keys(path)) == 21


# --- PostgreSQL -------------------------------------------------------------------------------------


def test_postgresqls_backup_commands_are_printed_without_the_password():
    url = "postgresql+psycopg://me:hunter2hunter2@db.example:5433/billing"
    database = Inbox(url, schema="hooks").database

    with pytest.raises(ConfigError) as backing_up:
        database.back_up("my backup", silent)
    with pytest.raises(ConfigError) as restoring:
        database.restore("my backup", silent)

    where = "--dbname='host=db.example port=5433 user=me dbname=billing'"
    assert str(backing_up.value).endswith(
        """tools: umask 077 && pg_dump --format=custom --schema='"hooks"' """
        f"""--exclude-table-data='"hooks".billhook_worker' {where} --file='my backup'"""
    )
    assert str(restoring.value).endswith(
        f"while nothing uses it: pg_restore --clean --if-exists --single-transaction {where} 'my backup'"
    )


@pytest.mark.skipif(shutil.which("pg_dump") is None, reason="pg_dump is not installed")
def test_the_printed_postgresql_commands_work(database_url, tmp_path):
    inbox = Inbox(upgraded(database_url))
    inbox.put(incoming("k"))
    a_worker(inbox)
    change(database_url, "CREATE TABLE mine (x INTEGER)")
    password = libpq(database_url).get("password")
    environ = {**os.environ, **({"PGPASSWORD": str(password)} if password else {})}

    def told(ask):
        with pytest.raises(ConfigError) as said:
            ask(tmp_path / "dump", silent)
        (command,) = [part for part in str(said.value).split(": ") if part.startswith(("pg_", "umask"))]
        return run_command(["sh", "-c", command], env=environ)

    dumped = told(inbox.database.back_up)
    if "server version mismatch" in dumped.stderr:
        pytest.skip("this pg_dump is older than the server")
    assert (tmp_path / "dump").stat().st_mode & 0o777 == 0o600
    inbox.put(incoming("later"))
    inbox.close()
    restored = told(inbox.database.restore)

    assert (dumped.returncode, restored.returncode) == (0, 0), dumped.stderr + restored.stderr
    assert rows(database_url, "SELECT key FROM billhook.delivery") == [("k",)]
    assert value(database_url, "SELECT count(*) FROM billhook.billhook_worker") == 0
    assert value(database_url, "SELECT count(*) FROM mine") == 0
    opened = open_inbox(database_url)
    assert opened.put(incoming("after")).delivery_id == 2


def a_worker(inbox):
    """One that is alive at the time of the backup, and would be missed where it is restored."""
    inbox.record_worker(WorkerRecord("a:1", "worker", 1, datetime.now(UTC)), datetime.now(UTC))


def test_the_workers_of_the_time_of_a_backup_are_not_restored(inbox, path, tmp_path):
    a_worker(inbox)
    inbox.database.back_up(tmp_path / "backup.db", silent)
    inbox.close()
    count = "SELECT count(*) FROM billhook_worker"

    restore(path, tmp_path / "backup.db")

    assert value(tmp_path / "backup.db", count) == 1  # the control
    assert value(path, count) == 0
    assert len(keys(path)) == 20


def _here():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
