"""Find out whether a body names a customer: by the fields that identify one, never by a part of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["names_customer", "search_parts"]

_OWN_FIELDS = frozenset({"id", "externalid", "alias", "aliases"})
"""Fields that identify the customer where the object is one. Source: spec, "Customer", "Events"."""


def search_parts(customer: str) -> list[bytes]:
    r"""Return byte strings of which every body that names this customer has one.

    A sender may escape any character of a JSON string: a body with a backslash is one to read. So is one
    with a zero byte, which is UTF-16.
    """
    return [customer.encode(), b"\\", b"\0"]


def names_customer(event_type: str, body: bytes, customer: str) -> bool | None:
    """Return whether a body names this customer; None if it is not JSON and has the id as a word somewhere.

    A field names a customer if the word is in its name (`customerId`, `customer_id`), or if it is the id, the
    external id or an alias of an object that is a customer: the value of a field `customer`, or the body of a
    type such as AnonymousCustomer. Its value, or one in its list, equals `customer`: 42 is not in 420.
    """
    try:
        # Numbers as their text: an id may be written without quotes. Objects as pairs: of two equal keys of a
        # quarantined body, both count.
        content = json.loads(
            body, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str
        )
    except (ValueError, RecursionError):
        word = rb"(?<![0-9A-Za-z_-])" + re.escape(customer.encode()) + rb"(?![0-9A-Za-z_-])"
        return None if re.search(word, body) else False
    return any(name == customer for name in _names(content, "customer" in event_type.casefold()))


class _Pairs(list[tuple[str, Any]]):
    """The names and values of a JSON object."""


def _names(content: object, is_customer: bool) -> Iterator[object]:
    """Yield the values that identify customers, wherever they are in the content."""
    waiting: list[tuple[object, bool]] = [(content, is_customer)]
    while waiting:
        value, is_customer = waiting.pop()
        if isinstance(value, _Pairs):
            for name, each in value:
                plain = name.replace("_", "").replace("-", "").casefold()
                own = "customer" in plain or (is_customer and plain in _OWN_FIELDS)
                yield from _values(each) if own else ()
                waiting.append((each, "customer" in plain))
        elif isinstance(value, list):
            waiting += ((each, is_customer) for each in value)


def _values(value: object) -> list[object]:
    return list(value) if isinstance(value, list) and not isinstance(value, _Pairs) else [value]
