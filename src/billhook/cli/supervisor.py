"""The children of a parent that only watches over them: web servers, workers, and who starts them again."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType, TracebackType

from billhook.cli.heartbeats import Heartbeats
from billhook.cli.processes import exit_code, stop_all

__all__ = ["Role", "Supervisor", "has_terminal", "worker_roles"]

_LOOK_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_LONGEST_PAUSE_OF_UP_SECONDS = 1.0
"""After one that had come up: what ended it is a handler, and the next one can work."""
_STEADY_SECONDS = 60.0
_APART_SECONDS = 2.0
"""Between the start of a new worker and the end of the next old one: there is always one that is up."""
_KILLED_SECONDS = 5.0
"""That SIGKILL is given; in uninterruptible I/O a process does not even end by that."""
_ENDING = (signal.SIGTERM, signal.SIGINT)
_IGNORED = (signal.SIGUSR1, signal.SIGUSR2)  # harmless to gunicorn; by default they would end us

Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Role:
    """What one child is there for.

    `grace_seconds` is what it has between SIGTERM and SIGKILL. Whatever ends is started again, but when a
    `vital` one ends in order, or cannot start at all, all end. `reload` is what it is sent to load new code;
    None: it is replaced. One with `heartbeats` that hangs is killed.
    """

    name: str
    start: Callable[[], Process]
    grace_seconds: float
    vital: bool = False
    reload: signal.Signals | None = None
    heartbeats: Heartbeats | None = None


def worker_roles(
    processes: int, start: Callable[[int], Process], grace_seconds: float, lease_seconds: float
) -> list[Role]:
    """So many workers. A little more than their own grace: they keep to it by themselves.

    `start` is given the descriptor of a pipe that the worker writes its heartbeats into.
    """
    names = ["the worker"] if processes == 1 else [f"worker {number + 1}" for number in range(processes)]
    return [_worker_role(name, start, grace_seconds, lease_seconds) for name in names]


def _worker_role(
    name: str, start: Callable[[int], Process], grace_seconds: float, lease_seconds: float
) -> Role:
    heartbeats = Heartbeats(lease_seconds)
    return Role(name, partial(heartbeats.start, start), grace_seconds + 5, heartbeats=heartbeats)


class _Child:
    """A role, and the process that has it at present."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.process: Process | None = None
        self.since = 0.0
        self._starts = 0
        self._again_at = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self._killed_at: float | None = None

    def begin(self, now: float) -> None:
        """Start it, unless it is to wait a little first."""
        if now >= self._again_at:
            self.process = self.role.start()
            self.since = now
            self._starts += 1
            self._killed_at = None

    def kill_if_silent(self, now: float) -> bool:
        """Kill it if it hangs; return whether that was done now."""
        heartbeats = self.role.heartbeats
        if self.process is None or heartbeats is None or self._killed_at is not None:
            return False
        if not heartbeats.hangs(now):
            return False
        self.process.kill()
        self._killed_at = now
        return True

    def outlives_its_kill(self, now: float) -> bool:
        """Return whether it is there still, long after it was killed because it hung."""
        return self._killed_at is not None and now - self._killed_at > _KILLED_SECONDS

    def ends_all(self, now: float) -> bool:
        """Whether its end is the end of all: somebody asked for it, or it never came up."""
        if self.process is None or not self.role.vital:
            return False
        code = self.process.returncode
        return code == 0 or (code > 0 and self._starts == 1 and now - self.since < _STEADY_SECONDS)

    def replaced(self) -> None:
        """It ended because it was asked to make room: the next one begins at once."""
        self.process = None
        self._again_at = 0.0

    def ended(self, now: float) -> str:
        """Note that it ended; when there will be another one, in words.

        Later each time, for one that cannot start must not spin; soon again after one that had come up, or
        was steady.
        """
        if now - self.since >= _STEADY_SECONDS:
            self._pause = _FIRST_PAUSE_SECONDS
        came_up = self.role.heartbeats is not None and self.role.heartbeats.came_up
        longest = _LONGEST_PAUSE_OF_UP_SECONDS if came_up else _LONGEST_PAUSE_SECONDS
        pause = min(self._pause, longest)
        self._pause = min(pause * 2, longest)
        self._again_at = now + pause
        self.process = None
        return f"another one starts in {pause:g} s"


class _Reloading:
    """Has new code loaded: tried in a process that does nothing else, then by one child after another."""

    def __init__(
        self, trial: Callable[[], Process], children: Sequence[_Child], tell: Callable[[str], object]
    ) -> None:
        self.asked = False
        self.trial: Process | None = None
        self._start_trial = trial
        self._children = children
        self._tell = tell
        self._outdated: list[_Child] = []
        self._leaving: _Child | None = None
        self._kill_at = 0.0
        self._not_before = 0.0

    def replaces(self, child: _Child) -> bool:
        """Whether this one, which has just ended, was asked to make room."""
        if child is not self._leaving:
            return False
        self._leaving = None
        self._not_before = time.monotonic() + _APART_SECONDS
        return True

    def go_on(self, now: float) -> None:
        """The next step, if there is one to take: nothing here waits."""
        if self.asked and self.trial is None:
            self.asked = False
            self.trial = self._start_trial()
        if self.trial is not None and self.trial.poll() is not None:
            code, self.trial = exit_code(self.trial), None
            if code == 0:
                self._begin()
            else:
                self._tell("nothing is reloaded: what is new cannot be loaded, and what runs goes on")
        if self._leaving is not None and now > self._kill_at and self._leaving.process is not None:
            self._leaving.process.kill()
        elif self._leaving is None and self._outdated and now >= self._not_before:
            self._ask_to_leave(self._outdated.pop(0), now)

    def _begin(self) -> None:
        self._tell("reloading")
        for child in self._children:
            if child.role.reload is None:
                self._outdated = [*(one for one in self._outdated if one is not child), child]
            elif child.process is not None:
                child.process.send_signal(child.role.reload)

    def _ask_to_leave(self, child: _Child, now: float) -> None:
        if child.process is not None:  # else the next one that starts is new by itself
            self._leaving = child
            self._kill_at = now + child.role.grace_seconds
            child.process.send_signal(signal.SIGTERM)


class Supervisor:
    """Keeps children until one is told to stop. A context manager, in the main thread."""

    def __init__(
        self,
        *stages: Sequence[Role],
        tell: Callable[[str], object],
        trial: Callable[[], Process] | None = None,
    ) -> None:
        """`stages` end one after another, the roles of one together. `tell` has what an operator reads.

        With a `trial` SIGHUP reloads, if the process that it starts says by its exit code that new code can
        be loaded; without one SIGHUP ends all. So it does when the terminal that we were started in is gone.
        """
        self._stages = [[_Child(role) for role in stage] for stage in stages]
        self._children = [child for stage in self._stages for child in stage]
        self._tell = tell
        self._reloading = None if trial is None else _Reloading(trial, self._children, tell)
        self._terminal = has_terminal()
        self._stopping = False
        self._impatient = False
        self._unkillable: list[Process] = []
        self._before: list[tuple[signal.Signals, object]] = []

    def __enter__(self) -> Supervisor:
        handlers = dict.fromkeys(_ENDING, self._on_signal) | dict.fromkeys(_IGNORED, _nothing)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup: a hang-up is to end nothing
            handlers[signal.SIGHUP] = self._on_hangup
        for number, handler in handlers.items():
            self._before.append((number, signal.signal(number, handler)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_all(self._processes(), 0.0)  # whatever happened, nothing of ours stays behind
        for child in self._children:
            if child.role.heartbeats is not None:
                child.role.heartbeats.close()
        for number, handler in self._before:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def run(self) -> int:
        """Until a signal (0), or until a vital child ends for good (its exit code)."""
        code = self._keep()
        for stage in self._stages:
            grace_seconds = 0.0 if self._impatient else max(child.role.grace_seconds for child in stage)
            stop_all([child.process for child in stage if child.process is not None], grace_seconds)
        return code

    def _keep(self) -> int:
        while not self._stopping:
            now = time.monotonic()
            for child in self._children:
                if child.process is None:
                    child.begin(now)
                elif child.process.poll() is None:
                    self._see_that_it_runs(child, child.process, now)
                elif (code := self._replace(child, child.process, now)) is not None:
                    return code
            if self._reloading is not None:
                self._reloading.go_on(now)
            self._unkillable = [process for process in self._unkillable if process.poll() is None]
            time.sleep(_LOOK_SECONDS)
        return 0

    def _see_that_it_runs(self, child: _Child, process: Process, now: float) -> None:
        """Kill one that hangs; if not even that ends it, another begins beside it: leases keep them apart."""
        if child.kill_if_silent(now):
            self._tell(f"{child.role.name} is stopped or hangs: it is killed")
        elif child.outlives_its_kill(now):
            self._tell(f"{child.role.name} does not even end by SIGKILL; another one starts beside it")
            self._unkillable.append(process)
            if self._reloading is not None:
                self._reloading.replaces(child)
            child.replaced()

    def _replace(self, child: _Child, process: Process, now: float) -> int | None:
        """Note that it has ended; return the exit code of all of us if that ends all."""
        if self._reloading is not None and self._reloading.replaces(child):
            child.replaced()
            return None
        code = exit_code(process)
        told = f"{child.role.name} ended with exit code {code}"
        if child.ends_all(now):
            self._tell(told)
            return code
        self._tell(f"{told}; {child.ended(now)}")
        return None

    def _processes(self) -> list[Process]:
        trial = self._reloading.trial if self._reloading is not None else None
        return [one for one in (trial, *(child.process for child in self._children)) if one is not None]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # No lock and no Event here: the signal may come while this very thread holds it.
        if self._stopping:
            self._impatient = True
            for process in self._processes():
                process.kill()
        self._stopping = True

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        if self._reloading is None or (self._terminal and not has_terminal()):
            self._on_signal(number, frame)
        else:
            self._reloading.asked = True


def has_terminal() -> bool:
    """Whether this process still has the terminal that it was started in."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _nothing(number: int, frame: FrameType | None) -> None:
    """Ignore a signal; SIG_IGN would be handed down to the children."""
