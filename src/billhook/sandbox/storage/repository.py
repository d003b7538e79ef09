"""A repository of resources, stored as JSON documents: add, find, change, list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import ColumnElement, Row, Table, insert, select, update

from billhook.resources import Resource, StoredResource
from billhook.sandbox.errors import not_found
from billhook.sandbox.storage.paging import ListPage, fetch_page
from billhook.sandbox.storage.transaction import Transaction, new_id
from billhook.wire import strict_json

__all__ = ["Repository", "request_document", "to_document"]


def to_document(resource: Resource) -> dict[str, Any]:
    """Return all fields of `resource`, named as on the wire."""
    return cast("dict[str, Any]", strict_json.loads(resource.to_json()))


def request_document(request: Resource) -> dict[str, Any]:
    """Return the fields of a request, named as on the wire, without read-only ones."""
    return cast("dict[str, Any]", strict_json.loads(request.to_request()))


R = TypeVar("R", bound=StoredResource)


class Repository(Generic[R]):
    """Resources of one kind, in the document table `table`; their ids begin with `prefix`."""

    def __init__(self, table: Table, model: type[R], prefix: str) -> None:
        self.table = table
        self._model = model
        self._prefix = prefix

    def add(
        self, tx: Transaction, data: Mapping[str, Any], *, resource_id: str | None = None, **columns: Any
    ) -> R:
        """Store a new resource with the wire's fields `data`; `columns` are values of the table's columns."""
        body = {
            **{name: value for name, value in data.items() if value is not None},
            "id": resource_id or new_id(self._prefix),
            "createdAt": tx.now,
            "updatedAt": tx.now,
        }
        # Through JSON, so that the result equals the resource that is read back later.
        stored = self._model.from_wire(strict_json.loads(strict_json.dumps(body)))
        tx.connection.execute(
            insert(self.table).values(
                id=stored.id, body=stored.to_json().decode(), created_at=tx.now, updated_at=tx.now, **columns
            )
        )
        return stored

    def find(self, tx: Transaction, resource_id: str) -> R | None:
        """Return the resource with this id; None if there is none."""
        return self.first(tx, self.table.c.id == resource_id)

    def get(self, tx: Transaction, resource_id: str) -> R:
        """Return the resource with this id; 404 if there is none."""
        found = self.find(tx, resource_id)
        if found is None:
            # Without the id: an error must not repeat what the request sent.
            raise not_found(self.table.name.replace("_", " "))
        return found

    def first(self, tx: Transaction, *where: ColumnElement[bool]) -> R | None:
        """Return the oldest resource that matches; None if there is none."""
        row = tx.connection.execute(
            select(self.table.c.body).where(*where).order_by(self.table.c.seq).limit(1)
        ).first()
        return None if row is None else self.read(row)

    def all(self, tx: Transaction, *where: ColumnElement[bool]) -> list[R]:
        """Return all resources that match, oldest first."""
        rows = tx.connection.execute(select(self.table.c.body).where(*where).order_by(self.table.c.seq))
        return [self.read(row) for row in rows]

    def change(self, tx: Transaction, stored: R, changes: Mapping[str, Any], **columns: Any) -> R:
        """Store `stored` with `changes`, the wire's fields; a None deletes its field.

        The id and the times in `changes` are ignored, so a client may send back the object that it got.
        """
        body = to_document(stored)
        # After the changes, so that these win.
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

    def page(
        self,
        tx: Transaction,
        limit: int,
        cursor: str | None,
        *where: ColumnElement[bool],
        newest_first: bool = False,
    ) -> ListPage[R]:
        """Return at most `limit` resources that match, after `cursor`; oldest first by default."""
        query = select(self.table.c.body).where(*where)
        order = [self.table.c.seq]
        found = fetch_page(
            tx.connection, query, order, limit, cursor, self.table.name, newest_first=newest_first
        )
        return found.of(self.read)

    def read(self, row: Row[Any]) -> R:
        """Return the resource of a row that has a `body`."""
        return self._model.from_json(row.body.encode())
