"""The texts by which a handler's deliveries are put in order, and by which one that came again is known.

Equal values give equal texts, however the service wrote them: 10.0 and 10.00, or one moment in two zones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel

from billhook.events.strict_json import in_utc

__all__ = ["LONGEST", "digest", "order_key"]

LONGEST = 200
"""Characters of an order key that is stored as it is; of a longer one the hash is."""


def order_key(source: str, value: object) -> str | None:
    """The order that a field's value puts a delivery of `source` in; None, which is no value, in none."""
    if value is None:
        return None
    text = _text([source, value])
    return text if len(text) <= LONGEST else f"sha256:{_sha256(text)}"


def digest(source: str, event: BaseModel, fields: Iterable[str]) -> str:
    """SHA-256, in hex, of what an event of `source` says in these fields; None counts as a value."""
    return _sha256(_text([source, type(event).__name__, {name: getattr(event, name) for name in fields}]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _text(value: object) -> str:
    """JSON in ASCII: text that every database takes, and no two different values have the same."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> object:
    """As JSON has it. What is no text, list or object there is an object of its kind and its text."""
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float | Decimal):
        return {"number": _number(Decimal(str(value)))}
    if isinstance(value, datetime):
        return {"moment": in_utc(value).isoformat()}
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {"fields": {str(name): _plain(each) for name, each in value.items()}}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted(map(_text, value))}  # in no order of its own
    return {type(value).__name__: str(value)}


def _number(number: Decimal) -> str:
    """A number's one spelling: digits without zeros at their end, and the power of ten."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return str(number)  # NaN or an infinity, in a user's own event
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    return f"{'-' if sign else ''}{short}e{exponent + len(text) - len(short)}" if short else "0"
