"""What a worker tells systemd and a container's probe, and that its silence is noticed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from billhook.errors import ConfigError
from billhook.supervising.heartbeat import HeartbeatSender
from support.processes import until
from support.systemd import NotifySocket
from support.timeouts import scaled
from support.worker_group import HANDLERS

PAGE = Path(__file__).parents[2] / "deploy" / "README.md"
WATCHDOG_SECONDS = 2.0
HANGS_ONCE = """
@handlers.on(PingTest, name="greedy")
def greedy(event, delivery):
    if delivery.attempt == 1:
        open("hangs.txt", "w").close()
        ctypes.PyDLL(None).sleep(10_000)  # with the interpreter's lock, so that no other thread runs
"""


@pytest.fixture
def systemd(group):
    (group.folder / "hangs_once.py").write_text(HANDLERS + HANGS_ONCE)
    with contextlib.closing(NotifySocket()) as made:
        group.environ |= {**made.environ, "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}
        yield made


def hang(group):
    """Deliver what hangs the worker, and wait until it does."""
    group.put("poison")
    until(lambda: (group.folder / "hangs.txt").exists(), 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["worker"],
        ["serve", "--bind", "unix:socket"],
        pytest.param(["worker", "--processes", "2"], marks=pytest.mark.long),  # the parent tells
    ],
)
def test_systemd_hears_of_start_life_and_stop(group, systemd, arguments):
    worker = group.start(*arguments, "hangs_once.py")

    assert systemd.next(scaled(30)) == "READY=1\nWATCHDOG=1"
    assert [systemd.next(scaled(WATCHDOG_SECONDS)) for _ in range(2)] == ["WATCHDOG=1"] * 2
    worker.send_signal(signal.SIGTERM)
    messages = []
    while (message := systemd.next(1.0)) is not None:
        messages.append(message)
    assert worker.wait(scaled(20)) == 0
    assert messages.count("STOPPING=1") == 1
    assert set(messages) <= {"STOPPING=1", "WATCHDOG=1"}


@pytest.mark.slow
def test_a_worker_that_hangs_in_c_sends_no_heartbeat_and_its_successor_handles_its_runs(group, systemd):
    worker = group.start("worker", "hangs_once.py")
    assert systemd.next(scaled(30)) == "READY=1\nWATCHDOG=1"
    hang(group)

    # As systemd does: SIGABRT after the time without a message.
    end = time.monotonic() + scaled(20)
    while systemd.next(WATCHDOG_SECONDS) is not None:
        assert time.monotonic() < end
    worker.send_signal(signal.SIGABRT)

    assert worker.wait(scaled(20)) == -signal.SIGABRT
    assert "in greedy" in group.log()  # where it hung
    group.start("worker", "hangs_once.py")
    assert systemd.next(scaled(30)) == "READY=1\nWATCHDOG=1"
    until(lambda: group.states() == {"poison": "done"}, 30)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_health_file_is_young_while_the_worker_works_and_gone_after(group, processes):
    file = group.folder / "alive"
    worker = group.start("worker", "worst.py", "--health-file", "alive", "--processes", str(processes))
    until(lambda: group.log().count("worker started with") == processes and file.exists(), 30)
    touched = set()
    until(lambda: touched.add(file.stat().st_mtime_ns) or len(touched) >= 3, 20)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(scaled(30)) == 0
    assert not file.exists()


def test_the_documented_probe_distinguishes_a_fresh_heartbeat_file_from_an_old_or_missing_one(tmp_path):
    (command,) = re.findall(r"<!-- probe -->\n```sh\n(.+)\n```", PAGE.read_text())
    file = tmp_path / "alive"
    probe = ["sh", "-c", command.replace("/tmp/billhook.alive", str(file))]
    codes = [subprocess.run(probe, check=False, capture_output=True).returncode]
    for old_seconds in (0, 3_600):
        file.touch()
        os.utime(file, (time.time() - old_seconds,) * 2)
        codes.append(subprocess.run(probe, check=False, capture_output=True).returncode)

    assert codes == [1, 0, 1]


def test_a_health_file_that_cannot_be_made_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written: No such file or directory"):
        HeartbeatSender({}, tmp_path / "none" / "alive")


def test_a_health_file_that_is_a_planted_link_is_refused_and_not_followed(tmp_path):
    (tmp_path / "alive").symlink_to(tmp_path / "victim")
    with pytest.raises(ConfigError, match="alive cannot be written: Too many levels of symbolic links"):
        HeartbeatSender({}, tmp_path / "alive")

    assert not (tmp_path / "victim").exists()


def test_a_health_file_of_an_earlier_process_is_gone_until_the_first_beat(tmp_path):
    file = tmp_path / "alive"
    file.touch()

    heartbeat = HeartbeatSender({}, file)
    before = file.exists()
    heartbeat.beat()

    assert (before, file.exists()) == (False, True)


def test_a_file_that_cannot_be_touched_any_more_is_logged_once(tmp_path, caplog):
    (tmp_path / "folder").mkdir()
    heartbeat = HeartbeatSender({}, tmp_path / "folder" / "alive")
    heartbeat.interval_seconds = 0.0
    (tmp_path / "folder").rmdir()

    for _ in range(3):
        heartbeat.beat()
    heartbeat.close()

    (message,) = caplog.messages
    assert "cannot be touched" in message


def test_without_systemd_nothing_is_told_and_its_variables_do_not_reach_children():
    environ = {"NOTIFY_SOCKET": "@billhook-test-nobody", "WATCHDOG_USEC": "x", "WATCHDOG_PID": "1", "A": "b"}

    heartbeat = HeartbeatSender(environ)
    heartbeat.beat()  # nothing listens there
    heartbeat.stopping()

    assert environ == {"A": "b"}
    assert heartbeat.is_external
    assert not HeartbeatSender({}).is_external
