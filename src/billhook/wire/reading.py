"""From decoded JSON to a model, with a refusal that repeats nothing of what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from billhook.errors import BillhookError
from billhook.wire.shape import Shape

__all__ = ["Refusal", "as_object", "in_words", "read"]

S = TypeVar("S", bound=Shape)

_WORDS = {
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "list_type": "Input should be an array",
}
"""In JSON's terms, where pydantic has Python's."""

Refusal = Callable[[str, list[dict[str, Any]]], BillhookError]
"""Makes the error of a text and details: `loc` (in the wire's spelling), `msg` and `type` of each mistake."""


def as_object(data: object, refusal: Refusal) -> dict[str, Any]:
    """`data` if it is an object, else the refusal."""
    if not isinstance(data, dict):
        raise refusal("the body is JSON, but not an object", [])
    return data


def read(model: type[S], data: dict[str, Any], refusal: Refusal) -> S:
    """`data`, as strict_json decodes it, as a `model`; else the refusal."""
    try:
        # The wire has one spelling: a snake_case twin of a field is just another extra field.
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False, include_context=False)
    details = [
        {"loc": each["loc"], "msg": _WORDS.get(each["type"], each["msg"]), "type": each["type"]}
        for each in found
    ]
    wrong = ", ".join(".".join(map(str, each["loc"])) for each in found)
    raise refusal(f"the body is not a valid {model.__name__}, because of {wrong}", details)


def in_words(mistakes: Iterable[Mapping[str, Any]]) -> str:
    """Pydantic's list of mistakes, or the details of a refusal, as `limit: Input should be a number; …`."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in mistakes
    )
