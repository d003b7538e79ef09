"""Pages of lists, and cursors: where a page begins, in a form that callers cannot build upon.

Source: spec, "Endpoints", the pagination shape.
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

from billhook.sandbox.refusals import invalid_request

__all__ = ["DEFAULT_PAGE", "MAX_PAGE", "Page", "page_of"]

T = TypeVar("T")
S = TypeVar("S")

DEFAULT_PAGE = 10
MAX_PAGE = 1000
"""Given for GET /events only; here for every list. Source: spec, "Limits"."""

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list."""

    items: list[T]
    total: int
    next_cursor: str | None

    def fields(self) -> dict[str, Any]:
        """`total`, `hasMore` and `nextCursor` (null after the last), to be given to the response's model."""
        more = self.next_cursor is not None
        return {"total": Decimal(self.total), "has_more": more, "next_cursor": self.next_cursor}

    def of(self, read: Callable[[T], S]) -> Page[S]:
        """The same page of what `read` makes of each."""
        return Page([read(item) for item in self.items], self.total, self.next_cursor)


def page_of(
    connection: Connection,
    query: Select[Any],
    order: Sequence[ColumnElement[int]],
    limit: int,
    cursor: str | None,
    name: str,
) -> Page[Row[Any]]:
    """At most `limit` rows of `query`, from `cursor` on; `name` is the list's.

    `order` are columns of whole numbers, the last of them unique. The cursor tells the last row shown: so
    pages neither repeat nor leave out any, whatever is added meanwhile.
    """
    counted = query.with_only_columns(func.count(), maintain_column_froms=True)
    total = connection.execute(counted).scalar_one()
    if cursor is not None:
        query = query.where(tuple_(*order) > tuple_(*_place(cursor, name, len(order))))
    places = [column.label(f"place_{number}") for number, column in enumerate(order)]
    rows = connection.execute(query.add_columns(*places).order_by(*order).limit(limit + 1)).all()
    shown = list(rows[:limit])
    last = shown[-1][-len(order) :] if len(rows) > limit else None
    return Page(shown, total, None if last is None else _cursor(name, last))


def _cursor(name: str, place: Sequence[int]) -> str:
    """The cursor of what comes after the row at `place` in the list `name`."""
    text = ":".join([name, *map(str, place)])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _place(cursor: str, name: str, count: int) -> list[int]:
    """The other way. Refuses what is no cursor of the list `name`."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    number = ":(-?[0-9]{1,19})" * (count - 1) + ":([0-9]{1,19})"
    found = re.fullmatch(re.escape(name) + number, text)
    place = [int(each) for each in found.groups()] if found else []
    if found is None or _cursor(name, place) != cursor:
        raise invalid_request(
            "the cursor is not one that this list gave: leave it out to begin anew", "cursor"
        )
    return [max(-_LARGEST, min(each, _LARGEST)) for each in place]
