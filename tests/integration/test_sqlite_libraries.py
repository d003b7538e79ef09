"""An inbox in a SQLite file, with either library: all that opens it uses one, and it is as safe with each."""

from __future__ import annotations

import contextlib
import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest

from billhook.inbox.sqlite.library import sqlite3
from support.inbox_view import rows
from support.processes import run_command
from support.sqlite_libraries import OTHER, using

ROOT = Path(__file__).parents[2]
LIBRARIES = ("sqlite3", "pysqlite3")

EVERYTHING = """
import json, sys
from pathlib import Path
from billhook.inbox.operating.operations import empty_log
from support.inbox_view import incoming, open_inbox

folder = Path(sys.argv[1])
inbox = open_inbox(folder / "billhook.db")
inbox.put(incoming("k"))
inbox.check_writable()
inbox.received(1)
empty_log(inbox)
facts = inbox.database.facts()
inbox.database.back_up(folder / "backup.db", lambda *_: None)
inbox.close()
inbox.database.restore(folder / "backup.db", lambda *_: None)
print(json.dumps([facts.library, [name for name in ("_sqlite3", "pysqlite3") if name in sys.modules]]))
"""


@pytest.mark.parametrize("library", LIBRARIES)
def test_all_that_opens_an_inbox_uses_one_library_and_the_other_is_not_even_loaded(tmp_path, library):
    ran = run_command([sys.executable, "-c", EVERYTHING, tmp_path], env=using(library), check=True)

    assert json.loads(ran.stdout) == [library, ["pysqlite3" if library == "pysqlite3" else "_sqlite3"]]


TWICE = """
import importlib, os, sys
from contextlib import closing
from support.inbox_view import incoming, open_inbox

path, other = sys.argv[1:]
inbox = open_inbox(path)
inbox.put(incoming("before"))
if other == "a second app":
    open_inbox(path)
else:
    with closing(importlib.import_module(other).connect(path)) as connection:
        connection.execute("SELECT count(*) FROM delivery").fetchone()
print("opened twice", flush=True)
sys.stdin.readline()
inbox.put(incoming("after"))
os._exit(0)
"""


def opened_twice(path: Path, library: str, other: str) -> tuple[bool, list[str]]:
    """Have a process open its inbox twice, store one more delivery beside another process, and be killed.

    Whether it kept SQLite's lock, and the keys of what is left of its two deliveries.
    """
    command = [sys.executable, "-c", TWICE, str(path), other]
    with subprocess.Popen(
        command, env=using(library), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "opened twice\n"
        kept = is_locked(path)
        with contextlib.closing(sqlite3.connect(path)) as connection:  # as `billhook status` does
            connection.execute("SELECT count(*) FROM delivery").fetchone()
        process.communicate("\n")
    return kept, [key for (key,) in rows(path, "SELECT key FROM delivery ORDER BY id")]


def is_locked(path: Path) -> bool:
    """Whether a process has the file open, by the lock that SQLite holds on it then."""
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x4000_0002)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("other", ["the library", "a second app"])
def test_a_process_that_opens_its_inbox_twice_keeps_its_lock_and_what_it_answered_200(
    tmp_path, library, other
):
    other = library if other == "the library" else other

    assert opened_twice(tmp_path / "inbox.db", library, other) == (True, ["before", "after"])


def test_control_with_both_libraries_in_one_process_its_lock_and_a_delivery_are_lost(tmp_path):
    """The log, which another process deletes then, is still written to."""
    assert opened_twice(tmp_path / "inbox.db", "pysqlite3", "sqlite3") == (False, ["before"])


# --- with the library that the other tests do not use -----------------------------------------------

INBOX = "tests/component/inbox"
HTTP = "tests/integration/test_http_storage.py"
KILLS = "tests/acceptance/test_kills.py"
DISK = "tests/acceptance/test_disk.py"
SOME = [
    f"{INBOX}/sqlite/test_backup_and_restore.py::test_a_backup_is_a_snapshot_of_one_moment",
    f"{INBOX}/sqlite/test_backup_and_restore.py::test_an_invalid_backup_changes_nothing",
    f"{INBOX}/sqlite/test_backup_and_restore.py::test_a_restored_inbox_has_the_backups_deliveries_and_works",
    f"{INBOX}/sqlite/test_sqlite.py::test_a_disk_without_room_is_a_failure_of_storage_and_costs_no_descriptor",
    f"{HTTP}::test_a_crowd_before_a_locked_inbox_is_all_answered_in_time_and_then_all_stored",
    f"{HTTP}::test_an_inbox_that_was_moved_away_is_503_until_it_is_back",
    f"{HTTP}::test_corrupt_pages_are_503_until_they_are_repaired",
    f"{KILLS}::test_killing_any_process_loses_no_delivery_that_was_answered_200",
    f"{DISK}::test_a_full_disk_is_503_and_good_again_when_there_is_room",
]
"""Each kind once: backups, storage that fails, kills."""
ALL = [INBOX, HTTP, "tests/integration/test_inbox_processes.py", "tests/acceptance"]


@pytest.mark.parametrize(
    "tests",
    [
        pytest.param(SOME, marks=pytest.mark.slow, id="some"),
        pytest.param(["--slow", *ALL], marks=[pytest.mark.long, pytest.mark.timeout(1800)], id="all"),
    ],
)
def test_failures_of_storage_kills_and_backups_pass_with_the_other_library(tests):
    options = ["-q", "-p", "no:cacheprovider", "-k", "not postgresql"]
    command = [sys.executable, "-m", "pytest", *options, *tests]

    ran = run_command(command, cwd=ROOT, env=using(OTHER), timeout=1800)

    assert ran.returncode == 0, ran.stdout[-5000:]
    assert " passed" in ran.stdout
