"""The file itself: made once, and watched, for SQLite would go on writing into one that was moved away."""

from __future__ import annotations

import os
import time
from pathlib import Path

from billhook.errors import ConfigError

__all__ = ["SqliteFile"]


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

    def create(self) -> None:
        """Make the file, readable by its owner only, and its folder, where they are missing."""
        try:
            missing = [folder for folder in self.path.parents if not folder.exists()]
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = not self.path.exists()
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            if new:  # a file whose name is not on the disk is lost with all that is in it
                for folder in (self.path.parent, *(one.parent for one in missing)):
                    _sync(folder)
        except OSError as error:
            raise ConfigError(f"the inbox {self.path} cannot be opened: {error.strerror}") from None

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


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
