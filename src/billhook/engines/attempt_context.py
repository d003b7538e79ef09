"""The context of an attempt: the context variables (`contextvars`) that a handler and its observers see.

A thread of the pool calls one handler after another. What one of them sets, such as the tenant of a log line,
must not be there in the next; what the app has set while it was imported must be, as in the main thread. So
each attempt runs in a copy of what the app has set, and the copy is dropped with what the attempt sets.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_OF_THE_MOMENT = frozenset({"flask.app_ctx", "flask.request_ctx", "current_context"})
"""Variables of the call in progress, which are not copied: Flask's contexts, OpenTelemetry's current span."""


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


def run_attempt(context: Context, attempt: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
    """Call a function in a copy of a context, which is dropped afterwards."""
    own = context.copy()
    for variable, value in own.items():
        # The one variable of the library whose value is changed in place: a handler's `getcontext().prec = 6`
        # would reach all copies. Without a value each copy makes its own.
        if isinstance(value, decimal.Context):
            own.run(variable.set, value.copy())
    return own.run(attempt, *arguments, **more)
