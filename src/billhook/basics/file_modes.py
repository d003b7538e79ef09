"""Files with secrets: refuse what other users may write, warn of what they may read; their text.

And how files are made and replaced, where another user of the folder may have planted a link or a file.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import stat
from pathlib import Path
from typing import Literal

from billhook.basics.printable import HEADER_RULE, fits_header
from billhook.errors import ConfigError

logger = logging.getLogger("billhook.settings")

_FILE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}\.(txt|pem|key|env|conf|cfg|ini|secrets?|tokens?|passwd)")
_NOT_SHOWN = "(not shown: it may be the secret itself, where the path of its file is meant)"


def access_by_others(path: Path) -> Literal["write", "read"] | None:
    """Return the most that the group or other users may do with a file; None if nothing, or no file.

    Only the mode counts: an access control list was set up on purpose.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
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


def shown_path(path: str) -> str:
    """Return a path as errors show it: in quotes if it looks like one, else it may be a secret and is masked.

    One that looks like a path is there, lies below a folder that is there, or is a name as `secret.txt`.
    """
    # Not Path.is_dir, which raises an error for names that are too long.
    below = any(os.path.isdir(folder) for folder in Path(path).parents if folder.name)  # noqa: PTH112
    if below or os.path.lexists(path) or _FILE_NAME.fullmatch(path):
        return repr(path)
    return _NOT_SHOWN


def read_secret_file(key: str, path: str) -> str:
    """Return the text of a file with secrets. Raises ConfigError, also as `check_secret_file` does."""
    check_secret_file(key, path)
    try:
        return Path(path).read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        reason = error.strerror
    except ValueError:  # of Unicode; or of a path with a null
        reason = "it is not UTF-8"
    # Raised here, so that the error for a file that is not UTF-8, which holds its bytes, is not its context.
    raise ConfigError(f"{key} {shown_path(path)} cannot be read: {reason}")


def read_token_file(key: str, path: str) -> str:
    """Return the one token in a file. Raises ConfigError, which `key` begins, also for a file without one."""
    token = read_secret_file(key, path).strip()
    if not fits_header(token):
        raise ConfigError(f"{key} {shown_path(path)}: the token in it {HEADER_RULE}")
    return token


def open_new(path: Path, mode: int = 0o600) -> int:
    """Make a file and return its descriptor. Raises FileExistsError if a file or a link has its name."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)


def open_own(path: Path) -> int:
    """Return the descriptor of a file for its owner alone, made if need be. Raises OSError for a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def replace_text(path: Path, text: str) -> None:
    """Replace a file in one step by one that others may read, as far as the umask allows. Raises OSError.

    Until then it has a hidden name with a random part.
    """
    written = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = open_new(written, 0o666)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
