"""A table of resources: to add one, find it, change it, and page through all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Row, Table, insert, select, update

from billhook.resources import Stored
from billhook.sandbox.refusals import not_found
from billhook.sandbox.storage.documents import as_document
from billhook.sandbox.storage.paging import Page, page_of
from billhook.sandbox.transaction import Transaction, new_id
from billhook.wire import strict_json

__all__ = ["Shelf"]

R = TypeVar("R", bound=Stored)


class Shelf(Generic[R]):
    """Resources of one kind. `table` is a document table, `prefix` begins their ids."""

    def __init__(self, table: Table, model: type[R], prefix: str) -> None:
        self.table = table
        self._model = model
        self._prefix = prefix

    def add(
        self, tx: Transaction, data: Mapping[str, Any], *, resource_id: str | None = None, **columns: Any
    ) -> R:
        """Store a new one made of `data` (in the wire's spelling); `columns` are the table's own."""
        body = {
            **{name: value for name, value in data.items() if value is not None},
            "id": resource_id or new_id(self._prefix),
            "createdAt": tx.now,
            "updatedAt": tx.now,
        }
        stored = self._model.from_wire(strict_json.loads(strict_json.dumps(body)))
        tx.connection.execute(
            insert(self.table).values(
                id=stored.id, body=stored.to_json().decode(), created_at=tx.now, updated_at=tx.now, **columns
            )
        )
        return stored

    def find(self, tx: Transaction, resource_id: str) -> R | None:
        """The one with this id."""
        return self.first(tx, self.table.c.id == resource_id)

    def get(self, tx: Transaction, resource_id: str) -> R:
        """The one with this id; a refusal, not_found, if there is none."""
        found = self.find(tx, resource_id)
        if found is None:
            raise not_found(self.table.name.replace("_", " "))
        return found

    def first(self, tx: Transaction, *where: ColumnElement[bool]) -> R | None:
        """The oldest one that fits."""
        row = tx.connection.execute(
            select(self.table.c.body).where(*where).order_by(self.table.c.seq).limit(1)
        ).first()
        return None if row is None else self.read(row)

    def all(self, tx: Transaction, *where: ColumnElement[bool]) -> list[R]:
        """All that fit, oldest first."""
        rows = tx.connection.execute(select(self.table.c.body).where(*where).order_by(self.table.c.seq))
        return [self.read(row) for row in rows]

    def change(self, tx: Transaction, stored: R, changes: Mapping[str, Any], **columns: Any) -> R:
        """Store `stored` with `changes` (in the wire's spelling): what is None there goes.

        The id and the times in `changes` are left out: who puts back what it got changes none of them.
        """
        body = as_document(stored)
        kept = {"id": stored.id, "createdAt": stored.created_at, "updatedAt": tx.now}
        body = {**body, **changes, **kept}
        body = {name: value for name, value in body.items() if value is not None}
        changed = self._model.from_wire(strict_json.loads(strict_json.dumps(body)))
        tx.connection.execute(
            update(self.table)
            .where(self.table.c.id == stored.id)
            .values(body=changed.to_json().decode(), updated_at=tx.now, **columns)
        )
        return changed

    def page(self, tx: Transaction, limit: int, cursor: str | None, *where: ColumnElement[bool]) -> Page[R]:
        """At most `limit` that fit, in the order in which they came, from `cursor` on.

        A row that is added meanwhile comes last: pages neither repeat nor leave out any.
        """
        query = select(self.table.c.body).where(*where)
        order = [self.table.c.seq]
        return page_of(tx.connection, query, order, limit, cursor, self.table.name).of(self.read)

    def read(self, row: Row[Any]) -> R:
        """The resource of a row that has its `body`."""
        return self._model.from_json(row.body.encode())
