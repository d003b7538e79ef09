"""Which log belongs to which file: SQLite goes by their names alone.

Given another file of the inbox's name, a backup for one, it would put into it what the log of the one before
holds, and destroy it. So the lock file says which file was last opened with which log, by their numbers in
the file system; it outlives the processes that the log outlives.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["check_pair", "note_pair"]

_HELPERS = ("-wal", "-shm")
_NONE = "none"


def note_pair(path: Path) -> None:
    """Write down the file and the log that it is opened with now; OSError if that cannot be."""
    now = "\n".join(_numbers(path)).encode()
    descriptor = os.open(_note(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        if os.pread(descriptor, len(now) + 1, 0) != now:
            os.pwrite(descriptor, now, 0)
            os.ftruncate(descriptor, len(now))
    finally:
        os.close(descriptor)


def check_pair(path: Path) -> None:
    """Raise OSError if the file is another than the one whose log lies beside it."""
    noted = []
    with suppress(FileNotFoundError):
        noted = _note(path).read_text(encoding="ascii", errors="replace").split("\n")
    now = _numbers(path)
    if len(noted) != len(now) or noted[0] == now[0]:
        return
    left = [
        f"{path.name}{suffix}"
        for suffix, before, after in zip(_HELPERS, noted[1:], now[1:], strict=True)
        if before == after != _NONE
    ]
    if left:
        there = "is" if len(left) == 1 else "are"
        raise OSError(
            f"it was replaced, and {' and '.join(left)} of the one before {there} still there: stop all that "
            f"uses it, remove {' and '.join(left)}, and start again; `billhook db restore` replaces it safely"
        )


def _note(path: Path) -> Path:
    return path.with_name(path.name + "-lock")


def _numbers(path: Path) -> list[str]:
    """Of the file, its log and the log's index: device and number, or that there is none."""
    return [_number(path.with_name(path.name + suffix)) for suffix in ("", *_HELPERS)]


def _number(path: Path) -> str:
    with suppress(FileNotFoundError):
        status = path.stat()
        return f"{status.st_dev} {status.st_ino}"
    return _NONE
