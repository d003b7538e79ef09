"""Deliveries under gevent: while the disk works, the greenlets of the process go on."""

import fcntl
import json
import subprocess
import sys
import time
from contextlib import closing

import pytest

from billhook.inbox import Inbox
from billhook.inbox.sqlite.library import sqlite3
from support.processes import run_command

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import json, sys, time
from datetime import UTC, datetime
import gevent
import billhook.inbox.storing.committer
from billhook.errors import InboxUnavailable
from billhook.inbox import Inbox, NewDelivery

path, how = sys.argv[1:]
if how == "without":
    billhook.inbox.storing.committer.run_blocking = lambda work, *arguments: work(*arguments)
inbox = Inbox(f"sqlite:///{path}", deadline_seconds=5.0)
now = datetime.now(UTC)

def put(key, timeout_seconds=None):
    delivery = NewDelivery("default", key, "PingTest", b"{}", "{}", now, now)
    try:
        return inbox.put(delivery, timeout_seconds).status.value
    except InboxUnavailable as error:
        return str(error)

longest_pause = 0.0
def watch():
    global longest_pause
    before = time.monotonic()
    while True:
        gevent.sleep(0.01)
        before, pause = time.monotonic(), time.monotonic() - before
        longest_pause = max(longest_pause, pause)

assert put("warm-up") == "accepted"
print("ready", flush=True)
sys.stdin.readline()  # from here on another process writes for 2 seconds
gevent.spawn(watch)
gevent.sleep(0)
all_of_them = [gevent.spawn(put, f"key-{number}") for number in range(20)]
late = put("late", 0.3)
statuses = [one.get() for one in all_of_them]
inbox.check_writable()
inbox.close()
print(json.dumps({"pause": longest_pause, "late": late, "statuses": statuses}))
"""


ASYNC_HANDLERS = """
from gevent import monkey
monkey.patch_all()
import asyncio
import gevent
from billhook.handlers import EVENT_LOOPS

async def handle(number):
    await asyncio.sleep(0.05)
    return number

greenlets = [gevent.spawn(EVENT_LOOPS.run, handle(number), 10.0) for number in range(3)]
assert [one.get(timeout=30) for one in greenlets] == [0, 1, 2]
"""


pytestmark = pytest.mark.slow


def test_async_handlers_of_several_greenlets_all_run():
    process = run_command([sys.executable, "-c", ASYNC_HANDLERS])
    assert (process.returncode, process.stderr) == (0, "")


@pytest.fixture(name="file")
def fixture_file(tmp_path):
    file = tmp_path / "inbox.db"
    inbox = Inbox(f"sqlite:///{file}")
    inbox.prepare()
    inbox.close()
    return file


def _beside_a_long_writer(file, how):
    """Return what a process under gevent prints that stores 20 deliveries while another one writes."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, file, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process, closing(sqlite3.connect(file, isolation_level=None)) as writer:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        with file.with_name("inbox.db-lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            writer.execute("BEGIN IMMEDIATE")
            process.stdin.write("\n")
            process.stdin.flush()
            time.sleep(2)
            writer.execute("COMMIT")
        printed, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    return json.loads(printed)


def test_greenlets_go_on_while_a_commit_waits_for_the_disk(file):
    seen = _beside_a_long_writer(file, "with")
    assert seen["pause"] < 1
    assert seen["late"].startswith("no commit within 0.3 s; process ")  # which holds the write lock
    assert seen["statuses"] == ["accepted"] * 20


def test_control_a_commit_in_a_greenlet_stops_all_of_them(file):
    seen = _beside_a_long_writer(file, "without")
    assert seen["pause"] > 1
    assert seen["statuses"] == ["accepted"] * 20
