"""The facts of a SQLite inbox, for `billhook doctor`."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Connection

from billhook.basics.file_modes import access_by_others
from billhook.inbox.tables.facts import Problem

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = (
    *("nfs", "cifs", "smb", "afs", "9p", "ceph", "gluster", "lustre", "fuse.sshfs", "fuse.s3fs", "davfs"),
)
_MEMORY = ("tmpfs", "ramfs")
_FIXED_VERSION = (3, 51, 3)
_MIB = 1024 * 1024


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

    @property
    def size_text(self) -> str:
        """The size, the free space, and the library."""
        version = ".".join(map(str, self.version))
        sizes = f"{self.file_bytes / _MIB:,.1f} MiB, {self.free_bytes // _MIB:,} MiB are free"
        return f"{sizes}, SQLite {version} ({self.library})"

    def problems(self, web: int, workers: int, platform: str = sys.platform) -> Iterator[Problem]:
        """Judge the file, the library and their settings; any number of processes may open it."""
        if self.journal_mode != "wal" or self.synchronous != 2:
            yield Problem(
                "error", "sqlite-durability",
                f"journal_mode is {self.journal_mode} and synchronous {self.synchronous}, not wal and 2",
                "a delivery that was answered 200 may be gone after a power failure",
                "stop other programs that open the inbox and change these settings",
            )  # fmt: skip
        if platform == "darwin" and not self.fullfsync:
            yield Problem(
                "error", "sqlite-fullfsync", "fullfsync is off",
                "on macOS a commit then stays in the drive's own memory, and a power failure loses it",
                "use a SQLite that knows PRAGMA fullfsync",
            )  # fmt: skip
        kind = self.file_system or ""
        if kind.startswith(_NETWORK):
            yield Problem(
                "error", "network-file-system", f"{self.path} is on a network file system ({kind})",
                "its locks and its fsync are not to be trusted: two processes may corrupt the inbox",
                "put it on a local disk, or use PostgreSQL for several machines (BILLHOOK_INBOX_URL)",
            )  # fmt: skip
        elif kind in _MEMORY:
            yield Problem(
                "error", "inbox-in-memory", f"{self.path} is on {kind}, which is memory",
                "every delivery is lost when the machine or the container restarts",
                "put it on a disk or a volume (BILLHOOK_INBOX_URL)",
            )  # fmt: skip
        elif kind == "overlay":
            yield Problem(
                "warning", "inbox-in-container", f"{self.path} is in a container's own layer (overlay)",
                "it is deleted together with the container, with all deliveries",
                "put it on a volume (BILLHOOK_INBOX_URL)",
            )  # fmt: skip
        if self.version < _FIXED_VERSION:
            version = ".".join(map(str, self.version))
            yield Problem(
                "note", "sqlite-version",
                f"SQLite is {version} ({self.library}): before 3.51.3 it has the WAL-reset bug",
                "billhook keeps clear of it; another program that writes to the file may corrupt it",
                "on Linux with x86-64: `pip install --upgrade pysqlite3`; elsewhere upgrade SQLite, or leave "
                "the file to billhook, and back it up with `billhook db backup`",
            )  # fmt: skip
        for level, may in (("error", "write"), ("warning", "read")):
            files = [name for name, access in self.lax_files.items() if access == may]
            if files:
                yield Problem(
                    "error" if level == "error" else "warning", f"inbox-mode-{may}",
                    f"other users may {may} {', '.join(files)}",
                    "the inbox holds customers' data, and what handlers will be given",
                    f"chmod 600 {shlex.join(files)}",
                )  # fmt: skip


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
