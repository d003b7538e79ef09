"""Event types of the user's own, of which a release knows some: the processes of a history take turns.

A class that is registered is known to the whole interpreter. Before a process does anything, `know` registers
the classes of its release, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from pydantic import field_validator

from billhook.events import EVENT_TYPES, Event
from billhook.events.base import _registered

OWN = ("Acme0", "Acme1")
"""Those that have a class in some release; `Acme2` has none."""
_act: list[Callable[[], None]] = []


class Acme(Event, register=False):
    """A body with one field, whose check does what the step of a history says."""

    a: int

    @field_validator("a")
    @classmethod
    def check(cls, value: int) -> int:
        for act in _act:
            act()
        return value


_CLASSES = {name: type(f"Model{name}", (Acme,), {"__module__": __name__}, type=name) for name in OWN}
for _name in OWN:
    del _registered[_name]


def know(names: Collection[str]) -> None:
    """Register the classes of these types only."""
    for name, model in _CLASSES.items():
        if name in names:
            _registered[name] = model
        else:
            _registered.pop(name, None)


def class_of(name: str) -> type[Event]:
    """Return the class of a type, of the service or the user."""
    return _CLASSES.get(name) or EVENT_TYPES[name]


@contextmanager
def classes_that(act: Callable[[], None]) -> Iterator[None]:
    """Let the classes of own types do this when they read a body."""
    _act.append(act)
    try:
        yield
    finally:
        _act.clear()
