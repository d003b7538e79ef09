"""Files with secrets: refuse what other users may write, warn of what they may read; their text."""

from __future__ import annotations

import logging
import shlex
import stat
from pathlib import Path
from typing import Literal

from billhook.errors import ConfigError

logger = logging.getLogger("billhook.settings")


def access_by_others(path: Path) -> Literal["write", "read"] | None:
    """Return the most that the group or other users may do with a file; None if nothing, or no file.

    Only the mode counts: an access control list was set up on purpose.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return None
    if not stat.S_ISREG(mode):
        return None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "write"
    return "read" if mode & (stat.S_IRGRP | stat.S_IROTH) else None


def check_secret_file(key: str, path: str) -> None:
    """Raise ConfigError if others may write the file; warn if they may read it, as is usual in containers."""
    may = access_by_others(Path(path))
    message = f"{key} {path}: others may {may} it; run: chmod 600 {shlex.quote(path)}"
    if may == "write":
        raise ConfigError(message)
    if may == "read":
        logger.warning("%s", message)


def read_secret_file(key: str, path: str) -> str:
    """Return the text of a file with secrets. Raises ConfigError, also as `check_secret_file` does."""
    check_secret_file(key, path)
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = type(error).__name__
    # Raised here, so that the error for a file that is not UTF-8, which holds its bytes, is not its context.
    raise ConfigError(f"{key} {path!r} cannot be read: {reason}")
