"""Processes of `serve` and `worker --processes`: a parent starts children, restarts those that ended,
replaces those that hang, has them load new code, and ends them together.

There is one heartbeat. Once a second a process tells that it is alive: systemd by its socket (sd_notify(3)),
the probe of a container by the time of a file, and its parent by a time in memory that both share. A process
that is stopped as a whole cannot report that itself, so its parent notices that the time is old.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import math
import mmap
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any

from billhook.concurrency import start_thread
from billhook.errors import ConfigError
from billhook.logs import LimitedLog
from billhook.memory import MemoryMonitor

logger = logging.getLogger("billhook.worker")
Process = subprocess.Popen[bytes]

_PR_SET_PDEATHSIG = 1
_TIME_BYTES = 8
_HEARTBEAT_SECONDS = 1.0
_MIN_SILENCE_SECONDS = 15.0
_LOCK_HOLDER_SECONDS = 5.0
"""How long a process that holds the write lock of an inbox in SQLite may be silent: none can write then."""
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


# --- the heartbeat ------------------------------------------------------------------------------------


class HeartbeatSender:
    """Tells systemd, a probe and a parent that this process is alive, and neither blocks nor raises."""

    def __init__(
        self, environ: MutableMapping[str, str], file: Path | None = None, descriptor: int | None = None
    ) -> None:
        """Read systemd's variables, and remove them: child processes must not answer for this one.

        `file` is created at the first beat, and then touched; one of an earlier process is removed. Raises
        ConfigError if it cannot be made. `descriptor` leads to the memory that a parent shares with this
        process.
        """
        address = environ.pop("NOTIFY_SOCKET", None)
        microseconds = environ.pop("WATCHDOG_USEC", "")
        watched_pid = environ.pop("WATCHDOG_PID", str(os.getpid()))
        self.interval_seconds = _HEARTBEAT_SECONDS
        if address and microseconds.isdigit() and watched_pid == str(os.getpid()):
            # A third of what it allows, as a busy machine may delay one.
            self.interval_seconds = min(_HEARTBEAT_SECONDS, int(microseconds) / 1e6 / 3)
            faulthandler.enable()  # systemd ends a hanging process with SIGABRT: the log shows where it hung
        # A leading @ stands for the NUL of Linux's abstract addresses.
        self._address = "\0" + address[1:] if address and address[0] == "@" else address
        self._file = file
        self.is_external = bool(address) or file is not None
        """Whether systemd or a probe, which have this process restarted, are told."""
        self._log = LimitedLog(logger, interval_seconds=60.0)
        self._next_at = 0.0
        self._memory = None if descriptor is None else _map_time(descriptor)
        try:
            if file is not None:
                _touch(file)
                file.unlink()
        except OSError as error:
            raise ConfigError(f"--health-file {file} cannot be written: {error.strerror}") from None

    def beat(self) -> None:
        """Tell that this process is alive, unless that was told just now; at first, that it has started."""
        now = time.monotonic()
        if now < self._next_at:
            return
        self._notify("WATCHDOG=1" if self._next_at else "READY=1\nWATCHDOG=1")
        self._next_at = now + self.interval_seconds * 0.9
        if self._memory is not None:
            self._memory[0] = now
        try:
            if self._file is not None:
                _touch(self._file)
        except OSError as error:
            text = f"the health file {self._file} cannot be touched, a probe will find it too old"
            self._log.log("file", logging.ERROR, f"{text}: {error.strerror}", cause=error)

    def stopping(self) -> None:
        """Tell that an orderly stop has begun. Callable from a signal handler."""
        self._notify("STOPPING=1")

    def close(self) -> None:
        """Remove the file: this process is about to end."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.unlink()

    def _notify(self, message: str) -> None:
        if not self._address:
            return
        # A socket for each message, at most one a second: a handler cannot close one that is not open.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(message.encode(), self._address)


def start_watchdog(
    heartbeat: HeartbeatSender,
    hang_seconds: float,
    is_stalled: Callable[[], bool],
    stop: Callable[[], object],
) -> None:
    """Start a thread that sends heartbeats, except while `is_stalled`; exit when no Python code can run.

    It calls `stop`, for a successor to take over, when there is no memory left again and again.

    A handler can hang while it holds the interpreter lock, for example in a regular expression: then no
    thread can time it out or renew a lease. After `hang_seconds` of that, or 5 s if that is longer, the
    process exits with a traceback of every thread. faulthandler's timer is written in C and needs no lock.
    While this process holds the write lock of an inbox in SQLite the limit is 5 s; a slow disk is no silence.
    """
    from billhook.inbox.sqlite.driver import HOLDING

    output = os.dup(2)  # not sys.stderr, which a handler may replace by what has no descriptor

    def renew() -> None:
        # Each call replaces the timer before: it fires only if no thread comes back in time.
        limit = _LOCK_HOLDER_SECONDS if HOLDING.now else max(_LOCK_HOLDER_SECONDS, hang_seconds)
        with suppress(Exception):  # no thread can be started now: the next call tries again
            if limit < math.inf:
                faulthandler.dump_traceback_later(limit, exit=True, file=output)
            else:
                faulthandler.cancel_dump_traceback_later()

    def watch() -> None:
        memory, stopped = MemoryMonitor(), False
        while True:
            renew()
            if not stopped and memory.is_exhausted():
                stopped = True
                logger.error("worker stopping: there is no memory left")
                stop()
            if not is_stalled():
                heartbeat.beat()
            time.sleep(heartbeat.interval_seconds)

    # While this process holds SQLite's write lock no other can write, and the receiver refuses everything.
    HOLDING.changed = renew
    start_thread(watch, "billhook-watch")


# --- children -----------------------------------------------------------------------------------------


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


def _touch(file: Path) -> None:
    """Set the time of a file that is made if need be. Raises OSError: a link in its place was planted."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o644)
    try:
        os.utime(descriptor)
    finally:
        os.close(descriptor)


def _map_time(descriptor: int) -> memoryview[float]:
    """Map the memory of a file, which stays when a handler closes every descriptor: a time, 0 at first."""
    return memoryview(mmap.mmap(descriptor, _TIME_BYTES)).cast("d")


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
    process: Process | None = field(default=None, init=False)
    has_old_code: bool = field(default=False, init=False)
    kill_at: float | None = field(default=None, init=False)
    """When its grace is over, if it was asked to end because of its old code."""
    since: float = field(default=0.0, init=False)
    again_at: float = field(default=0.0, init=False)
    ends: int = field(default=0, init=False)
    _pause: float = field(default=_FIRST_PAUSE_SECONDS, init=False)
    _memory: Sequence[float] = field(default=(0.0,), init=False)

    def begin(self, now: float) -> None:
        """Start the process, with memory of its own: an earlier process may still write to the other."""
        self.since, self.has_old_code, self.kill_at = now, False, None
        # A file without a name, in memory where the system can: a write must not wait for a disk.
        has_memory_files = sys.platform == "linux"
        with os.fdopen(os.memfd_create("heartbeat"), "r+b") if has_memory_files else TemporaryFile() as file:
            file.truncate(_TIME_BYTES)
            self._memory = _map_time(file.fileno())
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


# --- the parent ---------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Supervisor:
    """Keeps children running until a signal stops it, and stops them together. `log` gets each message.

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
    start_trial: Callable[[], Process] | None = None
    is_changed: Callable[[], bool] = lambda: False
    _trial: Process | None = field(default=None, init=False)
    _reload_asked: bool = field(default=False, init=False)
    _replace_at: float = field(default=0.0, init=False)
    _stopping: bool = field(default=False, init=False)
    _started: bool = field(default=False, init=False)
    _resumed_at: float = field(default=0.0, init=False)
    """When this process itself had not run for a while: before, the children may have beaten unheard."""
    # SIGHUP is sent by the user to reload, and by the kernel when the terminal closes. A terminal that was
    # there at the start and is not any more tells the second from the first.
    _terminal: bool = field(default_factory=lambda: has_terminal(), init=False)

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
        elif silent_seconds > _LOCK_HOLDER_SECONDS and self.lock_holder() == process.pid:
            longest = _LOCK_HOLDER_SECONDS
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
