"""Calling one subscriber once: whatever it raises is a result, never an accident of ours."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from billhook.dispatch.delivery import Delivery
from billhook.dispatch.subscribers import Subscriber
from billhook.events import Event, UnknownEvent
from billhook.failpoints import reach

__all__ = ["Failed", "call"]

ERROR_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt that did not succeed: the exception, and its texts cut to a size worth storing."""

    exception: BaseException
    error: str
    traceback: str

    @classmethod
    def by(cls, exception: BaseException) -> Failed:
        """Describe an exception; one whose own text cannot be made is named by its class."""
        name = type(exception).__name__
        try:
            text = f"{name}: {exception}"
            trace = "".join(traceback.format_exception(exception))
        except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
            text = trace = name
        return cls(exception, _storable(text[:ERROR_LIMIT]), _storable(trace[-TRACEBACK_LIMIT:]))


def call(
    subscriber: Subscriber,
    sender: object,
    context: Callable[[], AbstractContextManager[object]],
    event: Event | UnknownEvent,
    delivery: Delivery,
) -> Failed | None:
    """Call inside the app's context. None is success; SystemExit and its kin are failures like any other."""
    reach("before_call")
    try:
        with context():
            result = subscriber.receiver(sender, event=event, delivery=delivery)
            if inspect.iscoroutine(result):
                asyncio.run(result)
            elif inspect.isgenerator(result) or inspect.isasyncgen(result):
                return Failed.by(TypeError("the handler returned a generator, of which nothing has run"))
    except BaseException as exception:  # noqa: BLE001 - SystemExit would end the worker, and gunicorn's master
        return Failed.by(exception)
    reach("after_call")
    return None


def _storable(text: str) -> str:
    """Text that every database takes: no lone surrogates, no NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")
