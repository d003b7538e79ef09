"""What the databases do differently in SQL. All other statements are written once, and are the same on both.

billhook.inbox.sqlite.dialect and billhook.inbox.postgres.dialect implement the protocol, side by side. A
Database gives its own to the dialect of its engine, where `dialect_of` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic_core import to_json
from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table, TextClause, Update
from sqlalchemy import Dialect as AnyDialect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from billhook.inbox.tables.records import RunPlan, RunResult

FirstRuns = Callable[[FromClause, ColumnElement[str], Sequence[Any]], Select[Any]]
"""Given a table of runs and a name, selects columns of the first runs of the handler."""


@dataclass(frozen=True, eq=False)
class RunUpdate:
    """An update of runs by rows with these columns, among them `run_id` and `fencing_token`.

    `found` selects, by the parameter `run_ids`, the runs that may be updated: first their id and token.
    """

    columns: Mapping[str, TypeEngine[Any]]
    statement: Callable[[Mapping[str, ColumnElement[Any]]], Update]
    found: Select[Any]


def json_text(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> str:
    """Return rows, or one, as JSON text: a parameter of InboxDialect.rows. Times are for PostgreSQL."""
    # Not by `json`: of one text with a thousand times and NULLs it needs the fourfold time.
    return to_json(rows).decode()


class InboxDialect(Protocol):
    """The SQL of one database. A lock is right where nothing has to be done."""

    if TYPE_CHECKING:

        def __hash__(self) -> int:
            """Return that of its identity, as any object does: for each, a statement is built once."""
            return id(self)

    watermark_lag: timedelta
    """How far the watermark of counts stays behind the clock at least: see billhook.inbox.counting.counts."""

    every_column: TextClause
    """Selects each table with each of its columns; of the `schema`, where there is one."""

    # --- values ---------------------------------------------------------------------------------------

    write_time: Callable[[datetime | None], Any] | None = None
    """Makes a parameter of a time in any zone, or of None, where the driver does not."""
    read_time: Callable[[Any], datetime | None] | None = None
    """Makes a time in UTC of a column's value, where the driver does not."""

    def list_type(self, *, numbers: bool) -> TypeEngine[Any]:
        """Return the type of a parameter with any number of values, integers or texts."""

    list_value: Callable[[list[Any]], Any]
    """Makes such a parameter."""

    def rows(self, parameter: str, columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
        """Return the rows of a parameter, made by `json_text`, to be joined with a table."""

    def insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """Return an insert that may say what to do `on_conflict`."""

    # --- parts of texts: see inbox.tables.sql.TextOfTables --------------------------------------------

    in_list: str
    """The condition that a column has one of the values of a list parameter."""
    position: str
    """The place in a column of bytes of a value of bytes, from 1; 0 where they are not in it."""
    hour: str
    """The beginning of a moment's hour, in UTC."""
    minute: str
    """The beginning of its minute."""
    each_text: str
    """The rows of a parameter with a JSON text: a list of texts, of which each is a `value`."""
    by_index: str
    """The condition of a partial index, and AND, where one that implies it is not enough."""

    def hour_text(self, moment: ColumnElement[datetime]) -> ColumnElement[str]:
        """Return its hour in UTC as `2026-01-31 23`."""

    def json_object(self, key: ColumnElement[str], value: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return the aggregate of all rows as a JSON object."""

    # --- whole statements -----------------------------------------------------------------------------

    def insert_runs(
        self,
        connection: Connection,
        columns: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        shared: Mapping[str, Any],
    ) -> dict[tuple[int, str], int]:
        """Insert runs; return their ids by delivery and handler. A row has what is not as in `shared`."""

    def update_runs(
        self, connection: Connection, update: RunUpdate, rows: Sequence[Mapping[str, Any]]
    ) -> Sequence[Sequence[Any]]:
        """Update a run for each of the rows, if it is found; return what was found of these runs."""

    def texts(self, name: str, *columns: str) -> FromClause:
        """Return few rows of texts as a table of that name, to be joined by an index."""

    def texts_value(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Return the parameters of `texts`."""

    def first_of_each(
        self, names: str, first: FirstRuns, columns: Sequence[Any]
    ) -> tuple[FromClause, Sequence[ColumnElement[Any]]]:
        """Return the first runs of each of these handlers with these columns of them, and the columns there.

        `names` is a parameter with a JSON text. Where other transactions write too, the runs are locked.
        """

    # --- locks: see inbox.tables.locks -------------------------------------------------------

    def hold(self, connection: Connection, lock: str, delivery_ids: Collection[int] | None = None) -> None:
        """Hold a lock of billhook.inbox.tables.locks: of all, or of these deliveries."""
        return

    def try_to_lock_counts(self, connection: Connection) -> bool:
        """Return whether it has the lock of counts; never waits."""
        return True

    def lock_work(
        self, connection: Connection, results: Sequence[RunResult], plans: Sequence[RunPlan]
    ) -> None:
        """Hold what settling these results and planning these deliveries needs, in the order of locks."""
        return

    def writers(
        self, connection: Connection, tables: Sequence[Table], now: datetime
    ) -> tuple[datetime, frozenset[str]]:
        """Return the transactions that may yet commit rows of these tables, and `now` or their own time."""
        return now, frozenset()


OwnDialect = TypeVar("OwnDialect", bound=AnyDialect)


def with_own(dialect: OwnDialect, own: InboxDialect, place: str = "") -> OwnDialect:
    """Have a dialect of SQLAlchemy know that of the inbox, and where the inbox is; return it."""
    vars(dialect).update(billhook=own, billhook_place=place)
    return dialect


def own_dialect(dialect: AnyDialect) -> InboxDialect:
    """Return what `with_own` gave it."""
    own: InboxDialect = dialect.billhook  # type: ignore[attr-defined]
    return own


def place_of(connection: Connection) -> str:
    """Return the address of the inbox that a connection is to, for people."""
    place: str = connection.dialect.billhook_place  # type: ignore[attr-defined]
    return place


def dialect_of(connection: Connection) -> InboxDialect:
    """Return the SQL of the database that a connection is to."""
    own: InboxDialect = connection.dialect.billhook  # type: ignore[attr-defined]
    return own
