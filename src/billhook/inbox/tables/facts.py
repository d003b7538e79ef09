"""What is known of a database: facts that `billhook doctor` judges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol


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


class Problem(NamedTuple):
    """What is wrong with a database, why it matters, and what to do. `code` names its kind, and stays."""

    level: Literal["error", "warning", "note"]
    code: str
    what: str
    why: str
    remedy: str


class DatabaseFacts(Protocol):
    """What is known of the database that an inbox is in."""

    @property
    def size_text(self) -> str:
        """How large the inbox is, and what its database is."""

    def problems(self, web: int, workers: int) -> Iterator[Problem]:
        """Judge it for that many processes: does a commit survive, who else can read it, may they connect?"""
