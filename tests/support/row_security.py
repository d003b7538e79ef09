"""Row security on an inbox in PostgreSQL, for a role that is not its owner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from support.inbox_view import upgraded
from support.postgres import guest_of, libpq

COMMANDS = ("SELECT", "INSERT", "UPDATE", "DELETE")


class Protected:
    """An inbox that `url` may use by GRANT; `admin` changes its row security, which is off at first."""

    def __init__(self, admin: psycopg.Connection[object], role: str, url: str) -> None:
        self.admin, self.role, self.url = admin, role, url

    def execute(self, statement: str) -> None:
        self.admin.execute(statement.encode())

    def allow(self, table: str, *commands: str) -> None:
        """Row security of the table lets the role do this, and nothing else."""
        self.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        for command in COMMANDS:
            self.execute(f"DROP POLICY IF EXISTS for_{command} ON {table}")
        for command in commands:
            rows = "WITH CHECK (true)" if command == "INSERT" else "USING (true)"
            self.execute(f"CREATE POLICY for_{command} ON {table} FOR {command} TO {self.role} {rows}")

    def allow_all_but(self, table: str, refused: str) -> None:
        self.allow(table, *(command for command in COMMANDS if command != refused))


@contextlib.contextmanager
def protected_inbox(database_url: str) -> Iterator[Protected]:
    upgraded(database_url)
    with (
        guest_of(database_url) as (role, url),
        psycopg.connect(**libpq(database_url), autocommit=True) as admin,
    ):
        made = Protected(admin, role, url)
        made.execute(f"GRANT USAGE ON SCHEMA billhook TO {role}")
        made.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA billhook TO {role}")
        made.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA billhook TO {role}")
        made.execute("SET search_path = billhook")
        yield made
