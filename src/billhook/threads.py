"""Starting a thread where the system may have none to give, and blocking work where threads are greenlets."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from billhook.errors import OutOfResources

__all__ = ["run_blocking", "start_thread", "threads_are_greenlets"]

P = ParamSpec("P")
T = TypeVar("T")


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
        # Returned rather than raised: gevent prints what a function in its pool raises.
        try:
            return function(*arguments, **more), None
        except BaseException as error:  # noqa: BLE001 - raised again in the greenlet that called
            return None, error

    outcome: tuple[T, None] | tuple[None, BaseException] = get_hub().threadpool.apply(call)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
