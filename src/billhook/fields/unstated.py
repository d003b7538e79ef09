"""What a text may hold where the specification leaves the kind of a field unstated: a number, a flag, a list.

The table of events says "strings unless stated", and states no kind for some amounts, flags and lists. A
sender that keeps to the letter sends "500.00", one that takes amounts for numbers sends 500.00, and both are
read. `Annotated[ExactDecimal, NUMBER_IN_TEXT]` is a number, or a text that holds one.
Source: spec, "Events", the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from billhook.errors import InvalidJSON
from billhook.fields.strict_json import loads

_DECIMAL = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?"
_FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


@dataclass(frozen=True, slots=True)
class InText:
    """Marks a field that may also be a text, which `read` turns into a value of the field's own kind."""

    read: Callable[[str], object]
    pattern: str | None = None
    """What the text looks like, for the JSON schema."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        inner = handler(schema)
        pattern = {} if self.pattern is None else {"pattern": f"^{self.pattern}$"}
        return {**inner, "type": [inner["type"], "string"], **pattern}

    def _read(self, value: object) -> object:
        return self.read(value) if isinstance(value, str) else value


def _number(text: str) -> Decimal:
    # By a pattern first: Decimal also takes "NaN", "1_000", blanks around it and digits of other scripts.
    if not re.fullmatch(_DECIMAL, text):
        raise PydanticCustomError("number_text", "Input should be a number, or a text that holds one")
    return Decimal(text)


def _flag(text: str) -> bool:
    if text not in _FLAGS:
        raise PydanticCustomError("flag_text", "Input should be true or false, or a text that holds it")
    return _FLAGS[text]


def _list(text: str) -> object:
    try:
        found = loads(text.encode())
    except (InvalidJSON, UnicodeEncodeError):
        found = text
    # Other JSON is no list but the one item: "42" and "null" are names like any other.
    return found if isinstance(found, list) else [text] if text else []


NUMBER_IN_TEXT = InText(_number, _DECIMAL)
"""The text holds a decimal number, as in "500.00"; the field has its digits."""

FLAG_IN_TEXT = InText(_flag, f"({'|'.join(_FLAGS)})")
"""The text is true or false."""

LIST_IN_TEXT = InText(_list)
"""The text holds a JSON list, or else is the only item; an empty text is an empty list."""
