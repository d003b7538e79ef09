"""Pages of lists, and the opaque cursors at which they begin.

Source: spec, "Endpoints", the pagination shape; "Limits".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, func, tuple_

from billhook.resources import PageQuery
from billhook.sandbox.errors import invalid_request

__all__ = ["DEFAULT_PAGE", "MAX_PAGE", "ListPage", "fetch_page", "page_limit"]


T = TypeVar("T")
S = TypeVar("S")

DEFAULT_PAGE = 10
MAX_PAGE = 1000
"""Given for GET /events only; here for every list. Source: spec, "Limits"."""

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """One page of a list, with the total and the cursor of the next page."""

    items: list[T]
    total: int
    next_cursor: str | None

    def fields(self) -> dict[str, Any]:
        """Return the response's fields `total`, `hasMore` and `nextCursor` (null after the last page)."""
        more = self.next_cursor is not None
        return {"total": Decimal(self.total), "has_more": more, "next_cursor": self.next_cursor}

    def of(self, read: Callable[[T], S]) -> ListPage[S]:
        """Return the same page with `read` applied to each item."""
        return ListPage([read(item) for item in self.items], self.total, self.next_cursor)


def fetch_page(
    connection: Connection,
    query: Select[Any],
    order: Sequence[ColumnElement[int]],
    limit: int,
    cursor: str | None,
    name: str,
    *,
    newest_first: bool = False,
) -> ListPage[Row[Any]]:
    """Return at most `limit` rows of `query` after `cursor`; `name` identifies the list.

    `order` are integer columns, the last of them unique. The cursor holds the place of the last row, so pages
    neither repeat nor skip rows when others are added meanwhile.
    """
    # Without the cursor: the total is the same on each page.
    counted = query.with_only_columns(func.count(), maintain_column_froms=True)
    total = connection.execute(counted).scalar_one()
    if cursor is not None:
        place, last_place = tuple_(*order), tuple_(*_place(cursor, name, len(order)))
        query = query.where(place < last_place if newest_first else place > last_place)
    places = [column.label(f"place_{number}") for number, column in enumerate(order)]
    # One row more than shown: it tells whether there is another page.
    ordered = [column.desc() for column in order] if newest_first else order
    rows = connection.execute(query.add_columns(*places).order_by(*ordered).limit(limit + 1)).all()
    shown = list(rows[:limit])
    last = shown[-1][-len(order) :] if len(rows) > limit else None
    return ListPage(shown, total, None if last is None else _cursor(name, last))


def _cursor(name: str, place: Sequence[int]) -> str:
    """Return the cursor after the row at `place` in the list `name`."""
    text = ":".join([name, *map(str, place)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _place(cursor: str, name: str, count: int) -> list[int]:
    """Return the place that `cursor` holds; 400 if it is no cursor of the list `name`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    number = ":(-?[0-9]{1,19})" * (count - 1) + ":([0-9]{1,19})"
    found = re.fullmatch(re.escape(name) + number, text)
    place = [int(each) for each in found.groups()] if found else []
    # Compared with its own spelling: base64 and numbers with leading zeros have several.
    if found is None or _cursor(name, place) != cursor:
        raise invalid_request(
            "the cursor is not one of this list: leave it out to start from the first page", "cursor"
        )
    # A number beyond 64 bits would be an error in both databases.
    return [max(-_LARGEST, min(each, _LARGEST)) for each in place]


def page_limit(query: PageQuery) -> int:
    """Return the number of rows on a page: 1 to 1000, 10 by default; 400 otherwise."""
    # An explicit null is an error, not the default.
    if "limit" not in query.model_fields_set:
        return DEFAULT_PAGE
    limit = query.limit
    if limit is None or not 1 <= limit <= MAX_PAGE or limit != int(limit):
        raise invalid_request(f"limit is a whole number from 1 to {MAX_PAGE}", "limit")
    return int(limit)
