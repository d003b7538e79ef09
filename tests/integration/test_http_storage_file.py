"""Storage that fails as files do: moved away, corrupt, full, read-only; 503 until it is mended."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from support.server import Server, assert_unavailable, gunicorn, head
from support.signing import signed

TESTS = Path(__file__).parents[1]

DEADLINE = 1.0


@pytest.fixture(scope="module")
def frail(tmp_path_factory):
    """A receiver with a short deadline, for tests that break its storage and mend it."""
    folder = tmp_path_factory.mktemp("frail")
    with gunicorn(folder, BILLHOOK_DEADLINE_SECONDS=str(DEADLINE)) as server:
        yield server


def assert_accepted(server: Server, key: str):
    reply = server.post(b"{}", signed(message_id=key))
    assert reply.status == 200
    assert server.stored(key) is not None


def ready(server: Server) -> int:
    return server.ask(head({}, method="GET", path="/readyz")).status


def test_an_inbox_that_was_moved_away_is_503_until_it_is_back(frail):
    with moved_away(frail.inbox):
        assert_unavailable(frail, "msg_moved", DEADLINE)
        assert ready(frail) == 503
        assert not frail.inbox.exists()

    assert_accepted(frail, "msg_moved")
    assert ready(frail) == 200


def test_a_folder_that_was_moved_away_is_503_until_it_is_back(frail):
    elsewhere = frail.inbox.parent.with_name("elsewhere")
    frail.inbox.parent.rename(elsewhere)
    try:
        assert_unavailable(frail, "msg_folder", DEADLINE)
        assert ready(frail) == 503
    finally:
        elsewhere.rename(frail.inbox.parent)

    assert_accepted(frail, "msg_folder")


def test_a_corrupt_inbox_file_is_503_until_it_is_restored(frail):
    with moved_away(frail.inbox):
        frail.inbox.write_bytes(b"this is no database, and never was one" * 100)
        assert_unavailable(frail, "msg_corrupt", DEADLINE)
        assert ready(frail) == 503
        frail.inbox.unlink()

    assert_accepted(frail, "msg_corrupt")


def test_an_empty_inbox_file_is_503_until_it_is_restored(frail):
    with moved_away(frail.inbox):
        frail.inbox.touch()
        assert_unavailable(frail, "msg_empty", DEADLINE)
        assert ready(frail) == 503
        _remove(frail.inbox)

    assert_accepted(frail, "msg_empty")


def test_an_inbox_file_of_another_version_is_503_until_it_is_restored(frail):
    for number in range(70):  # past a checkpoint's turn
        assert_accepted(frail, f"msg_before_{number}")
    with moved_away(frail.inbox, copy=True):
        with contextlib.closing(sqlite3.connect(frail.inbox)) as connection, connection:
            connection.execute("UPDATE billhook_version SET version_num = '9999'")
        assert_unavailable(frail, "msg_version", DEADLINE)
        assert ready(frail) == 503
        _remove(frail.inbox)

    assert_accepted(frail, "msg_version")


def test_corrupt_pages_are_503_until_they_are_repaired(frail):
    with moved_away(frail.inbox, copy=True):
        with frail.inbox.open("r+b") as stream:
            stream.seek(4096)
            stream.write(os.urandom(65_536))
        assert_unavailable(frail, "msg_pages", DEADLINE)
        _remove(frail.inbox)

    assert_accepted(frail, "msg_pages")


def test_a_full_disk_is_503_until_there_is_room(tmp_path):
    with gunicorn(tmp_path, BILLHOOK_DEADLINE_SECONDS=str(DEADLINE)) as server:
        assert_accepted(server, "msg_room")
        (worker,) = _children(server.pid)
        limits = resource.prlimit(worker, resource.RLIMIT_FSIZE)

        resource.prlimit(worker, resource.RLIMIT_FSIZE, (4096, limits[1]))
        assert_unavailable(server, "msg_full", DEADLINE)
        resource.prlimit(worker, resource.RLIMIT_FSIZE, limits)

        assert_accepted(server, "msg_full")
        assert server.keys() == ["msg_room", "msg_full"]


READ_ONLY = """
import os
from support.inbox_view import incoming
from billhook.errors import InboxUnavailable
from billhook.inbox import Inbox

def allow(mode):
    for name in os.listdir("."):
        if name.startswith("inbox.db"):
            os.chmod(name, mode)

inbox = Inbox("sqlite:///inbox.db", deadline_seconds=1)
inbox.prepare()
inbox.put(incoming("before"))
inbox.database.close()
allow(0o444)
try:
    inbox.put(incoming("during"))
except InboxUnavailable as error:
    print("refused:", error)
allow(0o644)
print(inbox.put(incoming("during")).status)
inbox.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv to run as somebody without rights")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root")
def test_a_read_only_inbox_file_is_unavailable_until_it_is_writable():
    folder = Path("/var/tmp") / f"billhook-read-only-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o777)
    somebody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable]
    here = {**os.environ, "PYTHONPATH": str(TESTS)}

    try:
        if subprocess.run(
            [*somebody, "-c", "import billhook, support.inbox_view"], env=here, check=False
        ).returncode:
            pytest.skip("this interpreter is not readable by others")
        ran = subprocess.run(
            [*somebody, "-c", READ_ONLY], cwd=folder, env=here, capture_output=True, text=True, check=False
        )
    finally:
        shutil.rmtree(folder)

    assert ran.stderr == ""
    refused, status = ran.stdout.splitlines()
    assert "failed: Permission denied" in refused  # of the lock, before the file itself is tried
    assert status == "accepted"


# --- breaking things ------------------------------------------------------------------------------


@contextlib.contextmanager
def moved_away(path: Path, copy: bool = False):
    """The file and what SQLite keeps beside it are elsewhere while the block lasts."""
    names = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    kept = [(name, name.with_name("kept-" + name.name)) for name in names if name.exists()]
    for name, aside in kept:
        name.rename(aside)
        if copy:
            shutil.copy(aside, name)
    try:
        yield
    finally:
        for name, aside in kept:
            aside.rename(name)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
