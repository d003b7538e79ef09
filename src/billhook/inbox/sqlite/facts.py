"""The facts of a SQLite inbox, for `billhook doctor`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from billhook.file_modes import access_by_others
from billhook.inbox.facts import SqliteFacts

_MOUNTS = Path("/proc/self/mounts")


def read_facts(connection: Connection, path: Path) -> SqliteFacts:
    """Read the facts of a SQLite file."""
    journal_mode, synchronous, fullfsync = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("journal_mode", "synchronous", "fullfsync")
    )
    library: Any = connection.dialect.dbapi
    return SqliteFacts(
        path=path,
        version=library.sqlite_version_info,
        library=library.__name__.partition(".")[0],
        journal_mode=journal_mode,
        synchronous=synchronous,
        fullfsync=bool(fullfsync),
        free_bytes=shutil.disk_usage(path.parent).free,
        file_bytes=file_bytes(path),
        file_system=file_system_of(path),
        lax_files={str(file): may for file in _files(path) if (may := access_by_others(file)) is not None},
    )


def _files(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def file_bytes(path: Path) -> int:
    """Return the size of a SQLite file, with its log."""
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
