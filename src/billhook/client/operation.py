"""ApiOperation: an endpoint, the models of its request and response, and whether it may be repeated; Listing.

A listing iterates over the items of all pages. Source: spec, "Endpoints", on pagination.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote

from billhook.errors import UnexpectedResponse
from billhook.resources import Resource

_PARAMETER = re.compile(r"\{([A-Za-z]+)\}")
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
# RFC 3986: a path and a query. The HTTP library would cut off a "#", and a "{" marks a parameter here.
_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
R = TypeVar("R", bound=Resource)
T = TypeVar("T")
# The limit of empty pages in a row, so that a faulty service cannot keep the caller forever.
_MOST_EMPTY_PAGES = 100
_LONGEST_CURSOR = 8_192  # it is part of a URL, and servers accept little more there


@dataclass(frozen=True, slots=True)
class ApiOperation(Generic[R]):
    """One endpoint. Source: spec, "Endpoints".

    `response` is the model of its answer, `Resource` where the specification shows none; `request` the model
    of its body, or of a listing's query. `idempotent`, for methods other than GET, says that two requests
    have the effect of one.
    """

    method: str
    path: str
    response: type[R]
    request: type[Any] = Resource
    idempotent: bool = False

    @property
    def repeatable(self) -> bool:
        """Return whether a request may be sent again without knowing whether the one before it arrived."""
        return self.idempotent or self.method == "GET"

    @property
    def name(self) -> str:
        """Return the method and the path, as in the specification."""
        return f"{self.method} {self.path}"

    def address(self, values: Sequence[str]) -> str:
        """Return the path with its parameters filled in, in order, percent-encoded.

        Raises ValueError for a value that the service would not receive unchanged: an empty one, `.` and
        `..`, which servers resolve as segments, and half a surrogate pair; TypeError for anything but text.
        """
        left = iter(values)
        return _PARAMETER.sub(lambda found: _segment(found[1], next(left)), self.path)


AnyOperation = ApiOperation[Any]


def custom_operation(method: str, path: str) -> tuple[ApiOperation[Resource], str]:
    """Return the operation of a request by its path, and the address with the path's query.

    Only a GET is repeatable, because the effect of other methods is not known. Raises ValueError; its
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
    return ApiOperation(method, only_path, Resource), only_path + mark + query


def _segment(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {type(value).__name__}")
    try:
        encoded = quote(value, safe="")
    except UnicodeEncodeError:
        encoded = ""
    # quote() does not change dots, and servers resolve every spelling of them.
    if encoded in ("", ".", ".."):
        raise ValueError(f"{name} is {value!r}: that cannot be a part of an address")
    return encoded


@dataclass(frozen=True, slots=True)
class ListingPage(Generic[T]):
    """One page. `total` is None if the service does not state it; `next_cursor` is None on the last."""

    items: tuple[T, ...]
    total: int | None
    has_more: bool
    next_cursor: str | None


class Listing(Iterator[T]):
    """Iterates over the items of all pages; each page is fetched when its first item is needed.

    After an error the iteration can continue: the next call fetches the same page again.

    >>> for invoice in client.invoices.list(billing_status="Overdue"): ...  # doctest: +SKIP
    >>> client.invoices.list(limit=20).page().total  # doctest: +SKIP
    """

    def __init__(self, operation_name: str, fetch: Callable[[str | None], ListingPage[T]]) -> None:
        self._operation_name = operation_name
        self._fetch = fetch
        self._items: deque[T] = deque()
        self._last: ListingPage[T] | None = None
        self._seen: set[str] = set()

    def __next__(self) -> T:
        fetched = 0
        while not self._items:
            if self._last is not None and not self._last.has_more:
                raise StopIteration
            if fetched == _MOST_EMPTY_PAGES:
                raise self._lost(f"{fetched} pages on end are empty, and it says that there is more")
            cursor = None if self._last is None else self._last.next_cursor or ""
            # A repeated cursor would repeat pages endlessly.
            if cursor == "" or cursor in self._seen:
                raise self._lost("it says that there is more and gives no new cursor to it")
            if cursor is not None and len(cursor) > _LONGEST_CURSOR:
                raise self._lost(f"its cursor has {len(cursor)} characters, and no address takes that")
            self._last = self._fetch(cursor)
            # Only after a success: a fetch that failed may be repeated.
            self._seen.add(cursor or "")
            self._items.extend(self._last.items)
            fetched += 1
        return self._items.popleft()

    def page(self, cursor: str | None = None) -> ListingPage[T]:
        """Fetch one page, the first or the one at `cursor`; this does not advance the iteration."""
        return self._fetch(cursor)

    def _lost(self, problem: str) -> UnexpectedResponse:
        return UnexpectedResponse(self._operation_name, problem, status=200, excerpt="")
