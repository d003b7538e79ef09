"""Tell which failures are one bug: by the user's own code in the traceback, and the text without ids.

A failure is grouped by its exception's type and the innermost frames of the user's code: where a library
raised, these end with the frame that called it. A frame is its function and the text of its line, not the
line's number, which moves with every edit above it. Without such a frame the text counts instead.
"""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path
from types import CodeType, TracebackType
from typing import NamedTuple

from billhook.printable import without_ids

FRAMES = 3
"""Of the user's own frames the innermost count: outer ones differ by who called a function."""
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {str(Path(__file__).parent.parent)}
)
_INSTALLED = ("/site-packages/", "/dist-packages/", "\\site-packages\\")


class FailureGroup(NamedTuple):
    """What failures of one bug have in common, and `place`, where the innermost frame is."""

    key: str
    place: str | None = None


def group_of(exception: BaseException, text: str) -> FailureGroup:
    """Return what groups an exception with others of the same bug; `text` is its own, made safely."""
    kind = f"{type(exception).__module__}.{type(exception).__qualname__}"
    frames = _own_frames(exception.__traceback__)
    if not frames:
        return FailureGroup(f"{kind}\n{without_ids(text)}")
    lines = [f"{code.co_qualname}: {_source_line(code, number)}" for code, number in frames]
    code, number = frames[-1]
    return FailureGroup("\n".join([kind, *lines]), f"{_short(code.co_filename)}:{number} in {code.co_name}")


def _own_frames(trace: TracebackType | None) -> list[tuple[CodeType, int]]:
    """Return the code and line number of the user's innermost frames, the outermost of them first."""
    frames = [(frame.f_code, number) for frame, number in traceback.walk_tb(trace)]
    return [(code, number) for code, number in frames if _is_own(code.co_filename)][-FRAMES:]


def _is_own(filename: str) -> bool:
    if any(part in filename for part in _INSTALLED):
        return False
    return not filename.startswith(("<", *_LIBRARIES))


def _source_line(code: CodeType, number: int) -> str:
    return linecache.getline(code.co_filename, number).strip()


def _short(filename: str) -> str:
    """Return the path below the working directory, or its last two parts."""
    path = Path(filename)
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(Path(*path.parts[-2:]))
