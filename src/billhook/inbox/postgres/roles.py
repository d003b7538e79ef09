"""What the server lets the inbox's role do: which rows it sees and changes, how many connections it has."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import ARRAY, Connection, Text, bindparam, text

from billhook.inbox.tables.facts import ConnectionLimit, RowSecurity
from billhook.inbox.tables.schema import metadata, version

# A policy for a command, or for all, that is permissive and for this role, or one that it has the rights of.
_ROW_SECURITY = text("""
    SELECT relname, command, EXISTS (
        SELECT FROM pg_catalog.pg_policy
        WHERE polrelid = pg_class.oid AND polpermissive AND polcmd::text IN ('*', kind) AND EXISTS (
            SELECT FROM unnest(polroles) AS named (role)
            WHERE CASE WHEN role = 0 THEN true ELSE pg_has_role(role, 'USAGE') END
        )
    )
    FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace, (
        VALUES (1, 'r', 'SELECT'), (2, 'a', 'INSERT'), (3, 'w', 'UPDATE'), (4, 'd', 'DELETE')
    ) AS needed (number, kind, command)
    WHERE nspname = :schema AND relname = ANY (:tables) AND relkind IN ('r', 'p')
        AND row_security_active(pg_class.oid)
    ORDER BY relname, number
""").bindparams(bindparam("tables", type_=ARRAY(Text)))
_LIMITS = text("""
    WITH others AS (
        SELECT usename, datname FROM pg_catalog.pg_stat_activity
        WHERE usename IS NOT NULL AND datname IS NOT NULL
            AND application_name <> current_setting('application_name')
    )
    SELECT 'role', quote_ident(rolname), rolconnlimit, (SELECT count(*) FROM others WHERE usename = rolname)
    FROM pg_catalog.pg_roles WHERE rolname = current_user AND rolconnlimit >= 0 AND NOT rolsuper
    UNION ALL
    SELECT 'database', quote_ident(pg_database.datname), datconnlimit,
        (SELECT count(*) FROM others WHERE others.datname = pg_database.datname)
    FROM pg_catalog.pg_database WHERE pg_database.datname = current_database() AND datconnlimit >= 0
    UNION ALL
    SELECT 'server', '', current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0), (SELECT count(*) FROM others)
""")


def row_security(connection: Connection, schema: str) -> RowSecurity:
    """Read which of the inbox's tables in a schema have row security that applies to this role."""
    tables = [*metadata.tables, version.name]
    missing: defaultdict[str, list[str]] = defaultdict(list)
    for table, command, allowed in connection.execute(_ROW_SECURITY, {"schema": schema, "tables": tables}):
        missing[table] += [] if allowed else [command]
    return RowSecurity({table: tuple(commands) for table, commands in missing.items()})


def connection_limits(connection: Connection) -> list[ConnectionLimit]:
    """Read the limits that apply to this role's connections to this database."""
    return [ConnectionLimit(*row) for row in connection.execute(_LIMITS)]
