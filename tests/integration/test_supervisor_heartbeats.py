"""What a parent hears of its children by memory that they share, and what it does about silent ones."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from billhook.inbox.sqlite.driver import HOLDING
from billhook.supervising.heartbeat import HeartbeatSender, start_watchdog
from billhook.supervising.processes import Child
from support.supervision import child, supervise, supervisor_of

BEATS = """
import sys, time
from billhook.supervising.heartbeat import HeartbeatSender
heartbeat = HeartbeatSender({}, None, int(sys.argv[1]))
heartbeat.interval_seconds = 0.0
heartbeat.beat()
print(flush=True)
while True:
    heartbeat.beat()
    time.sleep(0.05)
"""
FORKS_AND_BEATS = (
    """
import os, time
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.05)
    os._exit(0)
"""
    + BEATS
)
UP_AND_GONE = """
import sys
from billhook.supervising.heartbeat import HeartbeatSender
HeartbeatSender({}, None, int(sys.argv[1])).beat()
raise SystemExit(3)
"""
LIMIT_SECONDS = 4.0


@pytest.fixture
def soon(monkeypatch):
    """Nobody wants to wait for the shipped limit."""
    monkeypatch.setattr("billhook.supervising.processes._MIN_SILENCE_SECONDS", LIMIT_SECONDS)


def stop(started):
    """What has the first one stopped, once the parent has heard of it."""
    return (lambda: started), lambda: (time.sleep(1), started[0].send_signal(signal.SIGSTOP))


# --- the parent -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [BEATS, pytest.param(FORKS_AND_BEATS, marks=pytest.mark.long)],
    ids=["alone", "with a forked child"],
)
def test_a_child_that_is_stopped_is_killed_and_replaced(soon, code):
    started, messages = [], []

    supervise(
        [Child(name, partial(child, code, started), 5.0) for name in ("worker 1", "worker 2")],
        messages=messages,
        steps=[stop(started), (lambda: len(started) == 3,)],
    )

    assert started[0].returncode == -signal.SIGKILL
    assert messages == [
        "worker 1 sends no heartbeats (stopped or hanging): killing it",
        "worker 1 exited with code 137; restarting in 0.5 s",
    ]


class Frozen(subprocess.Popen):
    """Does not end by SIGKILL, as a process in uninterruptible I/O does not."""

    def kill(self):
        pass


@pytest.mark.long
def test_another_one_starts_beside_one_that_not_even_sigkill_ends(soon, monkeypatch):
    monkeypatch.setattr("billhook.supervising.processes._KILL_TIMEOUT_SECONDS", 0.5)
    started, messages = [], []

    def start(descriptor):
        return child(BEATS, started, descriptor, popen=subprocess.Popen if started else Frozen)

    supervise(
        [Child("the worker", start, 5.0)],
        messages=messages,
        steps=[stop(started), (lambda: len(started) == 2,)],
    )
    still_there = started[0].poll() is None
    os.kill(started[0].pid, signal.SIGKILL)
    started[0].wait()

    assert still_there
    assert messages[-1] == "the worker does not exit after SIGKILL: starting another one beside it"


@pytest.mark.slow
def test_a_child_that_had_started_is_restarted_within_a_second():
    """One that never comes up waits longer each time: test_supervisor has that."""
    started, messages = [], []

    supervise(
        [Child("the worker", partial(child, UP_AND_GONE, started), 5.0)],
        messages=messages,
        steps=[(lambda: len(messages) == 3,)],
    )

    assert [text.rpartition("restarting in ")[2] for text in messages[:3]] == ["0.5 s", "1 s", "1 s"]


class Watched:
    """A supervisor, and its child that is no process; `killed_at` is asked at each half second from 0 on."""

    def __init__(self, lease_seconds=1.0, *, holder=None, is_web_server=False):
        self.process = SimpleNamespace(pid=7, kill=lambda: self.kills.append(1), wait=lambda timeout: None)
        self.kills, self.heartbeat = [], None
        self.child = Child("a", self.start, 5.0, is_web_server)
        self.supervisor = supervisor_of([self.child], lease_seconds=lease_seconds, lock_holder=lambda: holder)
        self.child.begin(0.0)

    def start(self, descriptor):
        self.heartbeat = HeartbeatSender({}, None, os.dup(descriptor))
        return self.process

    def beat(self, monkeypatch, now):
        monkeypatch.setattr("time.monotonic", lambda: now)
        self.heartbeat._next_at = 0.0
        self.heartbeat.beat()
        monkeypatch.undo()

    def killed_at(self, seconds):
        for half in range(int(2 * seconds)):
            self.supervisor._check(self.child, self.process, half / 2)
            if self.kills:
                return half / 2
        return None


@pytest.mark.parametrize(("lease_seconds", "limit"), [(1.0, 15.0), (60.0, 180.0)])
def test_silence_is_three_leases_and_at_least_fifteen_seconds(monkeypatch, lease_seconds, limit):
    watched = Watched(lease_seconds)
    watched.beat(monkeypatch, 100.0)

    assert watched.killed_at(1_000) == 100.0 + limit + 0.5


@pytest.mark.parametrize(("lease_seconds", "limit"), [(1.0, 600.0), (300.0, 900.0)])
def test_a_process_has_ten_minutes_for_its_first_heartbeat(lease_seconds, limit):
    assert Watched(lease_seconds).killed_at(1_000) == limit + 0.5
    assert Watched(lease_seconds, is_web_server=True).killed_at(1_000) is None


def test_the_next_process_has_as_much_time_from_its_own_start(monkeypatch):
    watched = Watched()
    watched.beat(monkeypatch, 100.0)

    watched.child.begin(200.0)

    assert watched.killed_at(1_000) == 800.5


@pytest.mark.parametrize(("holder", "killed_at"), [(7, 105.5), (8, 115.5)])
def test_a_silent_process_is_killed_after_five_seconds_if_it_holds_the_write_lock(
    monkeypatch, holder, killed_at
):
    watched = Watched(holder=holder)
    watched.beat(monkeypatch, 100.0)

    assert watched.killed_at(1_000) == killed_at


@pytest.mark.slow
def test_what_the_parent_did_not_see_is_no_silence(monkeypatch):
    """The whole machine stands still, and its parts go on one after another."""
    monkeypatch.setattr("billhook.supervising.processes._MIN_SILENCE_SECONDS", 2.5)
    started, messages = [], []

    def stand_still_once():  # called in the parent's loop
        if started and not messages:
            time.sleep(1)
            started[0].send_signal(signal.SIGSTOP)
            time.sleep(3)
            threading.Timer(1.0, started[0].send_signal, [signal.SIGCONT]).start()
            messages.append("went on")
        return False

    supervise(
        [Child("the worker", partial(child, BEATS, started), 5.0)],
        messages=messages,
        signals=[(8.0, signal.SIGTERM)],
        start_trial=lambda: None,
        is_changed=stand_still_once,
    )

    assert (len(started), messages) == (1, ["went on"])


# --- the child ------------------------------------------------------------------------------------


def test_a_handler_that_closes_all_descriptors_silences_no_heartbeat():
    closes = BEATS.replace("print(", "import os; os.closerange(3, 1000); print(")
    started, messages = [], []

    beating = Child("the worker", partial(child, closes, started), 5.0)
    supervise([beating], messages=messages, steps=[(lambda: beating.beat_at > beating.since + 1,)])

    assert messages == []


def watch(monkeypatch, hang_seconds, is_stalled=lambda: False, *, heartbeat=None, looks=1, stop=None):
    """A watchdog whose thread has looked once, or as often as told."""

    class End(Exception):
        pass

    def once(target, name):
        with pytest.raises(End):
            target()

    left = iter(range(looks - 1))

    def end(seconds):
        if next(left, None) is None:
            raise End

    monkeypatch.setattr("billhook.supervising.heartbeat.start_thread", once)
    monkeypatch.setattr(
        "billhook.supervising.heartbeat.time", SimpleNamespace(sleep=end, monotonic=time.monotonic)
    )
    monkeypatch.setattr(HOLDING, "changed", None)
    start_watchdog(heartbeat or HeartbeatSender({}), hang_seconds, is_stalled, stop)


@pytest.mark.parametrize(("stalled", "beats"), [(False, [1]), (True, [])])
def test_a_watchdog_for_which_no_thread_is_left_goes_on_and_reports_unless_its_loop_stands_still(
    monkeypatch, stalled, beats
):
    told = []

    def no_thread(*_, **__):
        raise RuntimeError("unable to start watchdog thread")

    monkeypatch.setattr("faulthandler.dump_traceback_later", no_thread)
    heartbeat = SimpleNamespace(beat=lambda: told.append(1), interval_seconds=1.0)
    watch(monkeypatch, 1.0, lambda: stalled, heartbeat=heartbeat)

    assert told == beats


def test_a_watchdog_stops_a_worker_that_has_no_memory_left_once(monkeypatch, caplog):
    stopped, fits = [], iter([True, *[False] * 9])

    def reserve(*_):
        if not next(fits):
            raise OSError(errno.ENOMEM, "no memory")
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr("billhook.supervising.memory.mmap", SimpleNamespace(mmap=reserve))

    watch(monkeypatch, math.inf, looks=10, stop=lambda: stopped.append(1))

    assert stopped == [1]
    assert caplog.messages == ["worker stopping: there is no memory left"]


@pytest.mark.parametrize(("hang_seconds", "usual"), [(30.0, 30.0), (1.0, 5.0), (math.inf, None)])
def test_the_watchdog_is_quick_while_the_write_lock_is_held(monkeypatch, hang_seconds, usual):
    limits = []
    monkeypatch.setattr("faulthandler.dump_traceback_later", lambda seconds, **_: limits.append(seconds))
    monkeypatch.setattr("faulthandler.cancel_dump_traceback_later", lambda: limits.append(None))

    watch(monkeypatch, hang_seconds)
    HOLDING.set(True)
    HOLDING.set(False)

    assert limits == [usual, 5.0, usual]
