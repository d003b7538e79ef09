"""Listing: the items of all pages of a list. Source: spec, "Endpoints", on pagination."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from billhook.errors import UnexpectedResponse

T = TypeVar("T")
# A service that repeats empty pages for ever must not keep the caller for ever.
_MOST_EMPTY_PAGES = 100
_LONGEST_CURSOR = 8_192  # it goes into an address, and servers take little more there


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

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        fetched = 0
        while not self._items:
            if self._last is not None and not self._last.has_more:
                raise StopIteration
            if fetched == _MOST_EMPTY_PAGES:
                raise self._lost(f"{fetched} pages on end are empty, and it says that there is more")
            self._items.extend(self._next_page().items)
            fetched += 1
        return self._items.popleft()

    def page(self, cursor: str | None = None) -> ListingPage[T]:
        """Fetch one page, the first or the one at `cursor`; this does not advance the iteration."""
        return self._fetch(cursor)

    def _next_page(self) -> ListingPage[T]:
        cursor = None if self._last is None else self._last.next_cursor or ""
        # A cursor that comes again would repeat pages without end.
        if cursor == "" or cursor in self._seen:
            raise self._lost("it says that there is more and gives no new cursor to it")
        if cursor is not None and len(cursor) > _LONGEST_CURSOR:
            raise self._lost(f"its cursor has {len(cursor)} characters, and no address takes that")
        self._last = self._fetch(cursor)
        # Only after a success: a fetch that failed may be repeated.
        if cursor is not None:
            self._seen.add(cursor)
        return self._last

    def _lost(self, problem: str) -> UnexpectedResponse:
        return UnexpectedResponse(self._operation_name, problem, status=200, excerpt="")
