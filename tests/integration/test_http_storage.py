"""Storage that fails: 503 within the deadline, nothing acknowledged, and good again without a restart."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from support.inbox_view import Foreigner, hang_up, rows
from support.postgres import fresh_schema
from support.processes import run_command, together, until
from support.server import Server, assert_unavailable, gunicorn, read_reply, request
from support.signing import signed
from support.templates import new_inbox
from support.timeouts import scaled

TESTS = Path(__file__).parents[1]
DEADLINE = 1.0
BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@contextlib.contextmanager
def new_place(request, kind):
    """The options of a receiver on a new inbox of a kind of database."""
    if kind == "sqlite":
        yield {}
        return
    with fresh_schema(request.getfixturevalue("postgres_server").url) as url:
        yield {"BILLHOOK_INBOX_URL": new_inbox(url)}
        hang_up(url)


@pytest.fixture(scope="module", params=BOTH)
def frail(request, tmp_path_factory):
    """A receiver with a short deadline, for tests that break its storage and mend it."""
    folder = tmp_path_factory.mktemp("frail")
    with (
        new_place(request, request.param) as place,
        gunicorn(folder, BILLHOOK_DEADLINE_SECONDS=str(DEADLINE), **place) as server,
    ):
        yield server


on_a_file = pytest.mark.parametrize("frail", ["sqlite"], indirect=True)


def assert_accepted(server: Server, key: str):
    """At once, or when the sender comes again."""
    reply = until(lambda: accepted(server, key))
    assert reply.json["status"] in ("accepted", "duplicate")
    assert server.stored(key) is not None


def accepted(server: Server, key: str):
    reply = server.post(b"{}", signed(message_id=key))
    assert reply.status in (200, 503)
    return reply if reply.status == 200 else None


def test_a_crowd_before_a_locked_inbox_is_all_answered_in_time_and_then_all_stored(frail):
    def send(number):
        started = time.monotonic()
        status = frail.post(b"{}", signed(message_id=f"msg_crowd_{number}")).status
        return status, time.monotonic() - started

    with Foreigner(frail.inbox):
        during = together(8, send)

    assert {status for status, _ in during} == {503}
    assert max(seconds for _, seconds in during) < scaled(DEADLINE + 1)
    for number in range(8):
        assert_accepted(frail, f"msg_crowd_{number}")


def test_after_503_the_connection_takes_the_next_delivery(frail):
    with frail.connect() as connection:
        with Foreigner(frail.inbox):
            connection.sendall(request(b"{}", signed(), close=False))
            refused = read_reply(connection).status
        assert_accepted(frail, "msg_meanwhile")

        def taken():
            connection.sendall(request(b"{}", signed(message_id="msg_kept_alive"), close=False))
            return read_reply(connection).status == 200

        assert refused == 503
        assert until(taken)
    assert frail.stored("msg_kept_alive") == ("PingTest", b"{}")


# --- a receiver with several processes ------------------------------------------------------------


@pytest.fixture(params=BOTH)
def receiver(request, tmp_path):
    """Starts a receiver with two processes on a new inbox."""
    with new_place(request, request.param) as place:
        yield lambda *flags, **options: gunicorn(tmp_path, *flags, workers=2, **place, **options)


@pytest.mark.slow
def test_a_preloaded_app_takes_deliveries_in_all_its_processes(receiver):
    with receiver("--preload", BILLHOOK_ENGINE="thread") as server:
        for number in range(30):
            assert server.post(b"{}", signed(message_id=f"msg_{number}")).status == 200

        until(lambda: rows(server.inbox, "SELECT count(*) FROM delivery WHERE state = 'done'") == [(30,)], 20)
        assert sorted(server.keys()) == sorted(f"msg_{number}" for number in range(30))
    if isinstance(server.inbox, Path):
        assert rows(server.inbox, "PRAGMA integrity_check") == [("ok",)]


# --- files ----------------------------------------------------------------------------------------


@on_a_file
@pytest.mark.parametrize(
    "found",
    [None, b"", b"this is no database, and never was one" * 100],
    ids=["no file", "an empty file", "no database"],
)
def test_an_inbox_that_was_moved_away_is_503_until_it_is_back(frail, found):
    key = f"msg_moved_{found and len(found)}"

    with moved_away(frail.inbox):
        if found is not None:
            frail.inbox.write_bytes(found)
        assert_unavailable(frail, key, DEADLINE)
        assert until(lambda: frail.get("/readyz").status == 503)  # a good answer holds for a second
        assert frail.inbox.exists() is (found is not None)

    assert_accepted(frail, key)
    assert until(lambda: frail.get("/readyz").status == 200)


@on_a_file
def test_corrupt_pages_are_503_until_they_are_repaired(frail):
    with moved_away(frail.inbox, copy=True):
        with frail.inbox.open("r+b") as stream:
            stream.seek(4096)
            stream.write(os.urandom(65_536))
        assert_unavailable(frail, "msg_pages", DEADLINE)

    assert_accepted(frail, "msg_pages")


READ_ONLY = """
import os
from support.inbox_view import incoming
from billhook.errors import InboxUnavailable
from billhook.inbox import Inbox

print("imported")

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
        ran = run_command([*somebody, "-c", READ_ONLY], cwd=folder, env=here)
    finally:
        shutil.rmtree(folder)

    if "imported" not in ran.stdout:
        pytest.skip("this interpreter is not readable by others")
    assert ran.stderr == ""
    _, refused, status = ran.stdout.splitlines()
    assert "failed: Permission denied" in refused  # of the lock, before the file itself is tried
    assert status == "accepted"


# --- breaking things ------------------------------------------------------------------------------


@contextlib.contextmanager
def moved_away(path: Path, copy: bool = False):
    """The file and what SQLite keeps beside it are elsewhere while the block lasts, or copies are there."""
    names = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    kept = [(name, name.with_name("kept-" + name.name)) for name in names if name.exists()]
    for name, aside in kept:
        name.rename(aside)
        if copy:
            shutil.copy(aside, name)
    try:
        yield
    finally:
        for name in names:
            name.unlink(missing_ok=True)
        for name, aside in kept:
            aside.rename(name)
