"""Helpers for tests of handlers and of apps with handlers; in pytest they are also fixtures.

An app under test has an inbox of its own, a clock that stands still, and no engine: `deliver` signs an
event and posts it through the app's own receiver, and `settle` runs the handlers.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, overload

from billhook.events import Event, UnknownEvent
from billhook.handlers import Delivery
from billhook.testing import apps, sandbox
from billhook.testing.apps import *  # noqa: F403 - each module lists its own in __all__
from billhook.testing.apps import Answer, DeadRun, E
from billhook.testing.sandbox import *  # noqa: F403

_TYPES = ("Dead", "Deliver", "Handled", "PauseHandler", "Paused", "Refused", "ResumeHandler", "Settle")
__all__ = sorted([*_TYPES, *apps.__all__, *sandbox.__all__])

# The types of the fixtures: these functions, without the argument `app`.
Deliver: TypeAlias = Callable[..., Answer]
Settle: TypeAlias = Callable[..., int]
Dead: TypeAlias = Callable[[], list[DeadRun]]
Refused: TypeAlias = Callable[[], list[str]]
PauseHandler: TypeAlias = Callable[..., None]
ResumeHandler: TypeAlias = Callable[..., None]
Paused: TypeAlias = Callable[[], dict[str, str | None]]


class Handled(Protocol):
    """The fixture `handled`: the events of a function are of the type that it takes."""

    @overload
    def __call__(self, handler: Callable[[E], Any]) -> list[E]: ...
    @overload
    def __call__(self, handler: Callable[[E, Delivery], Any]) -> list[E]: ...
    @overload
    def __call__(self, handler: Callable[..., Any] | str) -> list[Event | UnknownEvent]: ...
