"""Read facts about an inbox and a sample of its deliveries, for `billhook doctor`, which judges them."""

from __future__ import annotations

import ipaddress
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection, func, select, text

from billhook.file_modes import access_by_others
from billhook.inbox.database import NO_ROW_SECURITY, ConnectionLimit, RowSecurity
from billhook.inbox.filters import TYPE_IS_UNREAD
from billhook.inbox.inbox import Inbox
from billhook.inbox.retention import EMPTY
from billhook.inbox.schema import delivery
from billhook.inbox.sql import in_states

_MOUNTS = Path("/proc/self/mounts")
_POSTGRES_BYTES = text(
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
    " WHERE relkind = 'r' AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :schema)"
)
_NAMES = text("SELECT quote_ident(current_user), quote_ident(:schema)")


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


@dataclass(frozen=True, slots=True)
class SampledDelivery:
    """A stored delivery; `headers` are JSON text."""

    id: int
    event_type: str
    body: bytes
    received_at: datetime
    signed_at: datetime | None
    headers: str = "{}"


def inbox_facts(inbox: Inbox) -> SqliteFacts | PostgresFacts:
    """Read the facts. Raises InboxUnavailable or SchemaMismatch."""
    with inbox.database.read() as connection:
        if connection.dialect.name == "sqlite":
            return _sqlite_facts(connection, Path(inbox.database.display_url))
        return _postgres_facts(connection, inbox)


def free_bytes(inbox: Inbox) -> tuple[int, int] | None:
    """Return how many bytes are free beside a SQLite inbox, and its size; None for another."""
    path: Path | None = getattr(inbox.database, "path", None)
    return None if path is None else (shutil.disk_usage(path.parent).free, _file_bytes(path))


def newest_deliveries(inbox: Inbox, most: int, most_bytes: int) -> list[SampledDelivery]:
    """Return the newest deliveries with their bodies: `most` at most, with `most_bytes` at most."""
    size = func.length(delivery.c.body)
    found = select(delivery.c.id, size.label("size")).where(
        ~in_states(delivery.c.state, *EMPTY), ~TYPE_IS_UNREAD, size <= most_bytes
    )
    newest = found.order_by(delivery.c.id.desc()).limit(most).subquery().c
    # With the bytes of all that are newer: no body is read that would be too many.
    sums = func.sum(newest.size).over(order_by=newest.id.desc()).label("bytes")
    with_sums = select(newest.id, sums).subquery()
    columns = (delivery.c[each.name] for each in fields(SampledDelivery))
    query = select(*columns).join(with_sums, with_sums.c.id == delivery.c.id)
    query = query.where(with_sums.c.bytes <= most_bytes).order_by(delivery.c.id.desc())
    with inbox.database.read() as connection:
        return [SampledDelivery(*row) for row in connection.execute(query)]


def _sqlite_facts(connection: Connection, path: Path) -> SqliteFacts:
    journal_mode, synchronous, fullfsync = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("journal_mode", "synchronous", "fullfsync")
    )
    library: Any = connection.dialect.dbapi
    files = _files(path)
    return SqliteFacts(
        path=path,
        version=library.sqlite_version_info,
        library=library.__name__.partition(".")[0],
        journal_mode=journal_mode,
        synchronous=synchronous,
        fullfsync=bool(fullfsync),
        free_bytes=shutil.disk_usage(path.parent).free,
        file_bytes=_file_bytes(path),
        file_system=file_system_of(path),
        lax_files={str(file): may for file in files if (may := access_by_others(file)) is not None},
    )


def _files(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def _file_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path) if file.exists())


def file_system_of(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the type of the file system that holds `path`, from the system's table of mounts."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    best, found = -1, None
    place = str(path.resolve())
    for line in lines:
        _, mount, kind = (part.encode().decode("unicode_escape") for part in line.split(" ")[:3])
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:  # of two at one place the later hides the earlier
            best, found = len(mount), kind
    return found


def _postgres_facts(connection: Connection, inbox: Inbox) -> PostgresFacts:
    from billhook.inbox.postgres.roles import connection_limits

    shown = {
        name: connection.execute(text(f"SHOW {name}")).scalar_one()
        for name in ("server_version_num", "fsync", "full_page_writes", "is_superuser")
    }
    role, schema = connection.execute(_NAMES, {"schema": inbox.database.schema}).one()
    session: Any = connection.connection.driver_connection
    options = {option.keyword: option.val for option in session.pgconn.info}
    return PostgresFacts(
        place=inbox.database.display_url,
        version=int(shown["server_version_num"]) // 10_000,
        fsync=shown["fsync"] == "on",
        full_page_writes=shown["full_page_writes"] == "on",
        superuser=shown["is_superuser"] == "on",
        local=is_local(session.info.host),
        encrypted=bool(session.pgconn.ssl_in_use),
        sslmode=(options.get(b"sslmode") or b"prefer").decode(),
        pooler=None if not session.has_pooler else "transaction" if session.is_pooled else "session",
        inbox_bytes=connection.execute(_POSTGRES_BYTES, {"schema": inbox.database.schema}).scalar_one(),
        role=role,
        schema=schema,
        row_security=inbox.database.row_security(),
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
