"""Parse decoded JSON into a model, with errors that repeat nothing of the input; check header values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from billhook.errors import BillhookError
from billhook.wire.model import WireModel

__all__ = ["HEADER_RULE", "ErrorFactory", "describe_details", "fits_header", "read", "require_object"]


S = TypeVar("S", bound=WireModel)

_WORDS = {
    "dict_type": "Input should be an object",
    "model_type": "Input should be an object",
    "list_type": "Input should be an array",
}
"""In JSON's terms, where pydantic has Python's."""

ErrorFactory = Callable[[str, list[dict[str, Any]]], BillhookError]
"""Makes the error of a text and details: `loc` (in the wire's spelling), `msg` and `type` of each mistake."""


def require_object(data: object, refusal: ErrorFactory) -> dict[str, Any]:
    """`data` if it is an object, else the refusal."""
    if not isinstance(data, dict):
        raise refusal("the body is JSON, but not an object", [])
    return data


def read(model: type[S], data: dict[str, Any], refusal: ErrorFactory) -> S:
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


def describe_details(mistakes: Iterable[Mapping[str, Any]]) -> str:
    """Pydantic's list of mistakes, or the details of a refusal, as `limit: Input should be a number; …`."""
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in mistakes
    )


HEADER_RULE = "must be printable ASCII without spaces, and not empty"


def fits_header(value: str) -> bool:
    """Is HEADER_RULE kept? Anything else an HTTP library refuses, and repeats in its error."""
    return re.fullmatch(r"[!-~]+", value) is not None
