"""Threads and forks: start a thread although a limit may forbid it; reset objects in a child process.

A thread that ends by an error is logged, and told to those who count that. Where threads are greenlets,
blocking work runs in a native one, if it can. A child process inherits no locked lock and uses no connection
of its parent: an object that holds locks, threads or connections registers a method with `reset_in_child`. It
runs in each child before anything else does, so no other code has to compare process ids.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NoReturn, ParamSpec, TypeVar
from weakref import WeakMethod

from billhook.basics.printable import first_line
from billhook.errors import OutOfResources

logger = logging.getLogger("billhook.threads")

P = ParamSpec("P")
T = TypeVar("T")
Step = Callable[[], None]
Crash = Callable[[str, Exception], None]
_forking = threading.Lock()
"""Held during a fork and during a registration: one fork at a time, with the lists below complete."""
_steps: list[tuple[Step, Step, Step]] = []
_resets: list[WeakMethod[Step]] = []
_observers: list[WeakMethod[Crash]] = []


def unique_process_name() -> str:
    """Return a name for what this process owns: host, process id, and a random part, for ids are reused."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


def start_thread(
    target: Callable[P, object], name: str, *arguments: P.args, **more: P.kwargs
) -> threading.Thread:
    """Start a daemon thread. Raises OutOfResources where a limit of the system, or memory, forbids it.

    What needs it mostly starts it again, so an error that ends it is logged, and told to observers.
    """

    def run() -> None:
        try:
            target(*arguments, **more)
        except Exception as error:
            text = "the thread %s has crashed: %s: %s"
            cause = type(error).__name__
            # The traceback is printed by threading.excepthook, or by what the user has put there.
            logger.error(text, name, cause, first_line(str(error)), extra={"cause": cause})  # noqa: TRY400
            tell_of_crash(name, error)
            raise

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise OutOfResources(
            f"the thread {name} cannot be started: {error or type(error).__name__}"
        ) from None
    return thread


def tell_of_crash(name: str, error: Exception) -> None:
    """Tell the observers that a thread was ended by an error."""
    for observe in [reference() for reference in _observers]:
        if observe is not None:
            observe(name, error)


def end_forked_child(what: str, code: int) -> NoReturn:
    """End a child process that `what` of a user's forked, as soon as it leaves that.

    Such a child has copies of this process's sockets, locks and claims, and only one of its threads: it would
    settle a run that its parent settles too, and keep a port open while it lives.
    """
    with suppress(OSError):  # not by logging: a thread that does not exist here may hold its lock
        os.write(2, f"billhook: a child that {what} forked returned from it, and was ended\n".encode())
    # Not sys.exit: the child would unwind into this process's worker loop, and go on as a worker.
    os._exit(code)


def observe_crashes(observe: Crash) -> None:
    """Call this bound method with the name and the error of a thread that crashes, while its object lives.

    It is called in that thread, and must not raise.
    """
    with _forking:
        _observers[:] = [reference for reference in _observers if reference() is not None]
        _observers.append(WeakMethod(observe))


def is_shortage(error: BaseException) -> bool:
    """Return whether memory is missing, or a thread that a pool of threads could not start."""
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)


def threads_are_greenlets() -> bool:
    """Return whether the threads of this process are gevent's or eventlet's, as in gunicorn's workers."""
    patcher = sys.modules.get("eventlet.patcher")
    return _are_gevents() or (patcher is not None and bool(patcher.is_monkey_patched("thread")))


def _are_gevents() -> bool:
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def run_blocking(function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Call a function that waits for the disk; in a native thread where threads are gevent's greenlets.

    gevent cannot switch to another greenlet while C code waits: every request of the process would wait too.
    Nor can eventlet, but its locks do not hold between native threads: there they wait some milliseconds.
    """
    if not _are_gevents():
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


def wait_readable(descriptors: Iterable[int], seconds: float) -> set[int]:
    """Wait until one of the descriptors is readable, or the time is over; return those that are."""
    if not hasattr(select, "poll"):  # eventlet has removed it, and its own select() takes any descriptor
        return set(select.select(list(descriptors), (), (), seconds)[0])
    poll = select.poll()  # Python's select() refuses descriptors from 1,024 on
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(seconds * 1000)}


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
