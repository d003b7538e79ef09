"""Where on PostgreSQL an inbox is: in a schema of its own, out of sight of an app's migration tool."""

from __future__ import annotations

import re

from sqlalchemy import Connection, text
from sqlalchemy.exc import ProgrammingError

from billhook.errors import SchemaForbidden

__all__ = ["enter", "former_schema", "move_in", "quoted", "schema_of", "schemas_in"]

_OPTION = re.compile(r"(?:-c\s*|--)(?i:search[_-]path)=((?:\\.|[^\s\\])*)")
_NAME = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",\s]+))\s*(?:,|$)')
_SHARED = ("public", "$user")
_TABLES = ("delivery", "run", "failure", "billhook_version")
"""What an inbox had when it was kept in whatever schema came first: no others may be moved by name."""
_LATER_TABLES = ("billhook_worker",)
"""What it has besides if somebody went on keeping it there."""
_FORMER = text(
    "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE pg_class.oid = to_regclass('billhook_version')"
)
_INSUFFICIENT_PRIVILEGE = "42501"
"""The tables are another role's. Source: PostgreSQL, "Error Codes"."""
_RIGHTS = text(
    "SELECT current_user, has_database_privilege(current_database(), 'CREATE'), "
    "(SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE') "
    "FROM pg_namespace WHERE nspname = :schema)"
)


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever characters are in it."""
    return '"' + name.replace('"', '""') + '"'


def schemas_in(path: str) -> list[str]:
    """The names in a search_path, as PostgreSQL reads them."""
    return [whole.replace('""', '"') if whole else plain.lower() for whole, plain in _NAME.findall(path)]


def schema_of(options: str, default: str) -> str:
    """The one schema that the session options of a URL name, if that is nobody else's; else `default`."""
    given = _OPTION.findall(options)
    names = schemas_in(re.sub(r"\\(.)", r"\1", given[-1])) if given else []
    return names[0] if len(names) == 1 and names[0] not in _SHARED else default


def enter(connection: Connection, schema: str) -> None:
    """Have the rest of the transaction look into `schema` alone, which need not be there yet."""
    connection.execute(text(f"SET LOCAL search_path TO {quoted(schema)}"))


def former_schema(connection: Connection, schema: str) -> str | None:
    """Where a billhook without a schema of its own kept the inbox: where the session would look.

    None if it is in no other than `schema`. The session must have been opened without one; the transaction
    then has the search_path of its URL and its role.
    """
    connection.execute(text("SET LOCAL search_path TO DEFAULT"))
    found: str | None = connection.execute(_FORMER).scalar_one_or_none()
    return None if found == schema else found


def move_in(connection: Connection, schema: str) -> str | None:
    """Make the schema, and move an inbox there from its former place, which is returned.

    All in the caller's transaction. Sequences and indexes move with their tables, and a table keeps the
    number that its notifications are named by. Raises SchemaForbidden, with what somebody else could run.
    """
    role, may_create, may_use = connection.execute(_RIGHTS, {"schema": schema}).one()
    making = f"CREATE SCHEMA {quoted(schema)}"
    if may_use is None and may_create:
        connection.execute(text(making))
    elif may_use is None:
        raise SchemaForbidden(role, schema, f"{making} AUTHORIZATION {quoted(role)}")
    elif not may_use:
        grant = f"GRANT USAGE, CREATE ON SCHEMA {quoted(schema)} TO {quoted(role)}"
        raise SchemaForbidden(role, schema, grant)
    former = former_schema(connection, schema)
    if former is not None:
        _move(connection, former, schema, role)
    enter(connection, schema)
    return former


def _move(connection: Connection, former: str, schema: str, role: str) -> None:
    tables = {f"{quoted(former)}.{name}": "" for name in _TABLES}
    tables |= {f"{quoted(former)}.{name}": "IF EXISTS " for name in _LATER_TABLES}
    moves = [f"ALTER TABLE {maybe}{name} SET SCHEMA {quoted(schema)}" for name, maybe in tables.items()]
    try:
        for statement in moves:
            connection.execute(text(statement))
    except ProgrammingError as error:
        if getattr(error.orig, "sqlstate", None) != _INSUFFICIENT_PRIVILEGE:
            raise
        raise SchemaForbidden(role, schema, "; ".join(moves)) from None
