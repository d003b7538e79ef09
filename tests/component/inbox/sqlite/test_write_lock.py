"""Who holds the write lock of an inbox in SQLite."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy import event

from billhook.inbox.sqlite.driver import HOLDING, WriteLock
from support.inbox_view import incoming
from support.postgres import only_sqlite
from support.processes import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc/locks is Linux's")
HOLDS = """
import sys
from pathlib import Path
from billhook.inbox.sqlite.driver import HOLDING, WriteLock
with WriteLock(Path(sys.argv[1])).held():
    print(flush=True)
    sys.stdin.readline()
"""


def test_the_holder_is_this_process_while_it_holds_the_lock(tmp_path):
    lock = WriteLock(tmp_path / "lock")
    assert lock.holder() is None

    with lock.held():
        assert lock.holder() == os.getpid()

    assert lock.holder() is None
    lock.close()


def test_the_holder_is_another_process_and_not_one_that_waits_for_it(tmp_path):
    lock = WriteLock(tmp_path / "lock")
    with lock.held():
        pass
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline()

        def wait():
            with lock.held():
                pass

        waiting = threading.Thread(target=wait)
        waiting.start()

        until(lambda: lock.holder() == other.pid, 10)
        other.stdin.close()
        waiting.join(20)
    assert not waiting.is_alive()
    lock.close()


def test_the_lock_is_released_whatever_is_notified_fails(tmp_path, monkeypatch):
    def fail():
        raise OSError("standard error is gone")

    lock = WriteLock(tmp_path / "inbox.db-lock")
    monkeypatch.setattr(HOLDING, "changed", fail)
    with pytest.raises(OSError, match="standard error is gone"), lock.held():
        pass

    ran = subprocess.run(
        ["flock", "--nonblock", str(tmp_path / "inbox.db-lock"), "true"], check=False, timeout=20
    )
    assert ran.returncode == 0


@only_sqlite
def test_in_its_turn_a_database_keeps_others_from_writing_and_writes_itself(inbox):
    database = inbox.database
    command = ["flock", "--nonblock", f"{database.path}-lock", "true"]

    def is_free():
        return subprocess.run(command, check=False, timeout=20).returncode == 0

    with database.turn():
        before = is_free()
        stored = database.insert_new([incoming("k1")])

    assert not before
    assert len(stored) == 1
    assert is_free()


@only_sqlite
def test_how_long_a_commit_takes_is_told_without_what_came_before_it(inbox):
    def slow(*_):
        time.sleep(0.2)

    database = inbox.database
    with database.write() as connection:
        time.sleep(0.2)
    quick = database.commit_seconds
    event.listen(connection.engine, "commit", slow)
    with database.write():
        pass

    assert quick < 0.2 <= database.commit_seconds
