"""Read a file of environment variables as systemd reads an EnvironmentFile=, and never as a shell does."""

from __future__ import annotations

import re

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMMENT = re.compile(r"[#;](?:\\.|[^\n\r\\])*", re.DOTALL)
_SINGLE = re.compile(r"'([^']*)'?")
_DOUBLE = re.compile(r'"((?:\\.|[^"\\])*)"?', re.DOTALL)
_BARE = re.compile(r"((?:\\.|[^\n\r\\])+)", re.DOTALL)
_KEY = re.compile(r"([^=\n\r]*)(=?)")
_BLANK = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"\s*")


def parse_options(text: str) -> dict[str, str]:
    """Return the variables of a file; what assigns to no valid name is passed over."""
    found, at = {}, 0
    while (at := _end(_BETWEEN, text, at)) < len(text):
        if comment := _COMMENT.match(text, at):
            at = comment.end()
            continue
        key = _KEY.match(text, at)
        assert key is not None  # noqa: S101 - it matches an empty text, too
        at = key.end()
        if key[2]:
            value, at = _value(text, at)
            if _NAME.fullmatch(key[1].strip()):
                found[key[1].strip()] = value
    return found


def quoted(value: str) -> str:
    """Return a value as it stands in such a file, so that a shell would read the same."""
    if re.fullmatch(r"[A-Za-z0-9_./:+@,%-]*", value):
        return value
    return f"'{value}'"


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins at a place, and where it ends. Quotes count before its first bare word."""
    value = ""
    while True:
        at = _end(_BLANK, text, at)
        if found := _SINGLE.match(text, at):
            value += found[1]
        elif found := _DOUBLE.match(text, at):
            value += re.sub(r'\\(?:(["\\`$])|\n)', lambda one: one[1] or "", found[1])
        elif found := _BARE.match(text, at):
            return value + _bare(found[1]), found.end()
        else:
            return value, at
        at = found.end()


def _bare(text: str) -> str:
    """Return an unquoted value: without what a backslash escapes, and without blanks at its end."""
    pieces = re.findall(r"\\.|[^\\]", text, re.DOTALL)
    while pieces and pieces[-1] in (" ", "\t"):
        pieces.pop()
    return "".join("" if one in ("\\\n", "\\\r") else one[-1] for one in pieces)
