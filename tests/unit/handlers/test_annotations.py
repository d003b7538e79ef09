"""A handler that declares other arguments than it gets is refused at its decorator, as by type checkers."""

from __future__ import annotations

import ast
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Optional, Protocol, TypeVar, Union

import pytest

from billhook import Delivery, Handlers
from billhook.errors import HandlerSignature
from billhook.events import CustomerCreated, Event, InvoiceApproved, PaymentFailed, UnknownEvent, WireModel

if TYPE_CHECKING:
    from billhook.events import PingTest

WRONG = Path(__file__).parents[2] / "typing" / "wrong.py"
SOME_FIT = ("one_of_", "two_of_", "three_of_", "four_of_", "without_the_unknown")
"""What handlers of wrong.py begin with that take some of their events."""
T = TypeVar("T")


def refused(event_types, function):
    handlers = Handlers()
    with pytest.raises(HandlerSignature) as caught:
        handlers.on(*event_types, name="h")(function)
    assert handlers.freeze() == []
    return str(caught.value)


def another(event: CustomerCreated) -> None: ...


def as_a_dict(event: dict) -> None: ...


def the_other_way_round(delivery: Delivery, event: InvoiceApproved) -> None: ...


def with_an_option(event: InvoiceApproved, times: int = 3) -> None: ...


class Methods:
    def another(self, event: CustomerCreated) -> None: ...

    def __call__(self, event: CustomerCreated) -> None: ...


def test_a_handler_of_another_event_is_refused_with_both_names():
    assert refused([InvoiceApproved], another) == (
        "handler 'h' has the signature (event: CustomerCreated): it is called with InvoiceApproved there; "
        "declare that, or register it for the event that it takes"
    )
    told = "it is called with InvoiceApproved or PaymentFailed there"
    assert told in refused([InvoiceApproved, PaymentFailed], another)
    for function in (Methods().another, Methods(), partial(another), as_a_dict):
        assert "it is called with InvoiceApproved there" in refused([InvoiceApproved], function)


def test_a_second_parameter_that_is_no_delivery_is_refused():
    told = "(delivery: Delivery): it is called with InvoiceApproved there"
    assert told in refused([InvoiceApproved], the_other_way_round)
    assert refused([InvoiceApproved], with_an_option) == (
        "handler 'h' has the signature (times: int): it is called with Delivery there; declare that, or put "
        "an option of your own behind a *"
    )


def test_what_type_checkers_refuse_at_a_decorator_is_refused_at_run_time_unless_some_of_its_events_fit():
    module = ast.parse(WRONG.read_text())
    functions = [
        each
        for each in module.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(ast.unparse(one).startswith("handlers.on") for one in each.decorator_list)
        and "# WRONG" in WRONG.read_text().splitlines()[each.decorator_list[0].lineno - 1]
    ]
    names: dict[str, Any] = {}
    imports = [each for each in module.body if isinstance(each, ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), "wrong.py", "exec"), names)
    for function in functions:
        names["handlers"] = Handlers()
        code = compile(ast.Module([function], []), "wrong.py", "exec", flags=annotations.compiler_flag)
        if function.name.startswith(SOME_FIT):
            exec(code, names)
        else:
            with pytest.raises(HandlerSignature):
                exec(code, names)
    assert len(functions) >= 15


def test_a_name_for_type_checkers_only_needs_no_import_from_the_future():
    # Since Python 3.14 annotations are read late; before, such a function needs the import.
    flags = 0 if sys.version_info >= (3, 14) else annotations.compiler_flag
    names = {"InvoiceApproved": InvoiceApproved, "CustomerCreated": CustomerCreated}
    for name in ("InvoiceApproved", "CustomerCreated"):
        text = f"def {name}_handler(event: {name}, delivery: ForCheckers) -> ForCheckers: ..."
        exec(compile(text, "shop.py", "exec", flags=flags, dont_inherit=True), names)

    Handlers().on(InvoiceApproved)(names["InvoiceApproved_handler"])
    assert "called with InvoiceApproved there" in refused([InvoiceApproved], names["CustomerCreated_handler"])


class Named(Protocol):
    invoice_id: str


class Box(Generic[T]): ...


def test_what_fits_or_cannot_be_known_is_accepted():  # noqa: C901 - it only defines functions
    def one(event: InvoiceApproved): ...
    def base(event: Event, delivery: Delivery | None = None): ...
    def wire(event: WireModel, /, *rest: int): ...
    def union(event: Union[InvoiceApproved, PaymentFailed], delivery: Optional[Delivery] = None): ...  # noqa: UP007, UP045
    def noted(event: Annotated[InvoiceApproved, "note"]): ...
    def anything(event: Any, delivery: object): ...
    def generic(event: T): ...
    def boxed(event: Box[int]): ...
    def protocol(event: Named): ...
    def for_checkers(event: PingTest, delivery: NowhereDefined): ...  # noqa: F821
    def by_keyword(event: InvoiceApproved, *, times: int = 3): ...

    given = [one, base, wire, union, noted, anything, generic, boxed, protocol, for_checkers, by_keyword]
    for function in given:
        Handlers().on(InvoiceApproved)(function)


def test_handlers_of_unknown_types_take_unknown_events_and_those_of_any_type_either():
    def event(event: Event): ...
    def unknown(event: UnknownEvent): ...
    def both(event: Event | UnknownEvent): ...

    for function in (event, unknown, both):
        Handlers().on_any()(function)
    Handlers().on_unknown()(both)
    Handlers().on_unknown()(unknown)
    with pytest.raises(HandlerSignature, match="it is called with UnknownEvent there"):
        Handlers().on_unknown()(event)
    with pytest.raises(HandlerSignature, match="it is called with Event or UnknownEvent there"):
        Handlers().on_any()(as_a_dict)
