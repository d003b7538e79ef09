"""Two children and their parent: the web server, the worker, and who watches over them."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

from billhook.cli.processes import exit_code, stop

__all__ = ["Supervisor"]

_LOOK_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 30.0
_STEADY_SECONDS = 60.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Start = Callable[[], "subprocess.Popen[bytes]"]


class Supervisor:
    """Keeps a worker beside a web server until one is told to stop. A context manager, in the main thread."""

    def __init__(
        self,
        start_web: Start,
        start_worker: Start,
        *,
        web_grace_seconds: float,
        worker_grace_seconds: float,
        tell: Callable[[str], object],
    ) -> None:
        """`tell` is given what an operator should read."""
        self._start_web = start_web
        self._start_worker = start_worker
        self._web_grace_seconds = web_grace_seconds
        self._worker_grace_seconds = worker_grace_seconds
        self._tell = tell
        self._stopping = threading.Event()
        self._impatient = False
        self._pause = 0.5
        self._children: list[subprocess.Popen[bytes]] = []
        self._before: list[tuple[signal.Signals, object]] = []

    def __enter__(self) -> Supervisor:
        for number in _SIGNALS:
            self._before.append((number, signal.signal(number, self._on_signal)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._children:  # whatever happened, nothing of ours stays behind
            if child.poll() is None:
                child.kill()
                child.wait()
        for number, handler in self._before:
            signal.signal(number, handler)  # type: ignore[arg-type]

    def run(self) -> int:
        """Until a signal (0), or until the web server ends by itself (its exit code)."""
        web = self._begin(self._start_web)
        worker: subprocess.Popen[bytes] | None = self._begin(self._start_worker)
        worker_since = time.monotonic()
        again_at = 0.0
        while not self._stopping.wait(_LOOK_SECONDS):
            if web.poll() is not None:
                self._tell(f"the web server ended with exit code {exit_code(web)}")
                break
            now = time.monotonic()
            if worker is None and now >= again_at:
                worker, worker_since = self._begin(self._start_worker), now
            elif worker is not None and worker.poll() is not None:
                again_at = now + self._next_pause(exit_code(worker), now - worker_since)
                worker = None
        code = 0 if self._stopping.is_set() else exit_code(web)
        # The web server first: what it still accepts rings in a worker that is there to hear it.
        self._end(web, self._web_grace_seconds)
        if worker is not None:
            self._end(worker, self._worker_grace_seconds)
        return code

    def _begin(self, start: Start) -> subprocess.Popen[bytes]:
        self._children = [child for child in self._children if child.returncode is None]
        self._children.append(start())
        return self._children[-1]

    def _end(self, child: subprocess.Popen[bytes], grace_seconds: float) -> None:
        stop(child, 0.0 if self._impatient else grace_seconds)

    def _next_pause(self, code: int, lived_seconds: float) -> float:
        """Longer each time, for a worker that cannot start must not spin; short again after a steady one."""
        if lived_seconds >= _STEADY_SECONDS:
            self._pause = 0.5
        pause = self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        self._tell(f"the worker ended with exit code {code}; another one starts in {pause:g} s")
        return pause

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stopping.is_set():
            self._impatient = True
            for child in self._children:
                if child.returncode is None:
                    child.kill()
        self._stopping.set()
