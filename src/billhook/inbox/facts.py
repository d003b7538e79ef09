"""What is known of a database: facts that `billhook doctor` judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple


class RowSecurity(NamedTuple):
    """Row security that applies to the inbox's role, by table: the commands that no policy allows.

    The database skips what they would change or return, mostly without an error.
    """

    missing: Mapping[str, Sequence[str]] = {}

    @property
    def text(self) -> str:
        """What no policy allows: `UPDATE of delivery, SELECT and DELETE of run`; else empty."""
        return ", ".join(
            f"{' and '.join(commands)} of {table}" for table, commands in self.missing.items() if commands
        )


NO_ROW_SECURITY = RowSecurity()


class ConnectionLimit(NamedTuple):
    """How many connections a role, a database or the server has, and how many of them other programs use."""

    of_what: str
    name: str
    most: int
    others: int


@dataclass(frozen=True, slots=True)
class SqliteFacts:
    """What is known of a SQLite inbox. `synchronous` and `fullfsync` are those of billhook's connections.

    `library` is the module that they are made with, `sqlite3` or `pysqlite3`, and `version` its SQLite's.
    `file_system` is the type of the one that holds the file, None where that is unknown. `lax_files`
    are those of the inbox that other users may read or write.
    """

    path: Path
    version: tuple[int, ...]
    library: str
    journal_mode: str
    synchronous: int
    fullfsync: bool
    free_bytes: int
    file_bytes: int
    file_system: str | None
    lax_files: Mapping[str, Literal["read", "write"]]


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """What is known of an inbox on PostgreSQL. `local`: no network is between; `sslmode` is libpq's.

    `limits` are those of the connections that `role` may have. `role` and `schema` are quoted for SQL.
    """

    place: str
    version: int
    fsync: bool
    full_page_writes: bool
    superuser: bool
    local: bool
    encrypted: bool
    sslmode: str
    pooler: Literal["transaction", "session"] | None = None
    """What is taken to be kept by a pooler that was found in between."""
    inbox_bytes: int = 0
    role: str = ""
    schema: str = ""
    row_security: RowSecurity = NO_ROW_SECURITY
    limits: Sequence[ConnectionLimit] = ()
