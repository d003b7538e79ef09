"""What a parent hears of its children: heartbeats in pipes, and what it does about those that fall silent."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import pytest

from billhook.cli.liveness import HeartbeatMonitor, HeartbeatSender, interval_seconds
from billhook.cli.supervisor import Role, worker_roles
from billhook.cli.worker import start_watchdog
from billhook.inbox.sqlite.locks import HOLDING
from support.processes import until
from support.supervision import drive, supervise

BEATS = """
import os, sys, time
from billhook.cli.liveness import HeartbeatSender
sender = HeartbeatSender(int(sys.argv[1]))
sender.beat()
print(flush=True)
while True:
    sender.beat()
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
from billhook.cli.liveness import HeartbeatSender
HeartbeatSender(int(sys.argv[1])).beat()
raise SystemExit(3)
"""
WATCHES = """
import os, signal, sys, time
from billhook.cli.worker import start_watchdog
from billhook.cli.liveness import HeartbeatSender
signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a user's code may
sender = HeartbeatSender(int(sys.argv[1]))
print(flush=True)
sys.stdin.readline()
if sys.argv[2] == "watch":
    start_watchdog(1.0, sender.beat)
else:
    sender.beat()
time.sleep(1.2)
print("goes on")
"""
LIMIT_SECONDS = 4.0


@pytest.fixture
def soon(monkeypatch):
    """Nobody wants to wait for the shipped limit."""
    monkeypatch.setattr("billhook.cli.liveness._MIN_SILENCE_SECONDS", LIMIT_SECONDS)


def begin(code, started, descriptor, *, popen=subprocess.Popen):
    """A process that has come up, if it prints a line then."""
    command = [sys.executable, "-c", code, str(descriptor)]
    process = popen(command, pass_fds=(descriptor,), stdout=subprocess.PIPE)
    assert process.stdout is not None
    if "print" in code:
        process.stdout.readline()
    process.stdout.close()
    started.append(process)
    return process


def stop(started):
    """What has the first one stopped, once the parent has heard of it."""
    return (lambda: started), lambda: (time.sleep(1), started[0].send_signal(signal.SIGSTOP))


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    for descriptor in (reader, writer):
        os.set_blocking(descriptor, False)
    yield reader, writer
    for descriptor in (reader, writer):
        with suppress(OSError):
            os.close(descriptor)


# --- the parent -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [BEATS, pytest.param(FORKS_AND_BEATS, marks=pytest.mark.long)],
    ids=["alone", "with a forked child"],
)
def test_a_child_that_is_stopped_is_killed_and_replaced(soon, code):
    started, messages = [], []
    driving = drive(stop(started), (lambda: len(started) == 3, lambda: None))

    supervise(worker_roles(2, partial(begin, code, started), 5.0, 0.1), messages=messages)
    driving.join()

    assert started[0].returncode == -signal.SIGKILL
    assert messages == [
        "worker 1 sends no heartbeats (stopped or hanging): killing it",
        "worker 1 exited with code 137; restarting in 0.5 s",
    ]


@pytest.mark.slow
def test_control_a_stopped_child_without_heartbeats_is_not_replaced(monkeypatch):
    """The control: it is the heartbeats that tell."""
    monkeypatch.setattr("billhook.cli.liveness._MIN_SILENCE_SECONDS", 0.5)
    started, messages = [], []
    deaf = HeartbeatMonitor(0.1)
    driving = drive(
        stop(started),
        (lambda: True, lambda: time.sleep(1.5)),
        (lambda: True, lambda: started[0].send_signal(signal.SIGCONT)),
    )

    supervise([Role("deaf", partial(deaf.start, partial(begin, BEATS, started)), 5.0)], messages=messages)
    driving.join()
    deaf.close()

    assert (len(started), messages) == (1, [])


class Frozen(subprocess.Popen):
    """Does not end by SIGKILL, as a process in uninterruptible I/O does not."""

    def kill(self):
        pass


@pytest.mark.long
def test_another_one_starts_beside_one_that_not_even_sigkill_ends(soon, monkeypatch):
    monkeypatch.setattr("billhook.cli.supervisor._KILL_TIMEOUT_SECONDS", 0.5)
    started, messages = [], []

    def start(descriptor):
        return begin(BEATS, started, descriptor, popen=subprocess.Popen if started else Frozen)

    driving = drive(stop(started), (lambda: len(started) == 2, lambda: None))
    supervise(worker_roles(1, start, 5.0, 0.1), messages=messages)
    driving.join()
    still_there = started[0].poll() is None
    os.kill(started[0].pid, signal.SIGKILL)
    started[0].wait()

    assert still_there
    assert messages[-1] == "the worker does not exit after SIGKILL: starting another one beside it"


@pytest.mark.slow
def test_a_child_that_had_started_is_restarted_within_a_second():
    """One that never comes up waits longer each time: test_supervisor has that."""
    started, messages = [], []
    driving = drive((lambda: len(messages) == 3, lambda: None))

    supervise(worker_roles(1, partial(begin, UP_AND_GONE, started), 5.0, 60.0), messages=messages)
    driving.join()

    assert [text.rpartition("restarting in ")[2] for text in messages[:3]] == ["0.5 s", "1 s", "1 s"]


def started_by(heartbeats):
    """The writing end of a pipe whose other end the heartbeats have; and no process."""
    writers = []
    heartbeats.start(lambda descriptor: writers.append(os.dup(descriptor)))
    return writers[0]


def test_silence_is_three_leases_and_at_least_fifteen_seconds():
    assert HeartbeatMonitor(1.0).limit_seconds == 15
    assert HeartbeatMonitor(60.0).limit_seconds == 180
    assert (interval_seconds(60.0), interval_seconds(0.6)) == (1.0, pytest.approx(0.2))


def hangs_at(heartbeats, seconds):
    """Look every half second until then, from the hundredth on; when it was first found to hang."""
    for half in range(200, int(200 + 2 * seconds)):
        if heartbeats.is_hung(half / 2):
            return half / 2
    return None


def test_only_silence_that_the_parent_observed_counts():
    heartbeats = HeartbeatMonitor(1.0)
    writer = started_by(heartbeats)
    os.write(writer, b".")

    assert hangs_at(heartbeats, 15) is None
    assert not heartbeats.is_hung(500.0)  # we did not run ourselves: nothing is known of it
    assert [heartbeats.is_hung(500.0 + second) for second in range(1, 17)] == [*[False] * 15, True]
    os.write(writer, b"...")
    assert not heartbeats.is_hung(517.0)
    heartbeats.close()
    os.close(writer)


def test_silence_is_measured_from_each_processes_first_heartbeat():
    heartbeats = HeartbeatMonitor(1.0)
    writer = started_by(heartbeats)
    assert hangs_at(heartbeats, 100) is None
    assert not heartbeats.has_started
    os.write(writer, b".")
    assert hangs_at(heartbeats, 20) == 115.5
    assert heartbeats.has_started
    os.close(writer)

    os.close(started_by(heartbeats))

    assert hangs_at(heartbeats, 100) is None
    assert not heartbeats.has_started
    heartbeats.close()


def test_a_process_that_never_sends_its_first_heartbeat_hangs_after_ten_minutes():
    heartbeats = HeartbeatMonitor(1.0)
    first = started_by(heartbeats)
    assert hangs_at(heartbeats, 1_000) == 700.5

    # The next process has as much time, from its own start.
    second = started_by(heartbeats)
    assert not any(heartbeats.is_hung(701.0 + seconds) for seconds in range(601))
    assert heartbeats.is_hung(1_302.0)
    heartbeats.close()
    os.close(first)
    os.close(second)


def test_a_process_with_long_leases_has_longer_for_its_start():
    heartbeats = HeartbeatMonitor(300.0)
    writer = started_by(heartbeats)
    assert hangs_at(heartbeats, 1_100) == 1_000.5
    heartbeats.close()
    os.close(writer)


# --- the child ------------------------------------------------------------------------------------


def test_a_file_that_reuses_the_descriptor_of_a_closed_pipe_is_not_written_to(tmp_path, pipe, caplog):
    reader, writer = pipe
    sender = HeartbeatSender(writer)
    sender.beat()
    assert os.read(reader, 10) == b"."
    with (tmp_path / "a users").open("wb") as file:
        os.dup2(file.fileno(), writer)

        for _ in range(3):
            sender.beat()

    assert (tmp_path / "a users").read_bytes() == b""
    assert [record.getMessage() for record in caplog.records] == [
        "a handler closed the heartbeat pipe: the parent will restart this process"
    ]


def test_another_pipe_is_not_written_to_either(pipe):
    _, writer = pipe
    sender = HeartbeatSender(writer)
    other_reader, other_writer = os.pipe()
    os.dup2(other_writer, writer)
    os.close(other_writer)

    sender.beat()

    os.set_blocking(other_reader, False)
    with pytest.raises(BlockingIOError):
        os.read(other_reader, 1)
    os.close(other_reader)


def test_a_closed_descriptor_or_no_pipe_raises_nothing(tmp_path, pipe):
    _, writer = pipe
    sender = HeartbeatSender(writer)
    os.close(writer)
    sender.beat()
    with (tmp_path / "file").open("wb") as file:
        HeartbeatSender(file.fileno()).beat()
    HeartbeatSender(-1).beat()

    assert (tmp_path / "file").read_bytes() == b""


def test_a_full_pipe_does_not_block_and_is_not_inherited(pipe):
    reader, writer = pipe
    os.set_inheritable(writer, True)
    sender = HeartbeatSender(writer)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)

    sender.beat()

    assert not os.get_inheritable(writer)
    with suppress(BlockingIOError):
        while True:
            os.read(reader, 65_536)
    sender.beat()
    assert os.read(reader, 10) == b"."


@pytest.mark.slow
@pytest.mark.parametrize(("way", "code"), [("watch", 0), ("bare", -signal.SIGPIPE)])
def test_a_child_without_its_parent_survives_sigpipe(way, code):
    """Without the watch thread, which does not let SIGPIPE through, it would be killed: the control."""
    reader, writer = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", WATCHES, str(writer), way],
        pass_fds=(writer,), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    os.close(writer)
    assert child.stdout is not None
    child.stdout.readline()

    os.close(reader)
    messages, _ = child.communicate(b"\n", timeout=60)

    assert child.returncode == code
    assert messages == (b"goes on\n" if code == 0 else b"")


def test_the_watch_beats_within_a_second_or_a_third_of_a_lease(pipe):
    reader, writer = pipe
    code = (
        "import sys, time\n"
        "from billhook.cli.worker import start_watchdog\n"
        "from billhook.cli.liveness import HeartbeatSender\n"
        "start_watchdog(0.3, HeartbeatSender(int(sys.argv[1])).beat)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(writer)], pass_fds=(writer,))
    heard = 0

    def hear():
        nonlocal heard
        with suppress(BlockingIOError):
            heard += len(os.read(reader, 100))
        return heard >= 5

    try:
        until(hear, 20)
    finally:
        child.kill()
        child.wait()


def test_a_watchdog_for_which_no_thread_is_left_goes_on_and_tells_its_parent(monkeypatch):
    beats, loops = [], []

    def no_thread(*_, **__):
        raise RuntimeError("unable to start watchdog thread")

    monkeypatch.setattr(
        sys.modules["billhook.cli.worker"], "start_heartbeat", lambda beat, pause: loops.append(beat)
    )
    monkeypatch.setattr(HOLDING, "changed", None)
    monkeypatch.setattr("faulthandler.dump_traceback_later", no_thread)

    start_watchdog(1.0, lambda: beats.append(1))
    loops[0]()
    loops[0]()

    assert beats == [1, 1]


@pytest.mark.parametrize(("lease_seconds", "usual"), [(30.0, 30.0), (math.inf, None)])
def test_the_watchdog_is_quick_while_the_write_lock_is_held(monkeypatch, lease_seconds, usual):
    limits = []
    monkeypatch.setattr(sys.modules["billhook.cli.worker"], "start_heartbeat", lambda beat, pause: beat())
    monkeypatch.setattr(HOLDING, "changed", None)
    monkeypatch.setattr("faulthandler.dump_traceback_later", lambda seconds, **_: limits.append(seconds))
    monkeypatch.setattr("faulthandler.cancel_dump_traceback_later", lambda: limits.append(None))

    start_watchdog(lease_seconds, lambda: None)
    HOLDING.set(True)
    HOLDING.set(False)

    assert limits == [usual, 5.0, usual]
