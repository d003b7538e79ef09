"""Back up an inbox in a SQLite file while it is in use, and restore one while no process uses it."""

from __future__ import annotations

import fcntl
import os
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from billhook.basics.file_modes import open_new, open_own
from billhook.errors import ConfigError, InboxError
from billhook.inbox.sqlite.dialect import EVERY_COLUMN
from billhook.inbox.sqlite.driver import connect
from billhook.inbox.sqlite.file import refuse_foreign_file, sync
from billhook.inbox.sqlite.library import sqlite3
from billhook.inbox.tables.revision import require_upgradable
from billhook.inbox.tables.schema import version, worker

Progress = Callable[[int, int], None]
"""Called with (pages done, pages in all) now and then."""
_PAGES = 512
_LOCKS = (("", 0x4000_0000, 512), ("-shm", 120, 9))
"""Where SQLite locks the file and the log's index: each connection in WAL mode locks a part of both."""


def back_up(path: Path, target: Path, busy_seconds: float, progress: Progress) -> int:
    """Write a snapshot of the inbox into `target`, which must not exist; returns its deliveries.

    Receivers and workers go on. Raises ConfigError, or InboxError for a copy that failed and was removed.
    """
    with _new_file(target), _failures(f"the backup {target}"):
        with closing(connect(path, busy_seconds)) as source:
            source.execute("BEGIN")  # else every commit of another process would restart the copy
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            deliveries = _copy(source, target, progress, of=path)
        sync(target)
        sync(target.absolute().parent)
    return deliveries


def check_backup(path: Path, backup: Path) -> None:
    """Raise ConfigError for a backup that is missing, or is the inbox at `path` itself."""
    if not backup.is_file():
        raise ConfigError(f"there is no backup {backup}")
    if path.exists() and backup.samefile(path):
        raise ConfigError(f"{backup} is the inbox itself, and no backup of it")


def restore(path: Path, backup: Path, progress: Progress) -> int:
    """Replace the inbox by a copy of `backup`; returns its deliveries. The old inbox is lost.

    Raises ConfigError for a file that is no sound backup, and for a `path` with tables of something else;
    InboxError while a process uses the inbox.
    """
    check_backup(path, backup)
    # Before the locks are taken: closing a file drops all locks that this process has on it.
    with suppress(sqlite3.Error):  # what is damaged may be replaced
        if path.exists():
            refuse_foreign_file(path, beside_its_log=False)
    restoring = path.with_name(path.name + "-restoring")
    uri = f"file:{urllib.parse.quote(str(backup))}?mode=ro"
    with _unused(path):
        restoring.unlink(
            missing_ok=True
        )  # of an interrupted restore; under the lock, or it may be one in progress
        # Copied first, renamed then: whenever this is interrupted, the old or the new inbox is there, whole.
        with _new_file(restoring), _failures(f"the copy of {backup}"):
            with closing(sqlite3.connect(uri, uri=True)) as source:
                deliveries = _copy(source, restoring, progress, of=backup)
            _forget_workers(restoring)
            sync(restoring)
            restoring.replace(path)
        # The old log must not be written into the new file; until both are gone, no process opens it.
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        sync(path.parent)
    return deliveries


def _forget_workers(path: Path) -> None:
    """Delete the workers of the copy's time, which would be taken for dead ones."""
    with closing(sqlite3.connect(path)) as copy, copy:
        tables = {name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if worker.name in tables:  # not in a copy of an older schema
            copy.execute(f"DELETE FROM {worker.name}")  # noqa: S608 - ours


def _copy(source: sqlite3.Connection, target: Path, progress: Progress, *, of: Path) -> int:
    """Copy all pages `of` a file, and check that they are a sound inbox of a known revision.

    Returns its deliveries.
    """
    with closing(sqlite3.connect(target)) as copy:
        source.backup(copy, pages=_PAGES, progress=lambda _, left, total: progress(total - left, total))
        copy.execute("PRAGMA journal_mode=DELETE").fetchone()  # one file, with nothing beside it
        problems = [row[0] for row in copy.execute("PRAGMA integrity_check(1)")]
        if problems != ["ok"]:
            raise sqlite3.DatabaseError(f"it is damaged: {problems[0]}")
        tables = {name for (name,) in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {version.name, "delivery"} <= tables:
            raise ConfigError("there is no inbox in it")
        ((revision,),) = copy.execute(f"SELECT version_num FROM {version.name}").fetchall()  # noqa: S608 - ours
        require_upgradable(revision, set(copy.execute(EVERY_COLUMN)), str(of))
        ((deliveries,),) = copy.execute("SELECT count(*) FROM delivery").fetchall()
        return int(deliveries)


@contextmanager
def _new_file(path: Path) -> Iterator[None]:
    """Create a file that only its owner can read; if the block fails, it is removed."""
    try:
        os.close(open_new(path))
    except FileExistsError:
        raise ConfigError(f"{path} is there already: a backup replaces no file") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be made: {error.strerror}") from None
    try:
        yield
    except BaseException:
        for suffix in ("", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        raise


@contextmanager
def _failures(what: str) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise InboxError(f"{what} failed: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{what} failed: {error}") from None


@contextmanager
def _unused(path: Path) -> Iterator[None]:
    """Keep other processes from opening the inbox during the block. InboxError if one has it open.

    It takes the kernel's locks: SQLite itself would write the log beside the file into it, even another's.
    """
    with ExitStack() as held:
        try:
            lock = open_own(path.with_name(path.name + "-lock"))
            held.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for suffix, start, length in _LOCKS:
                file = path.with_name(path.name + suffix)
                if file.exists():
                    locked = held.enter_context(file.open("r+b"))
                    fcntl.lockf(locked, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except BlockingIOError:
            raise InboxError(
                f"the inbox {path} is in use: stop the receivers and workers that use it, and try again"
            ) from None
        except OSError as error:
            raise ConfigError(f"the inbox {path} cannot be replaced: {error.strerror}") from None
        yield
