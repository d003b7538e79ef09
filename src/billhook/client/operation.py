"""ApiOperation: method and path of an endpoint, and whether its request may be repeated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

__all__ = ["ApiOperation", "custom_operation"]

_PARAMETER = re.compile(r"\{([A-Za-z]+)\}")
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
_SAFE_METHODS = frozenset({"GET"})
# RFC 3986: a path and a query. A "#" would be cut off by the HTTP library, a "{" is a parameter's here.
_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One endpoint. Source: spec, "Endpoints".

    `repeatable` is true if two requests have the effect of one. Then the client repeats a request without
    knowing whether the first one arrived.
    """

    method: str
    path: str
    repeatable: bool

    @property
    def name(self) -> str:
        """The method and the path, as in the specification."""
        return f"{self.method} {self.path}"

    def address(self, values: Sequence[str]) -> str:
        """Return the path with its parameters filled in, in order, percent-encoded.

        Raises ValueError for a value that the service would not receive unchanged: an empty one, `.` and
        `..`, which servers resolve as segments, and half a surrogate pair; TypeError for anything but text.
        """
        left = iter(values)
        return _PARAMETER.sub(lambda found: _segment(found[1], next(left)), self.path)


def custom_operation(method: str, path: str) -> tuple[ApiOperation, str]:
    """Return the operation of a request by its path, and the address with the path's query.

    Only a safe method is repeatable, because the effect of the others is not known. Raises ValueError; its
    text does not contain the path, which may hold a customer's data.
    """
    if method not in _METHODS:
        raise ValueError(f"method is {method!r}: it must be one of {', '.join(_METHODS)}")
    only_path, mark, query = path.partition("?")
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError("path must begin with one slash, such as /invoices: it is below the base address")
    if not _PATH.fullmatch(only_path) or not _QUERY.fullmatch(query):
        raise ValueError("path has a character that must be percent-encoded in an address")
    # Servers, proxies and the HTTP library resolve these: the request would go to another path.
    if {".", ".."} & set(unquote(only_path).split("/")):
        raise ValueError("path has a segment that is . or ..: write the path that is meant")
    return ApiOperation(method, only_path, repeatable=method in _SAFE_METHODS), only_path + mark + query


def _segment(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {type(value).__name__}")
    try:
        encoded = quote(value, safe="")
    except UnicodeEncodeError:
        encoded = ""
    # quote() leaves dots as they are, and no spelling of them is safe from being resolved.
    if encoded in ("", ".", ".."):
        raise ValueError(f"{name} is {value!r}: that cannot be a part of an address")
    return encoded
