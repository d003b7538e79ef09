"""Group the failures of one bug.

Failures are of one bug if the user's own code in the traceback is the same, and the text without ids. A group
is the exception's type and the innermost frames of the user's code: where a library raised, with the frame
that called it. A frame is its function and the text of its line, not the line's number, which moves with
every edit above it. Of an app that is installed as a package, the package of the outermost frame is its own
code. Without any frame the text counts. A group of exceptions counts as its members.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from pathlib import Path
from types import CodeType, TracebackType
from typing import NamedTuple

from billhook.basics.printable import without_ids

FRAMES = 3
"""Of the user's own frames the innermost count: outer ones differ by who called a function."""
_BILLHOOK = str(Path(__file__).parent.parent)
_LIBRARIES = (
    _BILLHOOK,
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
)
_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\][^/\\]+")
"""Up to the package, or the module, of an installed library."""


class FailureGroup(NamedTuple):
    """What failures of one bug have in common, and `place`, where the innermost frame is."""

    key: str
    place: str | None = None


def group_of(exception: BaseException, text: str) -> FailureGroup:
    """Return what groups an exception with others of the same bug; `text` is its own, made safely."""
    kind = f"{type(exception).__module__}.{type(exception).__qualname__}"
    if isinstance(exception, BaseExceptionGroup):
        # Its own frames are where the tasks were waited for: the bug is in one of the members.
        members = [group_of(one, type(one).__name__) for one in _first_members(exception)]
        return FailureGroup("\n".join([kind, *sorted({one.key for one in members})]), members[0].place)
    frames = _own_frames(exception.__traceback__)
    if not frames:
        return FailureGroup(f"{kind}\n{without_ids(text)}")
    lines = [
        f"{code.co_qualname}: {linecache.getline(code.co_filename, number).strip()}"
        for code, number in frames
    ]
    code, number = frames[-1]
    return FailureGroup("\n".join([kind, *lines]), f"{_short(code.co_filename)}:{number} in {code.co_name}")


def _first_members(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the first exceptions of a group that are no groups themselves, however deep they are."""
    members: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(members) < FRAMES:
        one = waiting.pop(0)
        if isinstance(one, BaseExceptionGroup):
            waiting[:0] = one.exceptions
        else:
            members.append(one)
    return members


def _own_frames(trace: TracebackType | None) -> list[tuple[CodeType, int]]:
    """Return the code and line number of the user's innermost frames, the outermost of them first."""
    frames = [(frame.f_code, number) for frame, number in traceback.walk_tb(trace)]
    own = [
        (code, number)
        for code, number in frames
        if not (_INSTALLED.match(code.co_filename) or code.co_filename.startswith(("<", *_LIBRARIES)))
    ]
    if not own:
        for found in (_INSTALLED.match(code.co_filename) for code, _ in frames):
            if found is not None and not found.string.startswith(_BILLHOOK):
                package = found.group()
                own = [(code, number) for code, number in frames if code.co_filename.startswith(package)]
                break
    return own[-FRAMES:]


def _short(filename: str) -> str:
    """Return the path below the working directory, or its last two parts."""
    path = Path(filename)
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(Path(*path.parts[-2:]))
