"""A raw HTTP request as it came from a socket: `billhook capture` writes it, `doctor signature` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from billhook.cli.output import UsageConfigError

__all__ = ["MAX_HEAD_BYTES", "RawRequest", "head_end", "is_complete", "parse_request"]

MAX_HEAD_BYTES: Final = 64 * 1024
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) (\S{1,8192}) HTTP/1\.[01]")
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", re.DOTALL)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[^\r\n]*\r?\n")


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A parsed request. Values of headers with one name are joined by a comma, as a server does.

    `remarks` are what is unusual about the file, each a sentence.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    remarks: tuple[str, ...] = ()


def head_end(raw: bytes) -> int:
    """Return where the body begins; -1 if the head has no end."""
    ends = [raw.find(end) + len(end) for end in (b"\r\n\r\n", b"\n\n") if end in raw]
    return min(ends, default=-1)


def is_complete(raw: bytes) -> bool:
    """Return whether `raw` has a whole request, or a head that is longer than any."""
    end = head_end(raw[: MAX_HEAD_BYTES + 4])
    if end < 0:
        return len(raw) > MAX_HEAD_BYTES
    lines = raw[:end].lower().split(b"\n")
    told = {name.strip(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    if b"chunked" in told.get(b"transfer-encoding", b""):
        # Behind the last chunk there may be trailers, and an empty line ends them.
        return raw.endswith(b"\r\n\r\n") and b"" in _chunks(raw[end:])
    length = _content_length(told.get(b"content-length", b"0").decode("latin-1"))
    return length is None or len(raw) >= end + length


def parse_request(raw: bytes, name: str) -> RawRequest:
    """Parse the bytes of the file `name`. Raises UsageConfigError, with the line that is wrong."""
    end = head_end(raw)
    remarks = []
    if end < 0:
        remarks.append("no empty line ends the head, so there is no body")
        end = len(raw)
    head, body = raw[:end], raw[end:]
    lines = [line.removesuffix(b"\r") for line in head.rstrip(b"\r\n").split(b"\n")]
    request_line = _REQUEST_LINE.fullmatch(lines[0])
    if request_line is None:
        raise UsageConfigError(
            f"{name} is no raw HTTP request: its first line must be like `POST /webhooks/billing HTTP/1.1`; "
            "`billhook capture` records such files"
        )
    if b"\r\n" not in head:
        remarks.append("its line ends are LF instead of CRLF: an editor may have changed the body as well")
    headers = _headers(lines[1:], name)
    told = {key.lower(): value for key, value in headers.items()}
    if "chunked" in told.get("transfer-encoding", "").lower():
        body = _unchunked(body, name)
    else:
        body = _of_its_length(body, told.get("content-length"), remarks)
    method, target = (part.decode("latin-1") for part in request_line.groups())
    return RawRequest(method, target, headers, body, tuple(remarks))


def _headers(lines: list[bytes], name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        field = _FIELD.fullmatch(line)
        if field is None:
            raise UsageConfigError(
                f"{name} is no raw HTTP request: line {number} is no header, `Name: value`"
            )
        key, value = (part.decode("latin-1") for part in field.groups())
        first = spelt.setdefault(key.lower(), key)
        found[first] = f"{found[first]},{value}" if first in found else value
    return found


def _content_length(text: str | None) -> int | None:
    """Return the number in a Content-Length; None if there is none, or it is not a number."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 12 else None


def _of_its_length(body: bytes, text: str | None, remarks: list[str]) -> bytes:
    length = _content_length(text)
    if length is None:
        return body
    if len(body) < length:
        remarks.append(f"its body is cut: {len(body)} of {length} bytes are there, as Content-Length says")
    elif len(body) > length:
        remarks.append(f"the {len(body) - length} bytes behind the {length} of its body are left out")
    return body[:length]


def _unchunked(body: bytes, name: str) -> bytes:
    pieces = list(_chunks(body))
    if not pieces or pieces[-1] != b"":
        raise UsageConfigError(f"{name} has a chunked body that is cut or broken: capture it again")
    return b"".join(pieces)


def _chunks(body: bytes) -> Iterator[bytes]:
    """Yield the chunks, with the empty one at the end; stop early at anything else."""
    at = 0
    while (size := _CHUNK.match(body, at)) is not None:
        end = size.end() + int(size[1], 16)
        if end > len(body):
            return
        yield body[size.end() : end]
        if int(size[1], 16) == 0:
            return
        at = end + (2 if body[end : end + 2] == b"\r\n" else 1)
