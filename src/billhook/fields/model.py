"""WireModel, the base of events and resources: snake_case here, camelCase in JSON; and sample instances.

It parses decoded JSON into a model, with errors that do not repeat the input.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import EnumType
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from billhook.errors import BillhookError
from billhook.fields import strict_json

_WORDS = {
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "list_type": "Input should be an array",
}
"""The terms of JSON, where pydantic has those of Python."""
ErrorFactory = Callable[[str, list[dict[str, Any]]], BillhookError]
"""Makes the error of a text and details: `loc` (in camelCase), `msg` and `type` of each mistake."""


def _show_examples_as_sent(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Put the examples of fields into the JSON schema as the wire has them; pydantic makes Decimals texts."""
    shown = schema.get("properties", {})
    for name, field in model.model_fields.items():
        for key in {name, field.alias} & shown.keys():
            if field.examples:
                # By json, not strict_json: numbers that the caller's own json.dumps can write.
                shown[key]["examples"] = json.loads(strict_json.dumps(field.examples))


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
        json_schema_extra=_show_examples_as_sent,
    )


def optional(description: str, *examples: Any, **more: Any) -> Any:
    """Describe a field that a body may lack, which is None then."""
    return Field(default=None, description=description, examples=list(examples) or None, **more)


def classes_of(package: str, names: Mapping[str, object]) -> list[str]:
    """Return which of `names` are classes that a module of `package` defines."""
    found = {name: each.__module__ for name, each in names.items() if isinstance(each, type)}
    return [name for name, module in found.items() if module.startswith(f"{package}.")]


S = TypeVar("S", bound=WireModel)

_BY_TYPE: dict[object, object] = {
    bool: True,
    int: 1,
    float: 12.5,
    dict: {},
    Decimal: Decimal("12.50"),
    datetime: datetime(2026, 1, 15, 9, 30, tzinfo=UTC),
}


def sample(cls: type[S], **changes: Any) -> S:
    """Return a valid `cls`, the same at every call, with every field given; `changes` replace or add fields.

    >>> from billhook.events import InvoiceApproved
    >>> sample(InvoiceApproved, invoice_id="inv_1").invoice_id
    'inv_1'

    A field shows the first of its `examples`, and is left out if they are `[]`; without any it needs to be a
    str, bool, number, datetime, Literal, enumeration, dict or model, a list of one, or optional. Changes are
    validated as in `cls(...)`: pydantic's ValidationError.
    """
    values = {
        name: field.examples[0] if field.examples else _of_type(name, field.annotation)
        for name, field in cls.model_fields.items()
        if field.alias not in changes and field.examples != []
    }
    return cls.model_validate(values | changes)


def _of_type(name: str, annotation: Any) -> object:
    origin = get_origin(annotation)
    inner = [part for part in get_args(annotation) if part is not NoneType]
    if origin in (dict, Literal):
        return {} if origin is dict else inner[0]
    if inner:  # list[X], X | None, Annotated[X, ...]
        value = _of_type(name, inner[0])
        return [value] if origin is list else value
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return sample(annotation)  # type: ignore[type-var] # any model does
    if isinstance(annotation, EnumType):
        return next(iter(annotation))
    return _BY_TYPE.get(annotation, f"{name}-1")


def require_object(data: object, refusal: ErrorFactory) -> dict[str, Any]:
    """Return `data` if it is an object; raises the refusal otherwise."""
    if not isinstance(data, dict):
        raise refusal("the body is JSON, but not an object", [])
    return data


def read(model: type[S], data: dict[str, Any], refusal: ErrorFactory) -> S:
    """Return `data`, as strict_json decodes it, as a `model`; raises the refusal otherwise."""
    try:
        # Only camelCase counts in JSON: the snake_case name of a field is just another extra field.
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
    details = [
        {"loc": each["loc"], "msg": _WORDS.get(each["type"], each["msg"]), "type": each["type"]}
        for each in found
    ]
    wrong = ", ".join(".".join(map(str, each["loc"])) for each in found)
    name = model.model_config.get("title", model.__name__)
    raise refusal(f"the body is not a valid {name}, because of {wrong}", details)


def describe_invalid(error: ValidationError) -> str:
    """Return the place and text of each mistake, without the input."""
    return describe_details(error.errors(include_input=False, include_url=False, include_context=False))


def describe_details(mistakes: Iterable[Mapping[str, Any]]) -> str:
    """Return pydantic's list of mistakes, or a refusal's details, as `limit: Input should be a number; …`."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in mistakes
    )
