"""One handler: a user's function, the name its runs are stored under, and how to call it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from billhook.dispatch.delivery import Delivery
from billhook.dispatch.retry import RetrySchedule
from billhook.errors import HandlerSignature
from billhook.events import Event, UnknownEvent

__all__ = ["IDENTITY_WINDOW_SECONDS", "Handler", "default_name"]

IDENTITY_WINDOW_SECONDS = 86_400.0
"""How long a delivery is known again by its fields, unless a handler says otherwise."""


class Handler:
    """A decorated function as a blinker receiver: called as `handler(sender, event=…, delivery=…)`.

    `aliases` are names it had before: runs stored under them are still its own. `retry` overrides the
    app's schedule. `timeout_seconds` bounds one attempt; a thread cannot be stopped, so a handler past
    its time may still be running when it is tried again. `ordered_by` is the event's field by which runs
    take turns; `identity` are those by which a delivery of the last `identity_window_seconds` is known again.
    `sources` are the names of those whose deliveries it handles; of all when there are none.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        retry: RetrySchedule | None = None,
        timeout_seconds: float | None = None,
        ordered_by: str | None = None,
        identity: tuple[str, ...] = (),
        identity_window_seconds: float = IDENTITY_WINDOW_SECONDS,
        sources: tuple[str, ...] = (),
    ) -> None:
        self.name = name or default_name(function)
        self.aliases = aliases
        self.retry = retry
        self.timeout_seconds = timeout_seconds
        self.ordered_by = ordered_by
        self.identity = identity
        self.identity_window_seconds = identity_window_seconds
        self.sources = sources
        self._function = function
        self._takes_delivery = _takes_delivery(function, self.name)

    def __call__(self, sender: object, *, event: Event | UnknownEvent, delivery: Delivery) -> object:
        """What the function returns: a coroutine, if it is async, which dispatch.call awaits."""
        return self._function(event, delivery) if self._takes_delivery else self._function(event)

    def __repr__(self) -> str:
        return f"<Handler {self.name}>"


def default_name(function: Callable[..., Any]) -> str:
    """`module.qualname`; of an object, that of its class."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _takes_delivery(function: Callable[..., Any], name: str) -> bool:
    """True for (event, delivery), False for (event); anything else raises HandlerSignature."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerSignature(name, "of a generator, which does nothing when called")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise HandlerSignature(name, "that cannot be read") from None
    for takes_delivery in (True, False):
        try:
            signature.bind(*([None, None] if takes_delivery else [None]))
        except TypeError:
            continue
        return takes_delivery
    raise HandlerSignature(name, str(signature))
