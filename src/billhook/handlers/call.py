"""Call a handler once. Anything it raises is returned as a failure and never ends the process."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from billhook import failpoints
from billhook.errors import Discard, Retry
from billhook.events import Event, UnknownEvent
from billhook.handlers.delivery import Delivery
from billhook.handlers.event_loop import EVENT_LOOPS
from billhook.handlers.grouping import FailureGroup, group_of
from billhook.handlers.handler import Handler

ERROR_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000


@dataclass(frozen=True, slots=True)
class HandlerFailure:
    """A failed attempt: the exception, its text and its traceback, both cut to a size worth storing.

    `group` is what it has in common with other failures of the same bug; None for Retry and Discard,
    which are decisions.
    """

    exception: BaseException
    error: str
    traceback: str
    group: FailureGroup | None = None

    @classmethod
    def from_exception(cls, exception: BaseException) -> HandlerFailure:
        """Describe an exception; if its text cannot be made, its traceback stays."""
        name = type(exception).__name__
        try:
            text = f"{name}: {exception}"
        except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
            text = f"{name}: <exception str() failed>"  # as in a traceback
        try:
            trace = "".join(traceback.format_exception(exception))
        except BaseException:  # noqa: BLE001 - what it reads of an exception may raise too
            trace = "".join(traceback.format_tb(exception.__traceback__)) + text
        # Keep the start of a text and the end of a traceback, where the raising line is.
        error, stored = _storable(text[:ERROR_LIMIT]), _storable(trace[-TRACEBACK_LIMIT:])
        decided = isinstance(exception, Retry | Discard)
        return cls(exception, error, stored, None if decided else group_of(exception, error))


def call(
    handler: Handler,
    sender: object,
    context: Callable[[], AbstractContextManager[object]],
    event: Event | UnknownEvent,
    delivery: Delivery,
) -> HandlerFailure | None:
    """Call a handler inside the app's context; return None on success.

    SystemExit and similar exceptions are failures too: they would end the worker, and gunicorn's master.
    """
    if failpoints.ARMED:  # tests kill the process here, and below
        failpoints.reach("before_call")
    pid, failure = os.getpid(), None
    try:
        # Stay within the context until the end, because a coroutine runs in it too.
        with context():
            try:
                result = handler(sender, event=event, delivery=delivery)
                if inspect.iscoroutine(result):
                    EVENT_LOOPS.run(result, handler.timeout_seconds)
                elif inspect.isgenerator(result) or inspect.isasyncgen(result):
                    # A decorator can hide a generator from the check at registration. Counted as a success,
                    # it would be a handler that never does anything, without any error.
                    error = TypeError("the handler returned a generator, of which nothing has run")
                    failure = HandlerFailure.from_exception(error)
            except BaseException:
                if os.getpid() != pid:
                    _end_forked_child(code=1)
                raise
            if os.getpid() != pid:
                _end_forked_child(code=0)
    except BaseException as exception:  # noqa: BLE001 - see above
        return HandlerFailure.from_exception(exception)
    if failpoints.ARMED:
        failpoints.reach("after_call")
    return failure


def _end_forked_child(code: int) -> None:
    """End a child process that the handler forked, as soon as it leaves the handler.

    Such a child has copies of this process's sockets, locks and claims, and only one of its threads: it would
    settle a run that its parent settles too, and keep a port open while it lives.
    """
    with suppress(OSError):  # not by logging: a thread that does not exist here may hold its lock
        os.write(2, b"billhook: a child that a handler forked returned from it, and was ended\n")
    # Not sys.exit: the child would unwind into this process's worker loop, and go on as a worker.
    os._exit(code)


def _storable(text: str) -> str:
    """Return text that every database accepts: no lone surrogates, no NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
