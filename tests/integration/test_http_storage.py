"""Storage that fails: 503 within the deadline, nothing acknowledged, and good again without a restart."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kit import Foreigner, Server, gunicorn, head, read_reply, request, rows, signed, together, until

DEADLINE = 1.0


@pytest.fixture(scope="module")
def frail(tmp_path_factory):
    """A receiver with a short deadline, for tests that break its storage and mend it."""
    folder = tmp_path_factory.mktemp("frail")
    with gunicorn(folder, BILLHOOK_DEADLINE_SECONDS=str(DEADLINE)) as server:
        yield server


def assert_unavailable(server: Server, key: str):
    started = time.monotonic()
    reply = server.post(b"{}", signed(message_id=key))
    seconds = time.monotonic() - started
    assert reply.status == 503
    assert reply.json["type"] == "api_error"
    assert sorted(reply.json) == ["code", "message", "type"]
    assert 5 <= int(reply.headers["Retry-After"]) <= 60
    assert str(server.inbox) not in reply.body.decode()
    assert seconds < DEADLINE + 0.3


def assert_accepted(server: Server, key: str):
    reply = server.post(b"{}", signed(message_id=key))
    assert reply.status == 200
    assert server.stored(key) is not None


def ready(server: Server) -> int:
    return server.ask(head({}, method="GET", path="/readyz")).status


def test_a_foreign_lock_is_503_while_it_lasts(frail):
    with Foreigner(frail.inbox):
        assert_unavailable(frail, "msg_locked")
        assert ready(frail) == 503
        assert frail.stored("msg_locked") is None

    assert_accepted(frail, "msg_locked")
    assert ready(frail) == 200


def test_an_inbox_that_was_moved_away_is_503_until_it_is_back(frail):
    with moved_away(frail.inbox):
        assert_unavailable(frail, "msg_moved")
        assert ready(frail) == 503
        assert not frail.inbox.exists()

    assert_accepted(frail, "msg_moved")
    assert ready(frail) == 200


def test_a_folder_that_was_moved_away_is_503_until_it_is_back(frail):
    elsewhere = frail.inbox.parent.with_name("elsewhere")
    frail.inbox.parent.rename(elsewhere)
    try:
        assert_unavailable(frail, "msg_folder")
        assert ready(frail) == 503
    finally:
        elsewhere.rename(frail.inbox.parent)

    assert_accepted(frail, "msg_folder")


def test_a_file_that_is_no_database_is_503_until_it_is_mended(frail):
    with moved_away(frail.inbox):
        frail.inbox.write_bytes(b"this is no database, and never was one" * 100)
        assert_unavailable(frail, "msg_corrupt")
        assert ready(frail) == 503
        frail.inbox.unlink()

    assert_accepted(frail, "msg_corrupt")


def test_an_empty_file_in_its_place_is_503_until_it_is_mended(frail):
    with moved_away(frail.inbox):
        frail.inbox.touch()
        assert_unavailable(frail, "msg_empty")
        assert ready(frail) == 503
        _remove(frail.inbox)

    assert_accepted(frail, "msg_empty")


def test_an_inbox_of_another_version_in_its_place_is_503_until_it_is_mended(frail):
    for number in range(70):  # past a checkpoint's turn
        assert_accepted(frail, f"msg_before_{number}")
    with moved_away(frail.inbox, copy=True):
        with contextlib.closing(sqlite3.connect(frail.inbox)) as connection, connection:
            connection.execute("UPDATE billhook_version SET version_num = '9999'")
        assert_unavailable(frail, "msg_version")
        assert ready(frail) == 503
        _remove(frail.inbox)

    assert_accepted(frail, "msg_version")


def test_corrupt_pages_are_503_until_they_are_mended(frail):
    with moved_away(frail.inbox, copy=True):
        with frail.inbox.open("r+b") as stream:
            stream.seek(4096)
            stream.write(os.urandom(65_536))
        assert_unavailable(frail, "msg_pages")
        _remove(frail.inbox)

    assert_accepted(frail, "msg_pages")


def test_a_dropped_table_is_503_until_it_is_back(frail):
    with contextlib.closing(sqlite3.connect(frail.inbox)) as connection, connection:
        connection.execute("ALTER TABLE delivery RENAME TO lost")
    try:
        assert_unavailable(frail, "msg_table")
    finally:
        with contextlib.closing(sqlite3.connect(frail.inbox)) as connection, connection:
            connection.execute("ALTER TABLE lost RENAME TO delivery")

    assert_accepted(frail, "msg_table")


def test_a_full_disk_is_503_until_there_is_room(tmp_path):
    with gunicorn(tmp_path, BILLHOOK_DEADLINE_SECONDS=str(DEADLINE)) as server:
        assert_accepted(server, "msg_room")
        (worker,) = _children(server.pid)
        limits = resource.prlimit(worker, resource.RLIMIT_FSIZE)

        resource.prlimit(worker, resource.RLIMIT_FSIZE, (4096, limits[1]))
        assert_unavailable(server, "msg_full")
        resource.prlimit(worker, resource.RLIMIT_FSIZE, limits)

        assert_accepted(server, "msg_full")
        assert server.keys() == ["msg_room", "msg_full"]


READ_ONLY = """
import os
from kit import incoming
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
print(inbox.put(incoming("during")).verdict)
inbox.close()
"""


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv to run as somebody without rights")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root")
def test_a_file_that_became_read_only_is_unavailable_until_it_is_writable():
    folder = Path("/var/tmp") / f"billhook-read-only-{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o777)
    somebody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}

    try:
        if subprocess.run([*somebody, "-c", "import billhook, kit"], env=here, check=False).returncode:
            pytest.skip("this interpreter is not readable by others")
        ran = subprocess.run(
            [*somebody, "-c", READ_ONLY], cwd=folder, env=here, capture_output=True, text=True, check=False
        )
    finally:
        shutil.rmtree(folder)

    assert ran.stderr == ""
    refused, verdict = ran.stdout.splitlines()
    assert "failed: attempt to write a readonly database" in refused
    assert verdict == "accepted"


def test_a_crowd_before_a_locked_inbox_is_all_answered_in_time_and_then_all_stored(frail):
    def send(number):
        started = time.monotonic()
        status = frail.post(b"{}", signed(message_id=f"msg_crowd_{number}")).status
        return status, time.monotonic() - started

    with Foreigner(frail.inbox):
        during = together(8, send)
    after = together(8, send)

    assert {status for status, _ in during} == {503}
    assert max(seconds for _, seconds in during) < DEADLINE + 0.4
    assert {status for status, _ in after} == {200}
    assert all(frail.stored(f"msg_crowd_{number}") for number in range(8))


def test_after_503_the_connection_takes_the_next_delivery(frail):
    good = signed(message_id="msg_kept_alive")

    with frail.connect() as connection:
        with Foreigner(frail.inbox):
            connection.sendall(request(b"{}", good, close=False))
            refused = read_reply(connection).status
        connection.sendall(request(b"{}", good))
        accepted = read_reply(connection).status

    assert (refused, accepted) == (503, 200)


def test_a_full_backlog_is_503_until_it_is_worked_off(tmp_path):
    with gunicorn(tmp_path, BILLHOOK_BACKLOG_LIMIT="2") as server:
        statuses = [server.post(b"{}", signed(message_id=f"msg_{n}")).status for n in range(3)]
        with contextlib.closing(sqlite3.connect(server.inbox)) as connection, connection:
            connection.execute("UPDATE delivery SET state = 'done' WHERE key = 'msg_0'")
        after = server.post(b"{}", signed(message_id="msg_after")).status

        assert statuses == [200, 200, 503]
        assert after == 200


def test_a_preloaded_app_takes_deliveries_in_all_its_processes(tmp_path):
    with gunicorn(tmp_path, "--preload", workers=2, BILLHOOK_ENGINE="thread") as server:
        for number in range(30):
            assert server.post(b"{}", signed(message_id=f"msg_{number}")).status == 200

        until(lambda: rows(server.inbox, "SELECT count(*) FROM delivery WHERE state = 'done'") == [(30,)])
        assert sorted(server.keys()) == sorted(f"msg_{number}" for number in range(30))
    assert rows(server.inbox, "PRAGMA integrity_check") == [("ok",)]


def test_on_sigterm_whatever_was_answered_200_is_in_the_file(tmp_path):
    answered = []

    def send():
        for number in range(10_000):
            key = f"msg_{threading.get_ident()}_{number}"
            try:
                if server.post(b"{}", signed(message_id=key)).status == 200:
                    answered.append(key)
            except OSError:
                return

    with gunicorn(tmp_path, workers=2) as server:
        threads = [threading.Thread(target=send, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(answered) > 20)
    stored = set(server.keys())

    assert set(answered) <= stored


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
