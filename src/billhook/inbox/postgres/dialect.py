"""The SQL of PostgreSQL. billhook.inbox.sqlite.dialect is beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Table,
    Text,
    bindparam,
    cast,
    column,
    exists,
    func,
    literal_column,
    select,
    text,
    true,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY, JSON
from sqlalchemy.types import TypeEngine, UserDefinedType

from billhook.inbox.tables.dialect import FirstRuns, InboxDialect, RunUpdate, json_text
from billhook.inbox.tables.records import RunPlan, RunResult
from billhook.inbox.tables.schema import delivery, run, watermark
from billhook.inbox.tables.sql import TextOfTables, in_parameter, name_of

_COUNTS = 0x636E7473  # "cnts"
# Of this inbox, by the number of its table: what moves the watermark only tries to take it, and another inbox
# of the database must not keep it off. The table has one row.
_COUNTS_OF_INBOX: ColumnElement[int] = literal_column(f"({_COUNTS}::bigint << 32) + tableoid::bigint")
_TRY_COUNTS = select(func.pg_try_advisory_xact_lock(_COUNTS_OF_INBOX)).select_from(watermark)
_HOLD = {
    "counts": select(func.pg_advisory_xact_lock(_COUNTS_OF_INBOX)).select_from(watermark),
    "order": select(func.pg_advisory_xact_lock(0x6F726472)),  # "ordr"
    "conflicts": select(func.pg_advisory_xact_lock(0x636F6E66)),  # "conf"
    "limits": select(func.pg_advisory_xact_lock(0x6C696D74)),  # "limt"
}
_ITS_ORDERED = select(run.c.id).where(
    in_parameter(run.c.delivery_id, "delivery_ids"), run.c.order_key.is_not(None)
)
_HOLD_OF = {
    "order": _HOLD["order"].where(exists(_ITS_ORDERED)),
    "deliveries": select(delivery.c.id)
    .where(in_parameter(delivery.c.id, "delivery_ids"))
    # In the order of the ids: two transactions meet at the lowest id that both need. FOR NO KEY UPDATE: one
    # that writes a run twice has its foreign key checked, and must not wait for this, holding other locks.
    .order_by(delivery.c.id)
    .with_for_update(key_share=True),
}
_WRITERS = text(
    "SELECT virtualtransaction FROM pg_locks WHERE mode IN ('RowShareLock', 'RowExclusiveLock')"
    " AND relation = ANY (CAST(:tables AS regclass[]))"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@cache
def _insert_runs(columns: Sequence[str]) -> TextOfTables:
    names = ", ".join(columns)
    return TextOfTables(
        f"INSERT INTO $run ({names}) SELECT {names} "  # noqa: S608 - our own columns
        "FROM json_populate_recordset(json_populate_record(NULL::$run, CAST(:shared AS json)), "
        "CAST(:rows AS json)) RETURNING id, delivery_id, handler"
    )


@cache
def _update_runs(update: RunUpdate) -> Any:
    rows = POSTGRES.rows("results", update.columns)
    return update.statement(dict(rows.c.items())).returning(*update.found.selected_columns)


class _Numbers(UserDefinedType[Any]):
    """An array of integers, given as text."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "BIGINT[]"


class PostgresDialect(InboxDialect):
    """The SQL of PostgreSQL, where transactions write beside each other."""

    watermark_lag = timedelta(seconds=6)
    every_column = text(
        "SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = :schema AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped"
    )
    in_list = "{} = ANY ({})"
    position = "position({1} IN {0})"
    hour = "date_trunc('hour', {}, 'UTC')"
    minute = "date_trunc('minute', {}, 'UTC')"
    each_text = "json_array_elements_text(CAST({} AS json)) AS one (value)"
    by_index = ""
    """Empty: by both conditions PostgreSQL would expect few rows, and read the whole table."""

    def list_type(self, *, numbers: bool) -> TypeEngine[Any]:
        """Return the type of an array."""
        return _Numbers() if numbers else ARRAY(Text())

    def list_value(self, values: list[Any]) -> Any:
        """Return an array; one of numbers as text, which the driver would make number by number."""
        return values if values and isinstance(values[0], str) else f"{{{','.join(map(str, values))}}}"

    def rows(self, parameter: str, columns: Mapping[str, TypeEngine[Any]]) -> FromClause:
        """Return the rows of a JSON text."""
        record = func.json_to_recordset(cast(bindparam(parameter, type_=Text), JSON))
        typed = [column(name, column_type) for name, column_type in columns.items()]
        return record.table_valued(*typed, name=parameter).render_derived(with_types=True)

    def insert(self, table: Table) -> postgresql.Insert:
        """Return PostgreSQL's insert."""
        return postgresql.insert(table)

    def hour_text(self, moment: ColumnElement[datetime]) -> ColumnElement[str]:
        """Return the hour by to_char()."""
        return func.to_char(func.timezone("UTC", moment), "YYYY-MM-DD HH24")

    def json_object(self, key: ColumnElement[str], value: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return json_object_agg()."""
        return func.json_object_agg(key, value)

    def insert_runs(
        self,
        connection: Connection,
        columns: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        shared: Mapping[str, Any],
    ) -> dict[tuple[int, str], int]:
        """Insert them in one statement."""
        values = {"rows": json_text(rows), "shared": json_text(shared)}
        inserted = connection.execute(_insert_runs(columns), values)
        return {(delivery_id, name): run_id for run_id, delivery_id, name in inserted}

    def update_runs(
        self, connection: Connection, update: RunUpdate, rows: Sequence[Mapping[str, Any]]
    ) -> Sequence[Sequence[Any]]:
        """Update them in one statement."""
        return connection.execute(_update_runs(update), {"results": json_text(rows)}).all()

    def texts(self, name: str, *columns: str) -> FromClause:
        """Return an array for each column: of JSON it expects a hundred rows, and would read all runs."""
        arrays = [bindparam(f"{name}_{column}", type_=ARRAY(Text)) for column in columns]
        return func.unnest(*arrays).table_valued(*columns).render_derived(name=name)

    def texts_value(self, name: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Return the arrays."""
        values = zip(*rows, strict=True)
        return {f"{name}_{column}": [*of_it] for column, of_it in zip(columns, values, strict=True)}

    def first_of_each(
        self, names: str, first: FirstRuns, columns: Sequence[Any]
    ) -> tuple[FromClause, Sequence[ColumnElement[Any]]]:
        """Return them by a subquery for each handler, which skips what another transaction has locked."""
        each = func.json_array_elements_text(cast(bindparam(names, type_=Text), JSON))
        wanted = each.table_valued("value", name="wanted")
        selected = first(run, wanted.c.value, columns).correlate(wanted)
        few = selected.with_for_update(of=run, skip_locked=True).lateral("few")
        return wanted.join(few, true()), list(few.c)

    def hold(self, connection: Connection, lock: str, delivery_ids: Collection[int] | None = None) -> None:
        """Hold the advisory lock, or the rows of the deliveries."""
        if delivery_ids is None:
            connection.execute(_HOLD[lock])
        else:
            connection.execute(_HOLD_OF[lock], {"delivery_ids": sorted(delivery_ids)})

    def try_to_lock_counts(self, connection: Connection) -> bool:
        """Return whether it has the lock of counts."""
        return bool(connection.execute(_TRY_COUNTS).scalar_one())

    def lock_work(
        self, connection: Connection, results: Sequence[RunResult], plans: Sequence[RunPlan]
    ) -> None:
        """Hold the lock of ordered runs, if one is ordered, and then the deliveries."""
        delivery_ids = {each.delivery_id for each in results} | {each.delivery_id for each in plans}
        if any(each.options for each in plans) or any(each.ordered for each in results):
            self.hold(connection, "order")
        if results or len(delivery_ids) > 1:  # a plan alone locks its delivery itself
            self.hold(connection, "deliveries", delivery_ids)

    def writers(
        self, connection: Connection, tables: Sequence[Table], now: datetime
    ) -> tuple[datetime, frozenset[str]]:
        """Return the transactions that hold a lock which one takes first that writes."""
        now = min(now, connection.execute(select(func.now())).scalar_one())
        names = [name_of(connection, table) for table in tables]
        return now, frozenset(connection.execute(_WRITERS, {"tables": names}).scalars())


POSTGRES = PostgresDialect()
