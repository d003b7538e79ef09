"""The children of a parent that only watches over them: web servers, workers, and who starts them again."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType

from billhook.cli.processes import exit_code, stop_all

__all__ = ["Role", "Supervisor", "worker_roles"]

_LOOK_SECONDS = 0.1
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_STEADY_SECONDS = 60.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Role:
    """What one child is there for.

    `grace_seconds` is what it has between SIGTERM and SIGKILL. When a `vital` one ends, all end; any other
    is started again.
    """

    name: str
    start: Callable[[], Process]
    grace_seconds: float
    vital: bool = False


def worker_roles(processes: int, start: Callable[[], Process], grace_seconds: float) -> list[Role]:
    """So many workers. A little more than their own grace: they keep to it by themselves."""
    names = ["the worker"] if processes == 1 else [f"worker {number + 1}" for number in range(processes)]
    return [Role(name, start, grace_seconds + 5) for name in names]


class _Child:
    """A role, and the process that has it at present."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.process: Process | None = None
        self._since = 0.0
        self._again_at = 0.0
        self._pause = _FIRST_PAUSE_SECONDS

    def begin(self, now: float) -> None:
        """Start it, unless it is to wait a little first."""
        if now >= self._again_at:
            self.process = self.role.start()
            self._since = now

    def ended(self, now: float) -> str:
        """Note that it ended; when there will be another one, in words.

        Later each time, for one that cannot start must not spin; soon again after a steady one.
        """
        if now - self._since >= _STEADY_SECONDS:
            self._pause = _FIRST_PAUSE_SECONDS
        pause = self._pause
        self._pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        self._again_at = now + pause
        self.process = None
        return f"another one starts in {pause:g} s"


class Supervisor:
    """Keeps children until one is told to stop. A context manager, in the main thread."""

    def __init__(self, *stages: Sequence[Role], tell: Callable[[str], object]) -> None:
        """`stages` end one after another, the roles of one together. `tell` has what an operator reads."""
        self._stages = [[_Child(role) for role in stage] for stage in stages]
        self._children = [child for stage in self._stages for child in stage]
        self._tell = tell
        self._stopping = False
        self._impatient = False
        self._before: list[tuple[signal.Signals, object]] = []

    def __enter__(self) -> Supervisor:
        for number in _SIGNALS:
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup: a terminal that goes away is to end nothing
            self._before.append((number, signal.signal(number, self._on_signal)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_all(self._processes(), 0.0)  # whatever happened, nothing of ours stays behind
        for number, handler in self._before:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def run(self) -> int:
        """Until a signal (0), or until a vital child ends by itself (its exit code)."""
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
                elif child.process.poll() is not None:
                    code = exit_code(child.process)
                    told = f"{child.role.name} ended with exit code {code}"
                    if child.role.vital:
                        self._tell(told)
                        return code
                    self._tell(f"{told}; {child.ended(now)}")
            time.sleep(_LOOK_SECONDS)
        return 0

    def _processes(self) -> list[Process]:
        return [child.process for child in self._children if child.process is not None]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # No lock and no Event here: the signal may come while this very thread holds it.
        if self._stopping:
            self._impatient = True
            for process in self._processes():
                process.kill()
        self._stopping = True
