"""Fields that the specification does not list are marked as the sandbox's own in its description."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from billhook.resources import RESOURCES, Resource
from billhook.sandbox.sandbox import GROUPS

SANDBOX_MARK = "The sandbox's own: the specification does not list it."
GIVEN = {
    f"{operation.method} {operation.path}": operation.gives
    for group in GROUPS
    for operation in group.operations
    if operation.gives is not None and not operation.path.startswith("/_sandbox")
}


def parts(annotation: Any) -> Iterator[type[Resource]]:
    """The objects in a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, Resource):
        yield annotation
    for inner in get_args(annotation):
        yield from parts(inner)


def added(model: type[Resource]) -> Iterator[tuple[str, str]]:
    """Name and description of each field that no object of the specification has, down to the last part."""
    known = {name for base in model.__mro__ if base in RESOURCES.values() for name in base.model_fields}
    for name, field in model.model_fields.items():
        if known and name not in known:
            yield str(field.alias), field.description or ""
        for part in parts(field.annotation):
            yield from added(part)


def test_nonstandard_response_fields_are_marked() -> None:
    unmarked = {
        operation: [name for name, told in added(model) if SANDBOX_MARK not in told]
        for operation, model in GIVEN.items()
    }

    assert {operation: names for operation, names in unmarked.items() if names} == {}


def test_control_there_are_nonstandard_fields() -> None:
    assert {name for name, _ in added(GIVEN["GET /invoices"])} >= {
        "invoiceNumber", "currency", "issuedAt", "approvedAt", "productId", "productName", "units",
    }  # fmt: skip
    assert {name for name, _ in added(GIVEN["GET /credits"])} == {"creditPoolId", "creditProductId"}
