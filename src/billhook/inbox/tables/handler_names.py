"""The names of a handler: its own and its former ones, which a condition or a figure expands.

Runs stay stored under the name that their handler had when they were planned; `delivery.once` and a roll-back
go by it. A name is expanded where it comes in. billhook.inbox.running.former_names writes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select, union

from billhook.inbox.tables.schema import handler

StoredNames = Mapping[str, tuple[str, ...]]
"""Every name of a handler, by each of them; only of handlers that have several."""
ONE_NAME: StoredNames = {}
_IS_FORMER = handler.c.renamed_to.is_not(None)
PRESENT_NAME = func.coalesce(handler.c.renamed_to, handler.c.name)
"""The name that the handler of a row has now."""


def has_name_of(column: ColumnElement[str], *names: str | ColumnElement[str]) -> ColumnElement[bool]:
    """Build the condition that a column is a name of the handlers that have, or had, these names."""
    every: list[Select[tuple[str]]] = []
    for name in names:
        given = bindparam(None, name, unique=True) if isinstance(name, str) else name
        renamed = select(handler.c.renamed_to).where(handler.c.name == given)
        present = func.coalesce(renamed.scalar_subquery(), given)
        former = select(handler.c.name).where(handler.c.renamed_to == present)
        every += [select(given), select(present), former]
    return column.in_(union(*every))


def present_names(connection: Connection) -> dict[str, str]:
    """Return the name that each handler with a former name has now, by the former name."""
    query = select(handler.c.name, handler.c.renamed_to).where(_IS_FORMER)
    return dict(map(tuple, connection.execute(query)))


def stored_names(connection: Connection) -> StoredNames:
    """Return every name of the handlers that have former ones."""
    grouped: defaultdict[str, list[str]] = defaultdict(list)
    for former, present in sorted(present_names(connection).items()):
        grouped[present].append(former)
    every = {present: (present, *former) for present, former in grouped.items()}
    return {name: names for names in every.values() for name in names}
