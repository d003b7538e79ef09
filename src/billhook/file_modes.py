"""What other users of the machine may do with a file that is meant for one."""

from __future__ import annotations

import logging
import shlex
import stat
from pathlib import Path
from typing import Literal

from billhook.errors import ConfigError

__all__ = ["check_mode", "others_may"]

logger = logging.getLogger("billhook.settings")


def others_may(path: Path) -> Literal["write", "read"] | None:
    """The most that its group or anybody may do with a file; None for nothing, and where there is no file.

    By its mode alone: whoever has a longer list of rights on it set that up on purpose.
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


def check_mode(key: str, path: str) -> None:
    """Refuse a file with secrets that others may write; warn of one they may read, as containers have it."""
    may = others_may(Path(path))
    told = f"{key} {path}: others may {may} it; run: chmod 600 {shlex.quote(path)}"
    if may == "write":
        raise ConfigError(told)
    if may == "read":
        logger.warning("%s", told)
