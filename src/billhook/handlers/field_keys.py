"""Keys made of event fields: the order key of a run, what says how new it is, and the digest of duplicates.

Equal values give equal keys in any spelling: 10.0 and 10.00, or one time in two zones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime
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


def newest_key(value: object) -> str:
    """Return a text that sorts as a date, a number or a text does; empty for a value that is missing.

    In hexadecimal, which every collation of a database sorts alike. Of values of two kinds the order says
    nothing. Raises TypeError for any other kind of value.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, datetime):
        text = "d" + in_utc(value).isoformat(timespec="microseconds")
    elif isinstance(value, date):
        text = f"d{value.isoformat()}"
    elif isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        number = Decimal(str(value))
        text = f"n{_sortable(number)}" if number.is_finite() else ""
    elif isinstance(value, str):
        text = f"t{value}"
    elif value is None:
        text = ""
    else:
        kind = type(value).__name__
        raise TypeError(f"newest_by is a {kind}: a date, a number or a text says what is newer")
    return text.encode("utf-8", "surrogatepass")[: LONGEST + 1].hex()


def _sortable(number: Decimal) -> str:
    """Return a finite number as a text: sign, power of ten and digits; those of a negative one reversed."""
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")
    if not digits:
        return "1"
    # The power of the first digit; a Decimal has at most 10**18.
    power = f"{number.adjusted() + _MOST_POWER:020d}"
    if number > 0:
        return f"2{power}{digits}"
    # The further from 0, the smaller: with the end mark -1.2 sorts above -1.23.
    return "0" + (power + digits).translate(_REVERSED) + "~"


_MOST_POWER = 10**19
_REVERSED = str.maketrans("0123456789", "9876543210")


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
