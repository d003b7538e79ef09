"""The supervisor: a parent process that restarts its children and has them load new code."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType, TracebackType

from billhook.cli.liveness import HeartbeatMonitor
from billhook.cli.processes import exit_code, stop_all

__all__ = ["Role", "Supervisor", "has_terminal", "worker_roles"]

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
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_UNFORESEEN = 255
"""How gunicorn exits after an error in its own loop, such as a fork for which the system had no task left."""
_IGNORED = (signal.SIGUSR1, signal.SIGUSR2)  # gunicorn handles them; their default would end this process

Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Role:
    """What a child runs, and how it is stopped, reloaded and watched.

    `grace_seconds` is the time between SIGTERM and SIGKILL. A child that exits is restarted, except that a
    `vital` one which exits with 0, or cannot start at all, ends all. `reload` is the signal that makes the
    child load new code; without one it is replaced. A child with `heartbeats` that hangs is killed, sooner if
    `lock_holder` returns its process id: then it keeps all others from writing.
    """

    name: str
    start: Callable[[], Process]
    grace_seconds: float
    vital: bool = False
    reload: signal.Signals | None = None
    heartbeats: HeartbeatMonitor | None = None
    lock_holder: Callable[[], int | None] = lambda: None


def worker_roles(
    processes: int,
    start: Callable[[int], Process],
    grace_seconds: float,
    lease_seconds: float,
    lock_holder: Callable[[], int | None] = lambda: None,
) -> list[Role]:
    """Return the roles of `processes` workers. `start` gets the pipe's descriptor for the heartbeats."""
    names = ["the worker"] if processes == 1 else [f"worker {number + 1}" for number in range(processes)]
    return [_worker_role(name, start, grace_seconds, lease_seconds, lock_holder) for name in names]


def _worker_role(
    name: str,
    start: Callable[[int], Process],
    grace_seconds: float,
    lease_seconds: float,
    lock_holder: Callable[[], int | None],
) -> Role:
    heartbeats = HeartbeatMonitor(lease_seconds)
    # A worker keeps to its grace period by itself, so this one is longer.
    return Role(
        name,
        partial(heartbeats.start, start),
        grace_seconds + 5,
        heartbeats=heartbeats,
        lock_holder=lock_holder,
    )


class _Child:
    """A role and the process that runs it now."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.process: Process | None = None
        self.since = 0.0
        self._starts = 0
        self._again_at = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._killed_at: float | None = None

    def begin(self, now: float) -> None:
        """Start the process, unless it has to wait first."""
        if now >= self._again_at:
            self.since = now
            self.process = self.role.start()
            self._starts += 1
            self._killed_at = None

    def kill_if_silent(self, now: float) -> bool:
        """Kill a process that hangs; return whether it was killed now."""
        heartbeats = self.role.heartbeats
        if self.process is None or heartbeats is None or self._killed_at is not None:
            return False
        if not heartbeats.is_hung(now, self._holds_lock):
            return False
        self.process.kill()
        self._killed_at = now
        return True

    def _holds_lock(self) -> bool:
        return self.process is not None and self.role.lock_holder() == self.process.pid

    def outlives_its_kill(self, now: float) -> bool:
        """Return whether a killed process still exists after the time-out."""
        return self._killed_at is not None and now - self._killed_at > _KILL_TIMEOUT_SECONDS

    def ends_all(self, now: float) -> bool:
        """Return whether its exit ends all: it was asked to stop, or it never started."""
        if self.process is None or not self.role.vital:
            return False
        # gunicorn exits with 0 only when it was asked to. With an error at its very first start, it was
        # configured wrongly, and would fail again; a signal (a negative code) is an accident.
        code = self.process.returncode
        early = self._starts == 1 and now - self.since < _STEADY_SECONDS
        return code == 0 or (code > 0 and code != _UNFORESEEN and early)

    def replaced(self) -> None:
        """Note that it exited to be replaced: the next one starts immediately."""
        self.process = None
        self._again_at = 0.0

    def ended(self, now: float) -> str:
        """Note that it exited; return in words when it is restarted.

        The pause doubles, so that a child which cannot start does not spin; it is short after a child that
        had started or ran for a while.
        """
        if now - self.since >= _STEADY_SECONDS:
            self._pause = _FIRST_PAUSE_SECONDS
        has_started = self.role.heartbeats is not None and self.role.heartbeats.has_started
        longest = _LONGEST_PAUSE_AFTER_START_SECONDS if has_started else _LONGEST_PAUSE_SECONDS
        pause = min(self._pause, longest)
        self._pause = min(pause * 2, longest)
        self._again_at = now + pause
        self.process = None
        return f"restarting in {pause:g} s"


class _Reloader:
    """Reloads the code: first a trial process, which only loads it, then the children one by one."""

    def __init__(
        self, trial: Callable[[], Process], children: Sequence[_Child], log: Callable[[str], object]
    ) -> None:
        self.asked = False
        self.trial: Process | None = None
        self._start_trial = trial
        self._children = children
        self._log = log
        self._outdated: list[_Child] = []
        self._leaving: _Child | None = None
        self._kill_at = 0.0
        self._not_before = 0.0

    def replaces(self, child: _Child) -> bool:
        """Return whether this child, which has just exited, was asked to be replaced."""
        if child is not self._leaving:
            return False
        self._leaving = None
        self._not_before = time.monotonic() + _RELOAD_INTERVAL_SECONDS
        return True

    def go_on(self, now: float) -> None:
        """Take the next step, if one is due, without waiting."""
        if self.asked and self.trial is None:
            self.asked = False
            try:
                self.trial = self._start_trial()
            except OSError as error:  # no task or no memory left, for a moment perhaps
                self._log(f"reload failed: {error.strerror}; the running processes continue")
        if self.trial is not None and self.trial.poll() is not None:
            code, self.trial = exit_code(self.trial), None
            if code == 0:
                self._begin()
            else:
                self._log("reload failed: the new code cannot be loaded; the running processes continue")
        # One child at a time, so that the others handle deliveries meanwhile.
        if self._leaving is not None and now > self._kill_at and self._leaving.process is not None:
            self._leaving.process.kill()
        elif self._leaving is None and self._outdated and now >= self._not_before:
            self._ask_to_leave(self._outdated.pop(0), now)

    def _begin(self) -> None:
        self._log("reloading")
        for child in self._children:
            if child.role.reload is None:
                # To the end of the list, once: a second reload during the first restarts the round for it.
                self._outdated = [*(one for one in self._outdated if one is not child), child]
            elif child.process is not None:
                child.process.send_signal(child.role.reload)

    def _ask_to_leave(self, child: _Child, now: float) -> None:
        if child.process is not None:  # otherwise the next process to start has the new code anyway
            self._leaving = child
            self._kill_at = now + child.role.grace_seconds
            child.process.send_signal(signal.SIGTERM)


class Supervisor:
    """Keeps the children running until a signal stops it. A context manager, in the main thread."""

    def __init__(
        self,
        roles: Sequence[Role],
        *,
        log: Callable[[str], object],
        trial: Callable[[], Process] | None = None,
        beat: Callable[[], object] = lambda: None,
        on_stop: Callable[[], object] = lambda: None,
    ) -> None:
        """Keep the children of `roles` running, and stop them together. `log` gets each message.

        `beat` is called some times a second until the stop, and `on_stop` then.

        With a `trial`, SIGHUP reloads if the process that it starts exits with 0: the new code can be loaded.
        Without one SIGHUP stops all, as it does when the terminal that started this process is gone.
        """
        self._children = [_Child(role) for role in roles]
        self._log = log
        self._beat = beat
        self._on_stop = on_stop
        self._reloader = None if trial is None else _Reloader(trial, self._children, log)
        # SIGHUP is sent by the user to reload, and by the kernel when the terminal closes. A terminal that
        # was there at the start and is not any more tells the second from the first.
        self._terminal = has_terminal()
        self._stopping = False
        self._impatient = False
        self._unkillable: list[Process] = []
        self._before: list[tuple[signal.Signals, object]] = []

    def __enter__(self) -> Supervisor:
        handlers = dict.fromkeys(_STOP_SIGNALS, self._on_signal) | dict.fromkeys(_IGNORED, _nothing)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: a hang-up must stop nothing
            handlers[signal.SIGHUP] = self._on_hangup
        for number, handler in handlers.items():
            self._before.append((number, signal.signal(number, handler)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also after an exception: no child may be left behind.
        stop_all(self._processes(), 0.0)
        for child in self._children:
            if child.role.heartbeats is not None:
                child.role.heartbeats.close()
        for number, handler in self._before:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def run(self) -> int:
        """Run until a signal (0) or until a vital child exits for good; return the exit code."""
        code = self._watch()
        self._on_stop()
        # All at once: one after another they would take twice as long while the database hangs. What the web
        # server still accepts is handled after the next start.
        running = [child for child in self._children if child.process is not None]
        longest = max((child.role.grace_seconds for child in running), default=0.0)
        stop_all([child.process for child in running if child.process], 0.0 if self._impatient else longest)
        return code

    def _watch(self) -> int:
        # Polling, not SIGCHLD: a signal handler may do little, and pipes and deadlines need a look anyway.
        while not self._stopping:
            now = time.monotonic()
            for child in self._children:
                if child.process is None:
                    self._begin(child, now)
                elif child.process.poll() is None:
                    self._check_heartbeat(child, child.process, now)
                elif (code := self._replace(child, child.process, now)) is not None:
                    return code
            if self._reloader is not None:
                self._reloader.go_on(now)
            # poll() reaps those that have ended after all.
            self._unkillable = [process for process in self._unkillable if process.poll() is None]
            self._beat()
            time.sleep(_POLL_SECONDS)
        return 0

    def _begin(self, child: _Child, now: float) -> None:
        try:
            child.begin(now)
        except OSError as error:  # no task or no memory left, for a moment perhaps
            if not any(one.process for one in self._children):
                raise  # nothing runs that could be kept
            self._log(f"{child.role.name} cannot be started: {error.strerror}; {child.ended(now)}")

    def _check_heartbeat(self, child: _Child, process: Process, now: float) -> None:
        """Kill a child that hangs; if it survives, start another beside it: leases keep their runs apart."""
        if child.kill_if_silent(now):
            self._log(f"{child.role.name} sends no heartbeats (stopped or hanging): killing it")
        elif child.outlives_its_kill(now):
            self._log(f"{child.role.name} does not exit after SIGKILL: starting another one beside it")
            self._unkillable.append(process)
            if self._reloader is not None:
                self._reloader.replaces(child)
            child.replaced()

    def _replace(self, child: _Child, process: Process, now: float) -> int | None:
        """Note that a child exited; return the exit code of the supervisor if that ends all."""
        if self._reloader is not None and self._reloader.replaces(child):
            child.replaced()
            return None
        code = exit_code(process)
        text = f"{child.role.name} exited with code {code}"
        if child.ends_all(now):
            self._log(text)
            return code
        self._log(f"{text}; {child.ended(now)}")
        return None

    def _processes(self) -> list[Process]:
        trial = self._reloader.trial if self._reloader is not None else None
        return [one for one in (trial, *(child.process for child in self._children)) if one is not None]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # No lock and no Event here: the signal may arrive while this thread holds it. A second signal, of a
        # user who does not want to wait, kills; the first only ends `_watch`.
        if self._stopping:
            self._impatient = True
            for process in self._processes():
                process.kill()
        self._stopping = True

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        if self._reloader is None or (self._terminal and not has_terminal()):
            self._on_signal(number, frame)
        else:
            self._reloader.asked = True


def has_terminal() -> bool:
    """Return whether this process still has the terminal that it was started in."""
    # isatty(0) would say nothing: stdin may be a file. O_NOCTTY: opening it must not make it our terminal.
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _nothing(number: int, frame: FrameType | None) -> None:
    """Ignore a signal. SIG_IGN would be inherited by the children."""
