"""Keys made of event fields: the order key of a run, and the digest that recognises duplicates.

Equal values give equal keys in any spelling: 10.0 and 10.00, or one time in two zones.
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

from billhook.fields.strict_json import in_utc

LONGEST = 200
"""The most characters of an order key; a longer key is stored as its hash."""


def order_key(source: str, value: object) -> str | None:
    """Return the order key for a field's value in a delivery of `source`; None orders nothing."""
    if value is None:
        return None
    # Include the source: two senders may use the same customer ids for different customers.
    text = _text([source, value])
    return text if len(text) <= LONGEST else f"sha256:{_sha256(text)}"


def content_digest(source: str, event: BaseModel, fields: Iterable[str]) -> str:
    """Return the SHA-256, in hex, of the values of these fields of an event; None counts as a value."""
    # Include the type: two types can have the same fields and values and mean different things.
    return _sha256(_text([source, type(event).__name__, {name: getattr(event, name) for name in fields}]))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _text(value: object) -> str:
    """Return a value as ASCII JSON, which every database accepts; different values give different text."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> object:
    """Return a value as JSON types; one that JSON lacks becomes an object of its kind and its text."""
    if isinstance(value, Enum):
        value = value.value
    # bool before int, of which it is a subclass: true is not 1.
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float | Decimal):
        # Use an object, so that the number 1 and the text "1" differ, and str(), because Decimal(0.1) has 55
        # digits.
        return {"number": _number(Decimal(str(value)))}
    if isinstance(value, datetime):
        return {"moment": in_utc(value).isoformat()}
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Mapping):
        return {"fields": {str(name): _plain(each) for name, each in value.items()}}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted(map(_text, value))}  # a set has no order of its own
    return {type(value).__name__: str(value)}


def _number(number: Decimal) -> str:
    """Return the one spelling of a number: digits without trailing zeros, and the power of ten."""
    # Do not use Decimal.normalize(): it rounds to the context's precision, so two numbers could become equal.
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return str(number)  # NaN or infinity, possible in a user's own event type
    text = "".join(map(str, digits)).lstrip("0")
    short = text.rstrip("0")
    return f"{'-' if sign else ''}{short}e{exponent + len(text) - len(short)}" if short else "0"
