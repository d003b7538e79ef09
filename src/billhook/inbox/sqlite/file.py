"""The file itself: made once, and watched, for SQLite would go on writing into one that was moved away."""

from __future__ import annotations

import logging
import os
import shlex
import time
from pathlib import Path

from billhook.errors import ConfigError
from billhook.file_modes import others_may

__all__ = ["SqliteFile", "sync"]

logger = logging.getLogger("billhook.inbox")

LOOK_SECONDS = 0.1


class SqliteFile:
    """A path, and which file was there when we last looked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None
        self._looked_at = 0.0

    def beside(self, suffix: str) -> Path:
        """The path of a helper file: the inbox's own name and a suffix."""
        return self.path.with_name(self.path.name + suffix)

    def create(self, *, own_folder: bool) -> None:
        """Make the file, readable by its owner only, where it is missing; and its folder, if `own_folder`.

        Else a folder that is missing is a ConfigError: a slip in a path must be no new and empty inbox.
        """
        if not (own_folder or self.path.parent.exists()):
            folder = self.path.parent
            raise ConfigError(
                f"the inbox's folder {folder} does not exist: make it, or correct BILLHOOK_INBOX_URL"
            )
        try:
            missing = [folder for folder in self.path.parents if not folder.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = not self.path.exists()
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            if new:  # a file whose name is not on the disk is lost with all that is in it
                for folder in (self.path.parent, *(one.parent for one in missing)):
                    sync(folder)
        except OSError as error:
            raise ConfigError(f"the inbox {self.path} cannot be opened: {error.strerror}") from None
        self._warn_of_others()

    def _warn_of_others(self) -> None:
        """What is in it are customers' data, and whoever may write it decides what was received."""
        files = [self.path, self.beside("-wal"), self.beside("-shm")]
        found = {str(path): may for path in files if (may := others_may(path)) is not None}
        if found:
            most = "write" if "write" in found.values() else "read"
            command = shlex.join(["chmod", "600", *found])
            logger.warning("others may %s the inbox %s; run: %s", most, self.path, command)

    def changed(self, busy: bool = False) -> bool:
        """Whether another file is there than at the last call; OSError when there is none.

        Under load one look in LOOK_SECONDS is enough: the call gives up the interpreter's lock, which
        then takes longer to win back than the commit itself.
        """
        now = time.monotonic()
        if busy and now - self._looked_at < LOOK_SECONDS:
            return False
        self._looked_at = now
        status = os.stat(self.path)  # noqa: PTH116 - half the cost of Path.stat, paid by every commit
        before, self._identity = self._identity, (status.st_dev, status.st_ino)
        return before != self._identity

    def forget(self) -> None:
        """Take whatever file is there at the next look for another one."""
        self._identity, self._looked_at = None, 0.0


def sync(folder: Path) -> None:
    """Have the names in a folder, or the bytes of a file, on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
