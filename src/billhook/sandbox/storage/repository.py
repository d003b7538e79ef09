"""A repository of resources, stored as JSON documents: add, find, change, and list in pages.

Pages of lists begin at opaque cursors. Source: spec, "Endpoints", the pagination shape; "Limits".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Column, ColumnElement, Row, Select, Table, func, insert, select, tuple_, update

from billhook.fields import strict_json
from billhook.resources import PageQuery, Resource, StoredResource
from billhook.sandbox.errors import already_exists, check_key, invalid_request, not_found
from billhook.sandbox.storage.database import Transaction, new_id

T = TypeVar("T")
S = TypeVar("S")
M = TypeVar("M", bound=Resource)
DEFAULT_PAGE = 10
MAX_PAGE = 1000
"""Given for GET /events only; here for every list. Source: spec, "Limits"."""


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
    tx: Transaction,
    query: Select[Any],
    limit: int,
    cursor: str | None,
    seq: Column[int],
    *before: ColumnElement[int],
    newest_first: bool = False,
) -> ListPage[Row[Any]]:
    """Return at most `limit` rows of `query` after `cursor`, in the order of the serial number `seq`.

    Without a cursor, or with an empty one, it is the first page.
    Integer columns `before` order them first. The cursor holds the place of the last row, so pages neither
    repeat nor skip rows when others are added meanwhile.
    """
    order, name = (*before, seq), seq.table.name
    # Without the cursor: the total is the same on each page.
    counted = query.with_only_columns(func.count(), maintain_column_froms=True)
    total = tx.scalars(counted).one()
    if cursor:
        place, last_place = tuple_(*order), tuple_(*_place(cursor, name, len(order)))
        query = query.where(place < last_place if newest_first else place > last_place)
    places = [column.label(f"place_{number}") for number, column in enumerate(order)]
    # One row more than shown: it tells whether there is another page.
    ordered = [column.desc() for column in order] if newest_first else order
    rows = tx.execute(query.add_columns(*places).order_by(*ordered).limit(limit + 1)).all()
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
    # At most 18 digits: a number beyond 64 bits would be an error in SQLite.
    number = ":(-?[0-9]{1,18})" * (count - 1) + ":([0-9]{1,18})"
    found = re.fullmatch(re.escape(name) + number, text)
    place = [int(each) for each in found.groups()] if found else []
    # Compared with its own spelling: base64 and numbers with leading zeros have several.
    if found is None or _cursor(name, place) != cursor:
        raise invalid_request(
            "the cursor is not one of this list: leave it out to start from the first page", "cursor"
        )
    return place


def requested_page(
    tx: Transaction, asked: PageQuery, query: Select[Any], seq: Column[int], *before: ColumnElement[int]
) -> ListPage[Row[Any]]:
    """Return the page of `query` that a request asks for: of 1 to 1000 rows, 10 by default; 400 otherwise."""
    # An explicit null is an error, not the default.
    limit = asked.limit if "limit" in asked.model_fields_set else DEFAULT_PAGE
    if limit is None or not 1 <= limit <= MAX_PAGE or limit != int(limit):
        raise invalid_request(f"limit is a whole number from 1 to {MAX_PAGE}", "limit")
    return fetch_page(tx, query, int(limit), asked.cursor, seq, *before)


def matching(*wanted: tuple[ColumnElement[Any], object]) -> list[ColumnElement[bool]]:
    """Return the conditions that columns have these values; None asks for any value."""
    return [column == value for column, value in wanted if value is not None]


def shown(model: type[M], row: Row[Any], **more: Any) -> M:
    """Return a row as the model whose fields its columns are named as; `more` has other fields.

    Nulls are left out: a field that is set to None is sent as null.
    """
    values = {**row._mapping, **more}
    return model(**{name: value for name in model.model_fields if (value := values.get(name)) is not None})


def to_document(resource: Resource) -> dict[str, Any]:
    """Return all fields of `resource`, named as on the wire."""
    return cast("dict[str, Any]", strict_json.loads(resource.to_json()))


def request_document(request: Resource) -> dict[str, Any]:
    """Return the fields of a request, named as on the wire, without read-only ones."""
    return cast("dict[str, Any]", strict_json.loads(request.to_request()))


R = TypeVar("R", bound=StoredResource)


class Repository(Generic[R]):
    """Resources of one kind, in the document table `table`; their ids begin with `prefix`.

    A column named as a field of the model has the value of that field.
    """

    def __init__(self, table: Table, model: type[R], prefix: str) -> None:
        self.table = table
        self._model = model
        self._prefix = prefix
        self._noun = table.name.replace("_", " ")

    def add(
        self, tx: Transaction, data: Mapping[str, Any], *, resource_id: str | None = None, **columns: Any
    ) -> R:
        """Store a new resource with the wire's fields `data`; `columns` are values of the other columns."""
        fields = {"id": resource_id or new_id(self._prefix), "createdAt": tx.now, "updatedAt": tx.now}
        stored = self._as_read({**data, **fields})
        tx.execute(insert(self.table).values(**self._columns(stored), **columns))
        return stored

    def check_external_id(self, tx: Transaction, external_id: str | None) -> None:
        """Reject an externalId that is no valid key, or that another resource has."""
        check_key(external_id, "externalId")
        if external_id is not None and self.first(tx, self.table.c.external_id == external_id):
            raise already_exists(f"another {self._noun} has this externalId", "externalId")

    def find(self, tx: Transaction, resource_id: str) -> R | None:
        """Return the resource with this id; None if there is none."""
        return self.first(tx, self.table.c.id == resource_id)

    def get(self, tx: Transaction, resource_id: str) -> R:
        """Return the resource with this id; 404 if there is none."""
        found = self.find(tx, resource_id)
        if found is None:
            # Without the id: an error must not repeat what the request sent.
            raise not_found(self._noun)
        return found

    def first(self, tx: Transaction, *where: ColumnElement[bool]) -> R | None:
        """Return the oldest resource that matches; None if there is none."""
        row = tx.execute(self._bodies(*where).order_by(self.table.c.seq).limit(1)).first()
        return None if row is None else self.read(row)

    def all(self, tx: Transaction, *where: ColumnElement[bool]) -> list[R]:
        """Return all resources that match, oldest first."""
        return [self.read(row) for row in tx.execute(self._bodies(*where).order_by(self.table.c.seq))]

    def change(self, tx: Transaction, stored: R, changes: Mapping[str, Any], **columns: Any) -> R:
        """Store `stored` with `changes`, the wire's fields; a None deletes its field.

        The id and the times in `changes` are ignored, so a client may send back the object that it got.
        """
        # After the changes, so that these win.
        kept = {"id": stored.id, "createdAt": stored.created_at, "updatedAt": tx.now}
        changed = self._as_read({**to_document(stored), **changes, **kept})
        which = self.table.c.id == stored.id
        tx.execute(update(self.table).where(which).values(**self._columns(changed), **columns))
        return changed

    def _as_read(self, body: Mapping[str, Any]) -> R:
        """Return the resource with these fields as it will be read back; a None is no field."""
        given = {name: value for name, value in body.items() if value is not None}
        return self._model.from_wire(strict_json.loads(strict_json.dumps(given)))

    def _columns(self, stored: R) -> dict[str, Any]:
        names = self.table.c.keys() & self._model.model_fields.keys()
        return {"body": stored.to_json().decode(), **{name: getattr(stored, name) for name in names}}

    def page(self, tx: Transaction, query: PageQuery, *where: ColumnElement[bool]) -> ListPage[R]:
        """Return the page of the resources that match, oldest first, that a request's query asks for."""
        return requested_page(tx, query, self._bodies(*where), self.table.c.seq).of(self.read)

    def newest(
        self, tx: Transaction, limit: int, cursor: str | None = None, *where: ColumnElement[bool]
    ) -> ListPage[R]:
        """Return at most `limit` resources that match, after `cursor`, newest first."""
        found = self._bodies(*where)
        return fetch_page(tx, found, limit, cursor, self.table.c.seq, newest_first=True).of(self.read)

    def _bodies(self, *where: ColumnElement[bool]) -> Select[Any]:
        return select(self.table.c.body).where(*where)

    def read(self, row: Row[Any]) -> R:
        """Return the resource of a row that has a `body`."""
        return self._model.from_json(row.body.encode())
