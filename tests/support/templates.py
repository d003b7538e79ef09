"""Inboxes that are made once and copied for each test: the migrations take longer than most tests do."""

from __future__ import annotations

import functools
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from billhook.inbox import Inbox
from support.inbox_view import place_of, upgraded
from support.postgres import administrator, libpq
from support.query_plans import listening


def new_inbox(url: str) -> str:
    """Give an empty place the tables that `billhook db upgrade` makes; its URL."""
    place = place_of(url)
    if isinstance(place, Path):
        place.touch(0o600)
        place.write_bytes(_inbox_file())
    else:
        _repeat_upgrade(url)
    return url


@functools.cache
def _inbox_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="billhook-template-") as folder:
        file = Path(folder) / "billhook.db"
        file.touch(0o600)
        upgraded(f"sqlite:///{file}")
        assert not file.with_name("billhook.db-wal").exists()  # all of it is in the file
        return file.read_bytes()


_migrations: list[str] = []
"""What the migrations execute on PostgreSQL, recorded the first time."""


def _repeat_upgrade(url: str) -> None:
    if _use_spare(url):
        return
    with psycopg.connect(**libpq(url), autocommit=True) as connection:
        ((name,),) = connection.execute("SELECT current_schema()").fetchall()
        if _migrations:
            connection.execute(";\n".join([*_migrations, *_without_autovacuum()]))
            if name and not _pristine:
                _pristine.append(_signature(connection, name))
            return
    executed: list[str] = []

    def record(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        # Questions, the transaction, and the names of schemas are the first upgrade's own.
        if not statement.startswith(("SELECT", "BEGIN")):
            written = psycopg.ClientCursor(cursor.connection).mogrify(statement, parameters or None)
            executed.append(written.replace(f"{schema}.", ""))

    schema = Inbox(url).database.schema
    with listening(record):
        upgraded(url)
    _migrations.extend(executed)


# --- schemas that are used again ------------------------------------------------------------------
# To make and drop the tables of an inbox takes a quarter of a second, to empty them a tenth of that.

_spares: dict[tuple[str, str], list[str]] = {}
"""Schemas with an inbox as new, by the server's port and database."""
_pristine: list[str] = []
"""What `_signature` says of an inbox as new."""
_SIGNATURE = """
    WITH ours AS (SELECT * FROM pg_class WHERE relnamespace = %(name)s::regnamespace)
    SELECT md5(string_agg(fact, chr(10) ORDER BY fact)) || (count(*))::text FROM (
        SELECT concat_ws(' ', relname, relkind, relpersistence, relrowsecurity, reloptions, relacl) FROM ours
        UNION ALL SELECT concat_ws(' ', relname, attname, atttypid, attnotnull, atthasdef, attidentity)
            FROM ours JOIN pg_attribute ON attrelid = ours.oid WHERE attnum > 0
        UNION ALL SELECT concat_ws(' ', relname, indkey, indisunique, pg_get_expr(indpred, indrelid))
            FROM ours JOIN pg_index ON indexrelid = ours.oid
        UNION ALL SELECT concat_ws(' ', relname, conname, contype, convalidated)
            FROM ours JOIN pg_constraint ON conrelid = ours.oid
        UNION ALL SELECT tgname FROM ours JOIN pg_trigger ON tgrelid = ours.oid WHERE NOT tgisinternal
        UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = %(name)s::regnamespace
    ) AS facts (fact)
"""
_USED = """
    SELECT coalesce(max(reltuples), -1) >= 0 OR max(pg_relation_size(oid)) > 81920
    FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'
"""
"""Whether a planner may know something of its tables, or one has more than the 10 pages of an empty one.

An empty table is taken for 10 pages, so that it is not planned as if it stayed empty.
"""


def keep_spare(connection: psycopg.Connection[Any], name: str) -> bool:
    """Empty the inbox of a schema and keep it for the next test; False if it is not one as new."""
    quoted = sql.Identifier(name).as_string()
    if not _pristine or _signature(connection, quoted) != _pristine[0]:
        return False
    ((used,),) = connection.execute(_USED, [quoted]).fetchall()
    if used:
        return False
    connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(name)))
    connection.execute(_emptying(connection))
    spare = f"billhook_spare_{os.getpid()}_{secrets.token_hex(4)}"
    connection.execute(
        sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(name), sql.Identifier(spare))
    )
    _spares.setdefault(_place(connection), []).append(spare)
    return True


def drop_spares(connection: psycopg.Connection[Any]) -> None:
    """Drop the schemas that are kept on a server."""
    connection.execute("SET client_min_messages = warning")
    for name in _spares.pop(_place(connection), []):
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def _use_spare(url: str) -> bool:
    """Put a spare in the place of an empty schema; False if there is none, or the schema has a table."""
    arguments = libpq(url)
    spares = _spares.get((f"{arguments.get('host')}:{arguments.get('port', 5432)}", arguments["dbname"]))
    named = re.fullmatch(r"-csearch_path=(\w+)", arguments.get("options", ""))
    if not spares or not named:
        return False
    connection, name = administrator(url), sql.Identifier(named[1])
    try:
        connection.execute(sql.SQL("DROP SCHEMA {}").format(name))
    except psycopg.errors.DependentObjectsStillExist:
        return False
    connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(sql.Identifier(spares.pop()), name))
    return True


def _without_autovacuum() -> list[str]:
    """The statements that keep statistics from appearing in the middle of a test of a plan."""
    names = [
        statement.split()[2] for statement in _migrations if statement.split()[:2] == ["CREATE", "TABLE"]
    ]
    return [f"ALTER TABLE {name} SET (autovacuum_enabled = off)" for name in names]


def _signature(connection: psycopg.Connection[Any], quoted: str) -> str:
    ((found,),) = connection.execute(_SIGNATURE, {"name": quoted}).fetchall()
    return str(found)


def _place(connection: psycopg.Connection[Any]) -> tuple[str, str]:
    return f"{connection.info.host}:{connection.info.port}", connection.info.dbname


def _emptying(connection: psycopg.Connection[Any]) -> str:
    """The statements that leave an inbox as the migrations do, with the rows that these insert."""
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    emptied = [f"DELETE FROM {table}" for (table,) in tables.fetchall()]
    used = (
        "SELECT sequencename FROM pg_sequences WHERE schemaname = current_schema() AND last_value IS NOT NULL"
    )
    restarted = [f"ALTER SEQUENCE {sequence} RESTART" for (sequence,) in connection.execute(used).fetchall()]
    rows = [statement for statement in _migrations if statement.startswith(("INSERT", "UPDATE"))]
    return ";\n".join([*emptied, *restarted, *rows])
