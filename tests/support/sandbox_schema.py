"""A sandbox's tables on PostgreSQL, made once: making them takes a second, and emptying them does not."""

from __future__ import annotations

import contextlib

import psycopg

from billhook.sandbox import Sandbox, SandboxOptions
from billhook.sandbox.storage.tables import metadata
from support.postgres import fresh_schema, libpq


class SandboxSchema:
    """A schema with the sandbox's tables on PostgreSQL, for one test after the other."""

    def __init__(self, server_url: str) -> None:
        """Make it as a first sandbox does, and leave the tables empty."""
        self._exit = contextlib.ExitStack()
        self.url = self._exit.enter_context(fresh_schema(server_url))
        Sandbox(SandboxOptions(database_url=self.url)).close()
        self.clear()

    def clear(self) -> None:
        """Empty the tables, but for the version that they are of; their rows are counted from 1 again."""
        with psycopg.connect(**libpq(self.url), autocommit=True) as connection:
            connection.execute("SET lock_timeout = '5s'")  # whoever left a transaction open is told so
            connection.execute(_CLEAR)

    def close(self) -> None:
        """Drop it."""
        self._exit.close()


_DELETES = "\n".join(
    f"IF EXISTS (SELECT FROM {name}) THEN DELETE FROM {name}; END IF;"
    for name in (table.name for table in reversed(metadata.sorted_tables))
    if name != "setting"
)
_CLEAR = f"""
DO $$ BEGIN
{_DELETES}
DELETE FROM setting WHERE name <> 'tables';
PERFORM setval(format('%I', sequencename)::regclass, 1, false)
    FROM pg_sequences WHERE schemaname = current_schema() AND last_value IS NOT NULL;
END $$
"""
