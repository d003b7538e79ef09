"""Threads and forks: start a thread although a limit may forbid it; reset objects in a child process.

A thread that ends by an error is logged, and told to those who count that. Where threads are greenlets,
blocking work runs in a native one, if it can. A child process inherits no locked lock and uses no connection
of its parent: an object that holds locks, threads or connections registers a method with `reset_in_child`. It
runs in each child before anything else does, so no other code has to compare process ids.

A thread of a pool calls one handler after another. What one of them sets of context variables, such as the
tenant of a log line, must not be there in the next; what the app has set while it was imported must be, as in
the main thread. So each attempt runs in a copy of what the app has set, dropped with what the attempt sets.
"""

from __future__ import annotations

import decimal
import logging
import os
import secrets
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context, copy_context
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
_most_resets = 64
"""At this number of them the next registration drops those of objects that have ended."""
_observers: list[WeakMethod[Crash]] = []
_OF_THE_MOMENT = frozenset({"flask.app_ctx", "flask.request_ctx", "current_context"})
"""Variables of the call in progress, which are not copied: Flask's contexts, OpenTelemetry's current span."""


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


def _settings(context: decimal.Context) -> tuple[object, ...]:
    numbers = context.prec, context.Emin, context.Emax, context.capitals, context.clamp
    return *numbers, context.rounding, context.traps


_SHIPPED = _settings(decimal.DefaultContext)


def startup_context() -> Context:
    """Copy the context variables that the app has set so far. Call it in the thread that imported the app."""
    context = Context()
    for variable, value in copy_context().items():
        # One that only computing has made hides `decimal.DefaultContext`, which an app sets for its threads.
        made = isinstance(value, decimal.Context) and _settings(value) == _SHIPPED
        if variable.name not in _OF_THE_MOMENT and not made:
            context.run(variable.set, value)
    return context


def run_in_copy(context: Context, function: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Call a function in a copy of a context, which is dropped afterwards."""
    own = context.copy()
    for variable, value in own.items():
        # The one variable of the library whose value is changed in place: a handler's `getcontext().prec = 6`
        # would reach all copies. Without a value each copy makes its own.
        if isinstance(value, decimal.Context):
            own.run(variable.set, value.copy())
    return own.run(function, *arguments, **more)


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
    global _most_resets
    with _forking:
        if len(_resets) >= _most_resets:
            _resets[:] = [reference for reference in _resets if reference() is not None]
            # Not at every registration: that of the thousandth object would look at all the others once more.
            _most_resets = 2 * len(_resets) + 64
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
