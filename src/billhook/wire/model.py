"""WireModel, the base of events and resources: snake_case here, camelCase in JSON; and sample instances."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

__all__ = ["WireModel", "sample"]


class WireModel(BaseModel):
    """An object as the service writes it, or a part of one.

    Immutable; snake_case here and camelCase on the wire, and either when constructing. Fields that the
    specification does not list are kept, and readable in `model_extra`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
    )


S = TypeVar("S", bound=WireModel)

_BY_TYPE: dict[object, object] = {
    bool: True,
    Decimal: Decimal("12.50"),
    datetime: datetime(2026, 1, 15, 9, 30, tzinfo=UTC),
}


def sample(cls: type[S], **changes: Any) -> S:
    """A valid `cls`, the same at every call, with every field given; `changes` replace or add fields.

    >>> from billhook.events import InvoiceApproved
    >>> sample(InvoiceApproved, invoice_id="inv_1").invoice_id
    'inv_1'

    A field shows the first of its `examples`, and is left out if they are `[]`; without any it needs to be a
    str, bool, Decimal, datetime or Shape, a list of one, or optional. Changes are validated as in `cls(...)`:
    pydantic's ValidationError.
    """
    values = {
        name: _value(name, field)
        for name, field in cls.model_fields.items()
        if field.alias not in changes and field.examples != []
    }
    return cls.model_validate(values | changes)


def _value(name: str, field: FieldInfo) -> object:
    return field.examples[0] if field.examples else _of_type(name, field.annotation)


def _of_type(name: str, annotation: Any) -> object:
    inner = [part for part in get_args(annotation) if part is not NoneType]
    if inner:  # list[X], X | None, Annotated[X, ...]
        value = _of_type(name, inner[0])
        return [value] if get_origin(annotation) is list else value
    if issubclass(annotation, WireModel):
        return sample(annotation)
    return _BY_TYPE.get(annotation, f"{name}-1")
