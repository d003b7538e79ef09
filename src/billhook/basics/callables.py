"""What the user's functions are called and how they can be called; what another value is, in errors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import ModuleType, NoneType
from typing import Any

_UNREAD: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    from annotationlib import Format

    _UNREAD["annotation_format"] = Format.FORWARDREF


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature, as inspect does; annotations may have names for type checkers only.

    Raises TypeError or ValueError for some functions in C, and for what is no function.
    """
    return inspect.signature(function, **_UNREAD)


def function_name(function: Callable[..., Any]) -> str:
    """Return `module.qualname`, of the class if `function` is a callable object."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def describe_kind(value: object) -> str:
    """Return what a value is, without its content, which may be a secret."""
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {function_name(value)}"
    kinds = {str: "a text", NoneType: "None"}
    return kinds.get(type(value), f"an object of the class {type(value).__name__}")
