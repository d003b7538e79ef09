"""Effects that happen once: the table `billhook_effect` in the user's own database.

A handler runs at least once: its process may die after the effect and before the inbox knows of it.
`delivery.once(session)` adds a row to this table in the user's own transaction, so that the row and the
effect are committed together or not at all, wherever the inbox is. A later attempt finds the row.

Two attempts at the same moment (the first one lost its lease and is still running) cannot both add it: on
PostgreSQL the second waits until the first one's transaction ends, on SQLite for the lock of the file. Then
it finds the row, or adds it if the first was rolled back. An attempt that waits too long has failed, and is
made again.

Projects with migrations make the table from `metadata` (for alembic: `target_metadata = [Base.metadata,
effects.metadata]`; with Flask-SQLAlchemy: `effects.effect.to_metadata(db.metadata)`), others by `create_all`.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Mapping
from contextlib import closing
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    event,
    func,
    insert,
    text,
)
from sqlalchemy import inspect as inspect_mapper
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError, UnboundExecutionError
from sqlalchemy.schema import CreateTable

from billhook.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction, scoped_session

metadata = MetaData()
effect = Table(
    "billhook_effect",
    metadata,
    # A digest of the next three columns: it has a fixed length, and is exact where a database ignores case.
    Column("id", String(64), primary_key=True),
    Column("handler", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("replays", Integer, nullable=False),
    Column("done_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""One row for each handler, delivery and replay. Rows may be deleted once no attempt can follow."""


class DriverConnection(Protocol):
    """A DB-API connection (PEP 249), as of sqlite3 or psycopg."""

    def cursor(self) -> Any: ...
    def commit(self) -> None: ...
    def rollback(self) -> None: ...


Transaction: TypeAlias = "Session | scoped_session[Any] | Connection | DriverConnection"
"""What `delivery.once` accepts: an object with an open transaction of the user."""

_INSERTS = {
    name: dialect.insert(effect).on_conflict_do_nothing().returning(effect.c.id)
    for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
}
_COLUMNS = ("id", "handler", "idempotency_key", "replays")
_PLACEHOLDERS = {"qmark": "?", "format": "%s", "pyformat": "%({})s", "named": ":{}", "numeric": ":{number}"}
"""The placeholder of a column, by the paramstyle of PEP 249."""


def create_all(target: Engine | Transaction) -> None:
    """Create the table if it is missing: in the transaction of `target`, for an engine in one of its own."""
    if isinstance(target, Engine):
        with target.begin() as connection:
            create_all(connection)
        return
    # Two processes that start at the same time may both find that it is missing.
    lock = f"SELECT pg_advisory_xact_lock(hashtext('{effect.name}'))"
    create = CreateTable(effect, if_not_exists=True)
    on = _transaction(target)
    if isinstance(on, Connection):
        if on.dialect.name == "postgresql":
            on.execute(text(lock))
        on.execute(create)
        return
    with closing(on.cursor()) as cursor:
        is_sqlite = hasattr(on, "in_transaction")
        if not is_sqlite:
            cursor.execute(lock)
        dialect = sqlite.dialect() if is_sqlite else postgresql.dialect()  # type: ignore[no-untyped-call]
        cursor.execute(str(create.compile(dialect=dialect)))


def record(transaction: Transaction, handler: str, idempotency_key: str, replays: int) -> bool:
    """Add the row of an effect in the user's transaction; return False if it is there. See Delivery.once.

    Raises ConfigError.
    """
    digest = sha256(json.dumps([handler, idempotency_key, replays]).encode("ascii")).hexdigest()
    row = dict(zip(_COLUMNS, (digest, handler, idempotency_key, replays), strict=True))
    on = _transaction(transaction)
    try:
        return _insert(on, row) if isinstance(on, Connection) else _insert_by_driver(on, row)
    except Exception as error:
        said = str(getattr(error, "orig", error))
        if effect.name in said and any(part in said for part in ("no such", "not exist", "n't exist")):
            raise ConfigError(
                f"this database has no table {effect.name} as billhook needs it: create it once with "
                "billhook.effects.create_all(engine), or by a migration from billhook.effects.metadata"
            ) from error
        raise


def _transaction(target: Any) -> Connection | DriverConnection:
    """Return the connection of a session, or the connection itself. Raises ConfigError for anything else."""
    if isinstance(target, Connection):
        return target
    kind = f"{type(target).__module__}.{type(target).__qualname__}"
    if hasattr(target, "run_sync"):
        raise ConfigError(f"{kind} is asynchronous: say `await session.run_sync(delivery.once)`")
    if inspect.iscoroutinefunction(getattr(target, "commit", None)):
        raise ConfigError(f"{kind} is asynchronous: once() takes a session or a connection that is not")
    if hasattr(target, "get_bind") and hasattr(target, "connection"):  # a Session, also one of scoped_session
        return _session_connection(target() if callable(target) else target)
    if hasattr(target, "in_atomic_block"):  # Django's
        if not target.in_atomic_block:
            raise ConfigError("once() needs an open transaction: call it within transaction.atomic()")
        target = target.connection
    if hasattr(target, "cursor") and hasattr(target, "commit"):
        return getattr(target, "driver_connection", target)  # type: ignore[no-any-return]
    raise ConfigError(
        f"once() got {kind}: it takes a SQLAlchemy session or connection, or a DB-API connection, "
        "whose transaction you commit together with the effect"
    )


_ENGINE = "billhook_effect_engine"
"""Key in `session.info`: the engine of the row of the current transaction."""


def _session_connection(session: Session) -> Connection:
    """Return the session's connection. Objects of another database are refused, now and when flushed."""
    try:
        connection = session.connection()
    except UnboundExecutionError:
        raise ConfigError(
            f"the session has binds only, and none for {effect.name}: {_OF_ITS_CONNECTION}"
        ) from None
    if _ENGINE not in session.info:
        event.listen(session, "after_flush", _check_engine)
        event.listen(session, "after_transaction_end", _forget_engine)
    session.info[_ENGINE] = connection.engine
    _check_engine(session)
    return connection


_OF_ITS_CONNECTION = (
    "give once() the connection of the database with the effect, "
    'delivery.once(session.connection(bind_arguments={"mapper": Model}))'
)


def _check_engine(session: Session, *_: object) -> None:
    """Raise ConfigError if the transaction changes objects of another database than that of the row."""
    engine = session.info.get(_ENGINE)
    if engine is None:
        return
    modified = [one for one in session.dirty if session.is_modified(one)]
    for changed in (*session.new, *modified, *session.deleted):
        # Ask with the mapper, as SQLAlchemy does: a session that routes by class reads `mapper.class_`.
        if session.get_bind(inspect_mapper(type(changed))).engine is not engine:
            raise ConfigError(
                f"{type(changed).__qualname__} is in another database than the row of once(), so that they "
                f"would not be committed together: {_OF_ITS_CONNECTION}"
            )


def _forget_engine(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None:
        session.info[_ENGINE] = None


def _insert(connection: Connection, row: Mapping[str, Any]) -> bool:
    if not connection.in_transaction():
        connection.begin()  # as execute() would, but before the check
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        raise _commits_itself()
    _check_transaction(connection.connection.driver_connection)
    statement = _INSERTS.get(connection.dialect.name)
    if statement is None:
        return _insert_in_savepoint(connection, row)
    # Do not use rowcount: with SQLAlchemy 2.1 psycopg returns -1.
    return connection.execute(statement, row).first() is not None


def _insert_in_savepoint(connection: Connection, row: Mapping[str, Any]) -> bool:
    """Insert on a database without ON CONFLICT; a savepoint keeps the transaction usable."""
    try:
        with connection.begin_nested():
            connection.execute(insert(effect), row)
    except IntegrityError:
        return False
    return True


def _insert_by_driver(connection: DriverConnection, row: Mapping[str, Any]) -> bool:
    style = _paramstyle(type(connection))
    _check_transaction(connection)
    placeholder = _PLACEHOLDERS[style]
    values = ", ".join(placeholder.format(name, number=n) for n, name in enumerate(_COLUMNS, 1))
    # The names are this module's own; ON CONFLICT is the same in SQLite and PostgreSQL.
    statement = f"INSERT INTO {effect.name} ({', '.join(_COLUMNS)}) VALUES ({values}) ON CONFLICT DO NOTHING"  # noqa: S608
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement, row if style in ("named", "pyformat") else tuple(row.values()))
        if cursor.rowcount not in (0, 1):  # False would lose the effect, if the row was inserted
            raise ConfigError(
                f"the driver reported {cursor.rowcount} inserted rows instead of 0 or 1: call once() outside "
                "of psycopg's pipeline mode"
            )
        return bool(cursor.rowcount)


def _paramstyle(kind: type) -> str:
    """Return the paramstyle of the DB-API module that a class of connections comes from, or its base does."""
    for base in kind.__mro__:
        parts = base.__module__.split(".")
        for length in range(len(parts), 0, -1):
            module = sys.modules.get(".".join(parts[:length]))
            style = getattr(module, "paramstyle", None)
            if style in _PLACEHOLDERS:
                return str(style)
    raise ConfigError(
        f"once() got {kind.__module__}.{kind.__qualname__}, whose module declares no DB-API paramstyle: "
        "give it the connection of sqlite3 or psycopg itself"
    )


def _check_transaction(driver: Any) -> None:
    """Raise ConfigError if the connection would commit the row at once, before the effect is made."""
    if hasattr(driver, "in_transaction"):  # sqlite3
        by_itself = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
        idle = not driver.in_transaction
    else:
        by_itself = getattr(driver, "autocommit", None) is True
        # psycopg: within transaction() there is a transaction nevertheless.
        info = getattr(driver, "info", None)
        idle = getattr(info, "transaction_status", 0) == 0
    if by_itself and idle:
        raise _commits_itself()


def _commits_itself() -> ConfigError:
    return ConfigError(
        "this connection commits each statement by itself (autocommit), so the effect could be lost: open a "
        "transaction before once(), and commit it after the effect"
    )
