"""Strict JSON, both ways: bytes to plain values and back, with every number kept digit for digit.

Python's own decoder accepts more than RFC 8259 calls interoperable: of two equal keys it takes the last
value, and it accepts half a surrogate pair and `NaN`. Two programs could then read one body differently, so
`loads` refuses all of that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import NoReturn

from billhook.errors import InvalidJSON

MAX_DEPTH = 64
"""The most levels of nested arrays and objects, including the outermost."""

MAX_DIGITS = 640
"""The most digits of a number, and its largest power of ten in both directions.

The longest text that int() converts under any `sys.set_int_max_str_digits`; no amount comes near it,
while `int(Decimal("1e999999999"))` in a handler would take all memory.
"""

_ESCAPED = re.compile(rb"\\.", re.DOTALL)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_WORDS = {None: "null", True: "true", False: "false"}


def loads(body: bytes) -> object:
    """Decode `body`: dict, list, str, int, Decimal, bool or None.

    Raises InvalidJSON, and nothing else for any bytes: not UTF-8 (a byte order mark counts as
    such), not JSON, a key given twice in an object, over 64 levels, half a surrogate pair, NaN or an
    infinity, a number beyond 640 digits. The text of the error never repeats the body.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJSON(f"the body is not UTF-8 (byte {error.start})") from None
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(body)
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJSON(not_json(text, error.pos)) from None
    if _SURROGATE_ESCAPE.search(text):
        _check_surrogates(value)
    return value


def not_json(text: str, at: int) -> str:
    """Return the message for a body that is not JSON from position `at` on."""
    if text.startswith("\ufeff"):
        return "the body is not JSON: it begins with a byte order mark, which is invisible"
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"the body is not JSON (line {line}, column {column})"


def dumps(value: object) -> bytes:
    """Encode `value` as compact UTF-8 JSON: a Decimal as a number, a datetime in UTC with a `Z`.

    Raises TypeError for what has no JSON form, ValueError for NaN, an infinity or half a surrogate pair.
    """
    return _encode(value).encode("utf-8")


def is_bounded(number: Decimal) -> bool:
    """Return whether the finite `number` is within MAX_DIGITS, in length and in magnitude."""
    return abs(number.adjusted()) <= MAX_DIGITS and len(number.as_tuple().digits) <= MAX_DIGITS


def in_utc(moment: datetime) -> datetime:
    """Return `moment` in UTC; a naive one is read as UTC. Raises OverflowError outside years 1 to 9999."""
    return moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment.astimezone(UTC)


def datetime_text(moment: datetime) -> str:
    """Return `moment` as it is written: ISO 8601, in UTC, with a `Z`."""
    return f"{in_utc(moment).isoformat().removesuffix('+00:00')}Z"


def _check_depth(body: bytes) -> None:
    """Refuse more than MAX_DEPTH levels before the decoder, which is recursive, sees them."""
    if _unmatched(body):
        raise InvalidJSON(f"the body is nested deeper than {MAX_DEPTH} levels, or has an unmatched bracket")


def _unmatched(body: bytes) -> bytes:
    """Return the brackets that remain when the MAX_DEPTH innermost levels of pairs are taken away."""
    # Without escapes each second part between quotes is a string, whose brackets do not count.
    outside_strings = b"".join(_ESCAPED.sub(b"", body).split(b'"')[::2])
    brackets = outside_strings.translate(_SQUARE, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # removes the innermost level everywhere
    return brackets


def _check_surrogates(value: object) -> None:
    """Refuse half a surrogate pair: it was escaped, so the UTF-8 decoder could not see it."""
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidJSON("a string in the body holds half a surrogate pair") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidJSON("an object in the body has the same key twice")
    return found


def _integer(token: str) -> int:
    if len(token.lstrip("-")) > MAX_DIGITS:
        raise InvalidJSON(f"a number in the body has more than {MAX_DIGITS} digits")
    return int(token)


def _fraction(token: str) -> Decimal:
    if len(token) <= 32 and "e" not in token and "E" not in token:
        return Decimal(token)  # short and without an exponent, so it is within the limits
    try:
        number = Decimal(token)
    except InvalidOperation:
        number = Decimal("NaN")  # the result for an app that does not trap InvalidOperation
    if not (number.is_finite() and is_bounded(number)):
        raise InvalidJSON(f"a number in the body has more than {MAX_DIGITS} digits")
    return number


def _constant(_: str) -> NoReturn:
    raise InvalidJSON("the body holds NaN or an infinity, which JSON does not have")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_fraction, parse_constant=_constant
)


def _encode(value: object) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError("NaN and the infinities have no JSON form")
        return str(value)
    if isinstance(value, int | float):
        return json.dumps(value, allow_nan=False)
    if isinstance(value, datetime):
        return f'"{datetime_text(value)}"'
    if isinstance(value, Mapping):
        return (
            "{" + ",".join(f"{encode_basestring(key)}:{_encode(each)}" for key, each in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_encode, value)) + "]"
    raise TypeError(f"a {type(value).__name__} has no JSON form")
