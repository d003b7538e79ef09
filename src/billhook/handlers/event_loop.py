"""Run async handlers: one event loop for each thread that calls them, and cancellation at their time-out."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from billhook.basics.concurrency import reset_in_child, threads_are_greenlets

if TYPE_CHECKING:
    import asyncio

CANCEL_SECONDS = 1.0
"""How long a cancelled handler may take to clean up before it counts as hanging."""


class EventLoops:
    """The event loop of each thread: made for its first async handler, and closed as the thread ends.

    Objects that a handler opens on it, such as a client with its connections, are still usable at the next
    attempt.
    """

    def __init__(self) -> None:
        self._local = threading.local()
        self._open: set[asyncio.Runner] = set()
        self._greenlets = threading.Lock()
        reset_in_child(self._reset)
        atexit.register(self.close)  # close the loop of the main thread while asyncio still works

    def _reset(self) -> None:
        # `_open` stays: a loop that is closed, or collected, in the child unregisters its descriptors with
        # the kernel, which it shares with the parent's loop.
        self._local = threading.local()
        self._greenlets = threading.Lock()

    def run(self, coroutine: Coroutine[Any, Any, object], timeout_seconds: float | None) -> object:
        """Run a coroutine to its end in this thread, and return its result.

        It is cancelled when its time is over: raises TimeoutError then, or what it raises itself.
        """
        import asyncio  # imported here, because it takes a twelfth of the time of `import billhook`

        limited = _limit(coroutine, timeout_seconds)
        if threads_are_greenlets():
            # Greenlets share a thread, in which asyncio runs one loop at a time, so each coroutine gets its
            # own loop.
            with self._greenlets:
                return copy_context().run(asyncio.run, limited)
        if asyncio._get_running_loop() is not None:  # an async test that delivers to the engine `inline`
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(1, "billhook-handler") as executor:
                return executor.submit(copy_context().run, asyncio.run, limited).result()
        return self._run_here(limited)

    def _run_here(self, coroutine: Coroutine[Any, Any, object]) -> object:
        import asyncio

        end = getattr(self._local, "end", None)
        if end is None:
            end = self._local.end = _ThreadEnd(asyncio.Runner(), self._open)
        ended = False

        async def whole() -> object:
            nonlocal ended
            try:
                return await coroutine
            finally:
                ended = True

        try:
            # Run it in the context of the caller, which includes the app's context.
            return end.runner.run(whole(), context=copy_context())
        except BaseException as error:
            # A signal handler may have raised in the middle of the loop, as Celery's soft time limit does:
            # the coroutine must not go on in another attempt. SystemExit and its kin stop the loop as well.
            if not ended or not isinstance(error, Exception):
                self.close()
            raise

    def close(self) -> None:
        """Close the event loop of this thread, if it has one."""
        end = getattr(self._local, "end", None)
        if end is not None:
            self._local.end = None
            end.close()


class _ThreadEnd:
    """Closes the event loop of a thread when the thread's local data are dropped."""

    def __init__(self, runner: asyncio.Runner, open_runners: set[asyncio.Runner]) -> None:
        self.runner = runner
        self._open = open_runners
        self._pid = os.getpid()
        open_runners.add(runner)

    def close(self) -> None:
        """Close the loop, unless this is a forked child, which drops the data of all other threads."""
        if self.runner in self._open and os.getpid() == self._pid:
            self._open.remove(self.runner)
            self.runner.close()

    __del__ = close


async def _limit(coroutine: Coroutine[Any, Any, object], seconds: float | None) -> object:
    import asyncio

    if seconds is None:
        return await coroutine
    try:
        async with asyncio.timeout(seconds) as limit:
            return await coroutine
    except TimeoutError as error:
        if not limit.expired():
            raise
        text = f"the handler did not return within {seconds:g} s, and was cancelled"
        # Keep the frames of the cancellation, which show where the handler waited, and not the three
        # exceptions that asyncio makes of it.
        cancelled = error.__cause__ or error.__context__
        frames = None if cancelled is None else cancelled.__traceback__
        raise TimeoutError(text).with_traceback(frames and frames.tb_next) from None


EVENT_LOOPS = EventLoops()
