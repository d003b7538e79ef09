"""The SQLite file itself: created once, and checked before it is opened.

SQLite goes on writing into a file that was moved away, and pairs a file with its write-ahead log by their
names alone. Given another file of the inbox's name, for example a backup, it would write the old file's log
into it and destroy it. So the lock file records which file was last opened with which log, by their numbers
in the file system; the record outlives the processes, as the log does.
"""

from __future__ import annotations

import logging
import os
import shlex
import urllib.parse
from contextlib import closing, suppress
from errno import EACCES, EISDIR
from pathlib import Path

from billhook.basics.file_modes import access_by_others, open_own
from billhook.errors import ConfigError, ForeignFile
from billhook.inbox.sqlite.library import sqlite3
from billhook.inbox.tables.revision import REVISION
from billhook.inbox.tables.schema import version

logger = logging.getLogger("billhook.inbox")

_NAMED = 5
"""How many tables the error of a foreign file names."""
_LOGS = ("-wal", "-shm")
"""The write-ahead log and its index: SQLite pairs them with the file by their names."""
_NO_FILE = "none"
_REWRITE_BYTES = 256 * 1024


def create(path: Path, *, own_folder: bool) -> None:
    """Create the file, readable by its owner only, where it is missing; and its folder, if `own_folder`.

    Otherwise a missing folder is a ConfigError: a typing error in a path must not make an empty inbox.
    """
    if not (own_folder or path.parent.exists()):
        folder = path.parent
        raise ConfigError(
            f"the inbox's folder {folder} does not exist: make it, or correct BILLHOOK_INBOX_URL"
        )
    try:
        missing = [folder for folder in path.parents if not folder.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            # Not opened: closing it would drop the locks that another app of this process has on it.
            wrong = EISDIR if path.is_dir() else 0 if os.access(path, os.R_OK | os.W_OK) else EACCES
            if wrong:
                raise OSError(wrong, os.strerror(wrong))  # noqa: TRY301 - as the opening of a new file does
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            # A file whose name is not on the disk is lost with all that is in it.
            for folder in (path.parent, *(folder_made.parent for folder_made in missing)):
                sync(folder)
    except OSError as error:
        raise ConfigError(f"the inbox {path} cannot be opened: {error.strerror}") from None
    # The file holds customers' data, and what was received.
    files = [beside(path, suffix) for suffix in ("", *_LOGS)]
    access = {str(file): may for file in files if (may := access_by_others(file)) is not None}
    if access:
        most = "write" if "write" in access.values() else "read"
        command = shlex.join(["chmod", "600", *access])
        logger.warning("others may %s the inbox %s; run: %s", most, path, command)


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a helper file: the inbox's own name and a suffix."""
    return path.with_name(path.name + suffix)


def sync(folder: Path) -> None:
    """Write the names in a folder, or the bytes of a file, to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rewrite(path: Path) -> None:
    """Write all bytes of a file again and sync them: fsync alone skips what an earlier one failed to write.

    The caller makes sure that nothing else writes there. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        offset = 0
        while data := os.pread(descriptor, _REWRITE_BYTES, offset):
            offset += os.pwrite(descriptor, data, offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_foreign_file(path: Path, *, beside_its_log: bool = True) -> None:
    """Raise ForeignFile for a file with tables and no inbox; sqlite3.Error for one that is no database.

    A file with an inbox may hold other tables too: earlier versions put the inbox anywhere. Without
    `beside_its_log` the log is read only where the file itself is empty: it may be another file's.
    """
    # Without a log no process has the file open: `immutable` then keeps SQLite from creating one to read it.
    file = path.resolve()  # where the path is a link, the log is beside the file itself
    log = beside(file, "-wal").exists()
    names = _tables(file, "mode=ro" if log and beside_its_log else "mode=ro&immutable=1")
    if log and not (names or beside_its_log):
        names = _tables(file, "mode=ro")
    if names and version.name not in names:
        more = ", …" if len(names) > _NAMED else ""
        raise ForeignFile(str(path), ", ".join(names[:_NAMED]) + more, REVISION)


def _tables(path: Path, mode: str) -> list[str]:
    with closing(sqlite3.connect(f"file:{urllib.parse.quote(str(path))}?{mode}", uri=True)) as connection:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1"
        return [name for (name,) in connection.execute(query)]


def record_log_owner(path: Path) -> None:
    """Record the file and the log that it is opened with now. Raises OSError."""
    now = "\n".join(_numbers(path)).encode()
    descriptor = open_own(_record(path))
    try:
        if os.pread(descriptor, len(now) + 1, 0) != now:
            os.pwrite(descriptor, now, 0)
            os.ftruncate(descriptor, len(now))
    finally:
        os.close(descriptor)


def check_log_belongs(path: Path) -> None:
    """Raise OSError if the file is another than the one whose log lies beside it."""
    recorded = []
    with suppress(FileNotFoundError):
        recorded = _record(path).read_text(encoding="ascii", errors="replace").split("\n")
    now = _numbers(path)
    if len(recorded) != len(now) or recorded[0] == now[0]:
        return
    # Only a log that is the same file as before is the old one's: a new one belongs to the new file.
    left = [
        f"{path.name}{suffix}"
        for suffix, before, after in zip(_LOGS, recorded[1:], now[1:], strict=True)
        if before == after != _NO_FILE
    ]
    if left:
        there = "is" if len(left) == 1 else "are"
        raise OSError(
            f"it was replaced, and {' and '.join(left)} of the one before {there} still there: stop all that "
            f"uses it, remove {' and '.join(left)}, and start again; `billhook db restore` replaces it safely"
        )


def _record(path: Path) -> Path:
    return beside(path, "-lock")


def _numbers(path: Path) -> list[str]:
    """Return device and inode of the file, its log and the log's index, or that there is none."""
    numbers = []
    for suffix in ("", *_LOGS):
        try:
            status = beside(path, suffix).stat()
            numbers.append(f"{status.st_dev} {status.st_ino}")
        except FileNotFoundError:
            numbers.append(_NO_FILE)
    return numbers
