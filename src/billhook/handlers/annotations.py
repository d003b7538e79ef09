"""What a handler's annotations say: one that is declared for other arguments than it gets is refused.

A type checker says so too. Annotations that are known only there, or that name no class, are not judged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from billhook.basics.callables import signature_of
from billhook.errors import HandlerSignature
from billhook.handlers.handler import Delivery

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def check_annotations(function: Callable[..., Any], name: str, events: Iterable[type]) -> None:
    """Raise HandlerSignature if the function declares none of `events`, or no Delivery after it.

    For a function that can be called with (event) or (event, delivery). One that declares some of its events
    is left to type checkers: it works for those, and perhaps for the others.
    """
    parameters = signature_of(function).parameters.values()
    given = (tuple(events), (Delivery,))
    positional = (each for each in parameters if each.kind in _POSITIONAL)
    for parameter, classes in zip(positional, given, strict=False):
        accepted = list(_classes(_evaluated(parameter.annotation, function)))
        if accepted and not any(_is_accepted(gets, each) for gets in classes for each in accepted):
            remedy = "declare that, or register it for the event that it takes"
            if classes == (Delivery,):
                remedy = "declare that, or put an option of your own behind a *"
            called_with = " or ".join(gets.__name__ for gets in classes)
            annotation = parameter.annotation
            shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            declared = f"({parameter.name}: {shown})"
            raise HandlerSignature(name, declared, f"it is called with {called_with} there; {remedy}")


def _evaluated(annotation: Any, function: Callable[..., Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    while isinstance(function, partial):
        function = function.func
    called: Any = inspect.unwrap(function)
    if not hasattr(called, "__globals__"):  # an object
        called = type(called).__call__
    with suppress(Exception):  # a name for type checkers only, or of the function around this one
        return eval(annotation, getattr(called, "__globals__", {}))  # noqa: S307 - it is the user's own code
    return Any


def _classes(annotation: Any) -> Iterator[type]:
    """Yield the classes of which a value may be; none if any value may be meant."""
    origin = get_origin(annotation)
    if origin is Annotated:
        annotation = get_args(annotation)[0]
        origin = get_origin(annotation)
    members = get_args(annotation) if origin in (Union, UnionType) else (annotation,)
    known = [each for each in members if isinstance(each, type) and each is not Any]
    if len(known) == len(members) and annotation is not inspect.Parameter.empty:
        yield from known


def _is_accepted(gets: type, accepted: type) -> bool:
    try:
        return issubclass(gets, accepted)
    except TypeError:  # some protocols cannot be asked
        return True
