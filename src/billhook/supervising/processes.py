"""Processes of `serve` and `worker --processes`: a parent starts children, restarts those that ended,
replaces those that hang, has them load new code, and ends them together.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from types import FrameType
from typing import Any

from billhook.supervising.heartbeat import LOCK_HOLDER_SECONDS, TIME_BYTES, HeartbeatSender, map_time

logger = logging.getLogger("billhook.worker")
Process = subprocess.Popen[bytes]

_PR_SET_PDEATHSIG = 1
_MIN_SILENCE_SECONDS = 15.0
_START_SECONDS = 600.0
"""Longest time until the first heartbeat: a process imports the user's code first, which may load models."""
_STALL_SECONDS = 2.0
"""Longest time between two looks at the children; after a longer one this process itself did not run."""
_POLL_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_LONGEST_PAUSE_AFTER_START_SECONDS = 1.0
"""After a child that had started: a handler ended it, and the next child can work."""
_STEADY_SECONDS = 60.0
_RELOAD_INTERVAL_SECONDS = 2.0
"""Between the start of a new worker and the end of the next old one, so that one is always running."""
_KILL_TIMEOUT_SECONDS = 5.0
"""Time for SIGKILL to work: a process in uninterruptible I/O does not end even by that."""
_UNFORESEEN = 255
"""How gunicorn exits after an error in its own loop, such as a fork for which the system had no task left."""


def spawn(command: Sequence[str], environ: Mapping[str, str], **options: Any) -> Process:
    """Start a child, with `options` of Popen; on Linux it gets SIGTERM when this process dies.

    Call from the main thread: the kernel ties the child to the thread that created it.
    """
    # All that can allocate, import or lock is done before the fork: another thread may hold such a lock at
    # that moment, and in the child it would never be released.
    parent, is_linux = os.getpid(), sys.platform == "linux"
    prctl: Any = ctypes.CDLL(None).prctl if is_linux else None

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent died before the tie was in place
            os._exit(1)

    return subprocess.Popen(  # noqa: S603 - this interpreter and the package's modules
        command,
        # glibc reserves 64 MB of addresses for each thread that allocates, which a limit (ulimit -v) counts.
        env={"MALLOC_ARENA_MAX": "2", **environ},
        stdin=subprocess.DEVNULL,  # reading the terminal would stop a background group: SIGTTIN
        process_group=0,  # of its own: Ctrl-C signals a whole group, but children are stopped in order
        preexec_fn=tie if is_linux else None,  # two system calls that take no lock
        **options,
    )


def stop_all(processes: Sequence[Process], grace_seconds: float) -> None:
    """Terminate all processes at the same time; kill those that remain after the grace period."""
    end = time.monotonic() + grace_seconds
    for process in processes:
        process.send_signal(signal.SIGTERM)  # does nothing if it has exited already
    # One after another, but with one common end: together they wait no longer than the grace period.
    for process in processes:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()  # none may stay behind as a zombie


@dataclass(slots=True)
class Child:
    """A part of the program, and the process that runs it now.

    `start` gets a descriptor of the memory for heartbeats. `grace_seconds` is the time between SIGTERM and
    SIGKILL. A child that exits is restarted, except that the web server ends all if it exits with 0 or cannot
    start at all. It loads new code at SIGHUP, and replaces its own processes that hang; workers do not. Its
    one heartbeat says that it accepts connections.
    """

    name: str
    start: Callable[[int], Process]
    grace_seconds: float
    is_web_server: bool = False
    process: Process | None = None
    has_old_code: bool = False
    kill_at: float | None = None
    """When its grace is over, if it was asked to end because of its old code."""
    since: float = 0.0
    again_at: float = 0.0
    ends: int = 0
    _pause: float = _FIRST_PAUSE_SECONDS
    _memory: Sequence[float] = (0.0,)

    def begin(self, now: float) -> None:
        """Start the process, with memory of its own: an earlier process may still write to the other."""
        self.since, self.has_old_code, self.kill_at = now, False, None
        # A file without a name, in memory where the system can: a write must not wait for a disk.
        has_memory_files = sys.platform == "linux"
        with os.fdopen(os.memfd_create("heartbeat"), "r+b") if has_memory_files else TemporaryFile() as file:
            file.truncate(TIME_BYTES)
            self._memory = map_time(file.fileno())
            self.process = self.start(file.fileno())

    @property
    def beat_at(self) -> float:
        """The time of the last heartbeat, also of a process that has exited since; 0 if there was none."""
        return self._memory[0]

    def ended(self, now: float) -> str:
        """Note that it exited; return in words when it is restarted.

        The pause doubles, so that a child which cannot start does not spin; it is short after a child that
        had started or ran for a while.
        """
        if now - self.since >= _STEADY_SECONDS:
            self._pause = _FIRST_PAUSE_SECONDS
        had_started = self.beat_at and not self.is_web_server
        longest = _LONGEST_PAUSE_AFTER_START_SECONDS if had_started else _LONGEST_PAUSE_SECONDS
        pause = min(self._pause, longest)
        self._pause = min(pause * 2, longest)
        self.process, self.again_at = None, now + pause
        self.ends += 1
        return f"restarting in {pause:g} s"


@dataclass(kw_only=True)
class Supervisor:
    """Keeps children running until a signal stops it, and stops them together. `log` gets each message.

    `record_death` gets the process id of each worker that ends unasked, when it began, and whether it had
    started.

    A worker hangs that sends no heartbeat for three leases and at least 15 s; for 5 s, if `lock_holder`
    returns its process id: then it keeps all others from writing.

    With `start_trial`, SIGHUP reloads if the process that it starts exits with 0: the new code can be loaded.
    Without, SIGHUP stops all, as it does when the terminal that started this process is gone. `is_changed` is
    asked again and again: True is as good as a SIGHUP.
    """

    children: Sequence[Child]
    heartbeat: HeartbeatSender
    lease_seconds: float
    log: Callable[[str], object]
    lock_holder: Callable[[], int | None] = lambda: None
    record_death: Callable[[int, float, bool], object] = lambda pid, began, had_started: None
    start_trial: Callable[[], Process] | None = None
    is_changed: Callable[[], bool] = lambda: False
    _trial: Process | None = None
    _reload_asked: bool = False
    _replace_at: float = 0.0
    _stopping: bool = False
    _started: bool = False
    _resumed_at: float = 0.0
    """When this process itself had not run for a while: before, the children may have beaten unheard."""
    # SIGHUP is sent by the user to reload, and by the kernel when the terminal closes. A terminal that was
    # there at the start and is not any more tells the second from the first.
    _terminal: bool = field(default_factory=lambda: has_terminal())

    def run(self) -> int:
        """Run until a signal (0) or until the web server exits for good; return the exit code.

        Call it in the main thread. No child is left behind, also after an exception.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            # Under nohup, a hang-up must stop nothing.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        try:
            code = self._watch()
            self.heartbeat.stopping()
            # All at once: one after another they would take twice as long while the database hangs. What the
            # web server still accepts is handled after the next start.
            stop_all(self._processes(), max(child.grace_seconds for child in self.children))
            return code
        finally:
            stop_all(self._processes(), 0.0)
            self.heartbeat.close()

    def _watch(self) -> int:
        # Polling, not SIGCHLD: a signal handler may do little, and heartbeats need a look anyway.
        looked_at = time.monotonic()
        while not self._stopping:
            now = time.monotonic()
            if now - looked_at > _STALL_SECONDS:
                self._resumed_at = now
            looked_at = now
            for child in self.children:
                if child.process is None:
                    self._begin(child, now)
                elif child.process.poll() is None:
                    self._check(child, child.process, now)
                elif (code := self._note_exit(child, child.process.returncode, now)) is not None:
                    return code
            self._reload()
            self._replace_old_code(now)
            self._started = self._started or all(one.beat_at for one in self.children if one.is_web_server)
            if self._started:  # before, systemd would send clients here that are refused
                self.heartbeat.beat()
            time.sleep(_POLL_SECONDS)
        return 0

    def _begin(self, child: Child, now: float) -> None:
        try:
            if now >= child.again_at:
                child.begin(now)
        except OSError as error:  # no task or no memory left, for a moment perhaps
            if not any(one.process for one in self.children):
                raise  # nothing runs that could be kept
            self.log(f"{child.name} cannot be started: {error.strerror}; {child.ended(now)}")

    def _check(self, child: Child, process: Process, now: float) -> None:
        """Kill a child that hangs, or that outlasts the grace in which it was to be replaced."""
        silent_seconds = now - max(child.since, child.beat_at, self._resumed_at)
        longest = max(_MIN_SILENCE_SECONDS, 3 * self.lease_seconds)
        if not child.beat_at:
            longest = max(longest, _START_SECONDS)
        elif silent_seconds > LOCK_HOLDER_SECONDS and self.lock_holder() == process.pid:
            longest = LOCK_HOLDER_SECONDS
        if silent_seconds > longest and not child.is_web_server:
            self.log(f"{child.name} sends no heartbeats (stopped or hanging): killing it")
        elif child.kill_at is None or now < child.kill_at:
            return
        process.kill()
        try:
            process.wait(_KILL_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:  # leases keep the runs of the two apart
            self.log(f"{child.name} does not exit after SIGKILL: starting another one beside it")
            child.process = None

    def _note_exit(self, child: Child, code: int, now: float) -> int | None:
        """Note that a child exited; return the exit code of the supervisor if that ends all."""
        if child.kill_at is not None:  # to be replaced, so the next one starts immediately
            child.process = None
            self._replace_at = now + _RELOAD_INTERVAL_SECONDS
            return None
        # gunicorn exits with 0 only when it was asked to. With an error at its very first start, it was
        # configured wrongly, and would fail again; a signal (a negative code) is an accident.
        misconfigured = 0 < code != _UNFORESEEN and not child.ends and now - child.since < _STEADY_SECONDS
        ends_all = child.is_web_server and (code == 0 or misconfigured)
        if not child.is_web_server and child.process is not None:
            self.record_death(child.process.pid, child.since, bool(child.beat_at))
        code = 128 - code if code < 0 else code  # as a shell shows it
        self.log(f"{child.name} exited with code {code}" + ("" if ends_all else f"; {child.ended(now)}"))
        return code if ends_all else None

    def _reload(self) -> None:
        """Take the next step of a reload, without waiting. First a trial process loads the new code."""
        if self.start_trial and not self._trial and (self._reload_asked or self.is_changed()):
            self._reload_asked = False
            try:
                self._trial = self.start_trial()
            except OSError as error:  # no task or no memory left, for a moment perhaps
                self.log(f"reload failed: {error.strerror}; the running processes continue")
        if self._trial is None or self._trial.poll() is None:
            return
        code, self._trial = self._trial.returncode, None
        if code != 0:
            self.log("reload failed: the new code cannot be loaded; the running processes continue")
            return
        self.log("reloading")
        for child in self.children:
            child.has_old_code = not child.is_web_server
            if child.is_web_server and child.process is not None:
                child.process.send_signal(signal.SIGHUP)

    def _replace_old_code(self, now: float) -> None:
        """Ask the oldest child with old code to end: one at a time, so that the others work meanwhile."""
        if now < self._replace_at or any(child.kill_at is not None for child in self.children):
            return
        for child in sorted(self.children, key=lambda child: child.since):
            if child.has_old_code and child.process is not None:
                child.kill_at = now + child.grace_seconds
                child.process.send_signal(signal.SIGTERM)
                break

    def _processes(self) -> list[Process]:
        running = (self._trial, *(child.process for child in self.children))
        return [process for process in running if process is not None]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # No lock and no Event here: the signal may arrive while this thread holds it.
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            return  # gunicorn handles these; their default would end this process, and SIG_IGN is inherited
        if number == signal.SIGHUP and self.start_trial and not (self._terminal and not has_terminal()):
            self._reload_asked = True
            return
        # The first signal only ends `_watch`; a second one, of a user who does not want to wait, kills.
        if self._stopping:
            for process in self._processes():
                process.kill()
        self._stopping = True


def has_terminal() -> bool:
    """Return whether this process still has the terminal that it was started in."""
    # isatty(0) would say nothing: stdin may be a file. O_NOCTTY: opening it must not make it our terminal.
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        return True
    return False
