"""Threads, forks and memory: start a thread although a limit may forbid it; reset objects in a child process.

Where threads are greenlets, blocking work runs in a native one. A child process inherits no locked lock and
uses no connection of its parent: an object that holds locks, threads or connections registers a method with
`reset_in_child`. It runs in each child before anything else does, so no other code has to compare process
ids.
"""

from __future__ import annotations

import mmap
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

from billhook.errors import OutOfResources

P = ParamSpec("P")
T = TypeVar("T")
Step = Callable[[], None]
_forking = threading.Lock()
"""Held during a fork and during a registration: one fork at a time, with the lists below complete."""
_steps: list[tuple[Step, Step, Step]] = []
_resets: list[WeakMethod[Step]] = []


def unique_process_name() -> str:
    """Return a name for what this process owns: host, process id, and a random part, for ids are reused."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def start_thread(
    target: Callable[P, object], name: str, *arguments: P.args, **more: P.kwargs
) -> threading.Thread:
    """Start a daemon thread. Raises OutOfResources where a limit of the system, or memory, forbids it."""
    thread = threading.Thread(target=target, args=arguments, kwargs=more, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise OutOfResources(
            f"the thread {name} cannot be started: {error or type(error).__name__}"
        ) from None
    return thread


def is_shortage(error: BaseException) -> bool:
    """Return whether memory is missing, or a thread that a pool of threads could not start."""
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)


def threads_are_greenlets() -> bool:
    """Return whether gevent has replaced the threads of this process, as gunicorn's gevent worker does."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def run_blocking(function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Call a function that waits for the disk; in a native thread where threads are greenlets.

    gevent cannot switch to another greenlet while C code waits: every request of the process would wait too.
    """
    if not threads_are_greenlets():
        return function(*arguments, **more)
    from gevent import get_hub  # type: ignore[import-untyped]

    def call() -> tuple[T, None] | tuple[None, BaseException]:
        # Return it rather than raise it: gevent prints the exceptions of functions in its pool.
        try:
            return function(*arguments, **more), None
        except BaseException as error:  # noqa: BLE001 - raised again in the greenlet that called
            return None, error

    outcome: tuple[T, None] | tuple[None, BaseException] = get_hub().threadpool.apply(call)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def around_fork(before: Step, after_in_parent: Step, after_in_child: Step) -> None:
    """Call these around every fork, for the life of the process."""
    with _forking:
        _steps.append((before, after_in_parent, after_in_child))


def reset_in_child(reset: Step) -> None:
    """Call this bound method in every forked child, as long as its object lives.

    The method must replace every lock, thread and connection of its object. It must not close the parent's
    connections: closing a copy would end the session, or drop the file locks, that the parent still uses.
    """
    with _forking:
        _resets[:] = [reference for reference in _resets if reference() is not None]
        _resets.append(WeakMethod(reset))


def _before() -> None:
    _forking.acquire()
    for before, _, _ in _steps:
        before()


def _after_in_parent() -> None:
    for _, after, _ in _steps:
        after()
    _forking.release()


def _after_in_child() -> None:
    global _forking
    _forking = threading.Lock()  # not released: a server that forks in C did not call _before
    for _, _, after in _steps:
        after()
    for reset in [reference() for reference in _resets]:
        if reset is not None:
            reset()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)


_STACK_BYTES = 8 * 1024 * 1024
"""What a thread needs for its stack at most. Without it no further thread starts, and no large body fits."""
_FAILURE_LIMIT = 5


class MemoryMonitor:
    """Ask once in a while whether this process may still use as much memory as a thread needs."""

    def __init__(self) -> None:
        self._had_memory = False
        self._failures = 0

    def is_exhausted(self) -> bool:
        """Ask, and return whether memory was missing this time and the four times before.

        Never of a process that has not had as much since its start: its successor would have no more.
        """
        if _fits():
            self._had_memory, self._failures = True, 0
        elif self._had_memory:
            self._failures += 1
        return self._failures >= _FAILURE_LIMIT


def _fits() -> bool:
    try:
        mmap.mmap(-1, _STACK_BYTES).close()
    except (OSError, MemoryError):
        return False
    return True
