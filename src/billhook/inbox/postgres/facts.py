"""The facts of an inbox on PostgreSQL, for `billhook doctor`."""

from __future__ import annotations

import ipaddress
from typing import Any

from sqlalchemy import Connection, text

from billhook.inbox.database import Database
from billhook.inbox.facts import PostgresFacts
from billhook.inbox.postgres.roles import connection_limits

_BYTES = text(
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema)"
)
_NAMES = text("SELECT quote_ident(current_user), quote_ident(:schema)")


def read_facts(connection: Connection, database: Database) -> PostgresFacts:
    """Read the facts of an inbox on PostgreSQL."""
    shown = {
        name: connection.execute(text(f"SHOW {name}")).scalar_one()
        for name in ("server_version_num", "fsync", "full_page_writes", "is_superuser")
    }
    role, schema = connection.execute(_NAMES, {"schema": database.schema}).one()
    session: Any = connection.connection.driver_connection
    options = {option.keyword: option.val for option in session.pgconn.info}
    return PostgresFacts(
        place=database.display_url,
        version=int(shown["server_version_num"]) // 10_000,
        fsync=shown["fsync"] == "on",
        full_page_writes=shown["full_page_writes"] == "on",
        superuser=shown["is_superuser"] == "on",
        local=is_local(session.info.host),
        encrypted=bool(session.pgconn.ssl_in_use),
        sslmode=(options.get(b"sslmode") or b"prefer").decode(),
        pooler=None if not session.has_pooler else "transaction" if session.is_pooled else "session",
        inbox_bytes=connection.execute(_BYTES, {"schema": database.schema}).scalar_one(),
        role=role,
        schema=schema,
        row_security=database.row_security(),
        limits=connection_limits(connection),
    )


def is_local(host: str) -> bool:
    """Return whether libpq's `host` is this machine: a socket, or an address that no network is between."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
