"""Find what a body has and its model does not list: fields, and values of open enumerations.

Neither is an error: the service may add both at any time. Source: spec, "Events".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from pydantic import AfterValidator
from pydantic.alias_generators import to_snake
from pydantic.fields import FieldInfo

from billhook.wire import WireModel
from billhook.wire.fields import OpenEnum

__all__ = ["Unlisted", "unlisted"]


@dataclass(frozen=True, slots=True)
class Unlisted:
    """One field, or one value of an enumeration, that `model` does not list.

    `path` is its place in the body, in the wire's spelling, `[]` for the items of a list. `value` is as
    decoded. `change` is the line that a model would need.
    """

    kind: Literal["field", "value"]
    model: str
    path: str
    value: Any
    change: str


def unlisted(model: type[WireModel], data: Mapping[str, Any], path: str = "") -> Iterator[Unlisted]:
    """Yield what `data`, an object as strict_json decodes it, has beyond `model` and the models within it."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for name, value in data.items():
        place = f"{path}{name}"
        field = fields.get(name)
        if field is None:
            yield Unlisted("field", model.__name__, place, value, _field_line(name, value))
            continue
        listed = _open_enum(field)
        if listed is not None and isinstance(value, str) and value not in listed.listed:
            yield Unlisted("value", model.__name__, place, value, f"{value.upper()} = {value!r}")
        inner = _inner_model(field.annotation)
        if inner is not None:
            several = isinstance(value, list)
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Mapping):
                    yield from unlisted(inner, item, f"{place}[]." if several else f"{place}.")


def _field_line(name: str, value: Any) -> str:
    kinds: tuple[tuple[type[object], str], ...] = (
        (bool, "StrictBool"),
        (int, "ExactDecimal"),
        (Decimal, "ExactDecimal"),
        (str, "StrictStr"),
        (list, "ListOf[JsonValue]"),
        (dict, "JsonObject"),
    )
    kind = next((written for known, written in kinds if isinstance(value, known)), "JsonValue")
    return f"{to_snake(name)}: {kind} | None = None"


def _open_enum(field: FieldInfo) -> OpenEnum | None:
    for each in field.metadata:
        if isinstance(each, AfterValidator) and isinstance(each.func, OpenEnum):
            return each.func
    return None


def _inner_model(annotation: Any) -> type[WireModel] | None:
    """Return the model in an annotation such as `list[X]`, `X | None` or `Annotated[X, …]`."""
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner_model(part))), None)
