"""The PostgreSQL schema of an inbox: one of its own, which an app's migration tool does not see."""

from __future__ import annotations

import re

from sqlalchemy import Connection, text

from billhook.errors import SchemaForbidden

_OPTION = re.compile(r"(?:-c\s*|--)(?i:search[_-]path)=((?:\\.|[^\s\\])*)")
_NAME = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",\s]+))\s*(?:,|$)')
_SHARED = ("public", "$user")
_OTHERS = text(
    "SELECT nspname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE relname = 'billhook_version' AND relkind IN ('r', 'p') AND nspname <> :schema ORDER BY nspname"
)
_RIGHTS = text(
    "SELECT current_user, has_database_privilege(current_database(), 'CREATE'), "
    "(SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE') "
    "FROM pg_namespace WHERE nspname = :schema)"
)


def quote_identifier(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def parse_search_path(path: str) -> list[str]:
    """Return the names in a search_path, as PostgreSQL reads them."""
    return [whole.replace('""', '"') if whole else plain.lower() for whole, plain in _NAME.findall(path)]


def schema_from_options(options: str, default: str) -> str:
    """Return the one schema that a URL's session options name, if it is not a shared one; else `default`."""
    paths = _OPTION.findall(options)
    names = parse_search_path(re.sub(r"\\(.)", r"\1", paths[-1])) if paths else []
    return names[0] if len(names) == 1 and names[0] not in _SHARED else default


def use_schema(connection: Connection, schema: str) -> None:
    """Make the rest of the transaction use `schema` alone, which need not exist yet."""
    connection.execute(text(f"SET LOCAL search_path TO {quote_identifier(schema)}"))


def other_schemas(connection: Connection, schema: str) -> list[str]:
    """Return the schemas but `schema` that hold an inbox, whether or not this role may use them."""
    return list(connection.execute(_OTHERS, {"schema": schema}).scalars())


def create_schema(connection: Connection, schema: str) -> None:
    """Create the schema if it is missing, in the caller's transaction, which then uses it.

    Raises SchemaForbidden, with a statement for a role that may.
    """
    role, may_create, may_use = connection.execute(_RIGHTS, {"schema": schema}).one()
    making = f"CREATE SCHEMA {quote_identifier(schema)}"
    if may_use is None and may_create:
        connection.execute(text(making))
    elif may_use is None:
        raise SchemaForbidden(role, schema, f"{making} AUTHORIZATION {quote_identifier(role)}")
    elif not may_use:
        grant = f"GRANT USAGE, CREATE ON SCHEMA {quote_identifier(schema)} TO {quote_identifier(role)}"
        raise SchemaForbidden(role, schema, grant)
