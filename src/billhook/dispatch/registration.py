"""The decorator that `Handlers.on` returns, and the functions that it takes.

`Registration[InvoiceApproved]` takes what can be called with an InvoiceApproved, and with a Delivery or
without. A type checker refuses any other function, and the decorated one keeps its own type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from billhook.dispatch.delivery import Delivery

__all__ = ["Registration", "TakesDelivery", "TakesEvent"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
E_co = TypeVar("E_co", covariant=True)
E_contra = TypeVar("E_contra", contravariant=True)


class TakesEvent(Protocol[E_contra, P, R_co]):
    """A function that can be called as `(event)`, and whose own parameters are P.

    A function is of this type if it fits both signatures. Python has no other way to write that it is
    `Callable[P, R]`, which says what its type is, and can also be called with the event.
    """

    @overload
    def __call__(self, event: E_contra, /) -> R_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class TakesDelivery(Protocol[E_contra, P, R_co]):
    """A function that can be called as `(event, delivery)`, and whose own parameters are P."""

    @overload
    def __call__(self, event: E_contra, delivery: Delivery, /) -> R_co: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Registration(Generic[E_co]):
    """A decorator that registers a handler of the event types `E_co`, and returns the function as it is."""

    def __init__(self, add: Callable[[Callable[..., Any]], None]) -> None:
        """`add` does the work; it raises for a function that can be no handler."""
        self._add = add

    @overload
    def __call__(self, function: TakesEvent[E_co, P, R], /) -> Callable[P, R]: ...
    @overload
    def __call__(self, function: TakesDelivery[E_co, P, R], /) -> Callable[P, R]: ...
    # mypy matches a function with positional-only parameters, `list.append` for one, with these alone.
    @overload
    def __call__(self, function: Callable[[E_co], R], /) -> Callable[[E_co], R]: ...
    @overload
    def __call__(self, function: Callable[[E_co, Delivery], R], /) -> Callable[[E_co, Delivery], R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Callable[..., Any]:
        """Register the function. Raises HandlerSignature, DuplicateHandlerName, LateRegistration."""
        self._add(function)
        return function
