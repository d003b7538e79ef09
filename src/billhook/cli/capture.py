"""`billhook capture`: a small server that records raw requests to files, to find out how they are signed.

A raw request is kept as it came from a socket; `doctor signature` reads it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from typing import BinaryIO, Final

import click

from billhook.basics.file_modes import open_new
from billhook.cli.output import UsageConfigError, printable
from billhook.cli.params import TCP_BIND, integer, listen, option
from billhook.servers.accepting import accept_connections

MAX_HEAD_BYTES: Final = 64 * 1024
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) (\S{1,8192}) HTTP/1\.[01]")
# What surrounds the value is stripped by code: a pattern for it takes quadratic time on many spaces.
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):(.*)", re.DOTALL)
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[^\r\n]*\r?\n")
_LONGEST_LINE: Final = 1_024
"""Of a chunked body: a chunk's size, or a trailer."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_SECONDS: Final = 10.0
"""How long a client has for its whole request."""
_CONNECTIONS: Final = 1_000
"""Each has a thread while it is open: with fewer, those that send nothing would keep others waiting."""
_MIB: Final = 1024 * 1024


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


def parse_request(raw: bytes, name: str) -> RawRequest:
    """Parse the bytes of the file `name`. Raises UsageConfigError, with the line that is wrong."""
    end = min((raw.find(each) + len(each) for each in (b"\r\n\r\n", b"\n\n") if each in raw), default=-1)
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
    elif (length := _content_length(told.get("content-length"))) is not None:
        if len(body) < length:
            remarks.append(
                f"its body is cut: {len(body)} of {length} bytes are there, as Content-Length says"
            )
        elif len(body) > length:
            remarks.append(f"the {len(body) - length} bytes behind the {length} of its body are left out")
        body = body[:length]
    method, target = (part.decode("latin-1") for part in request_line.groups())
    return RawRequest(method, target, headers, body, tuple(remarks))


def _headers(lines: list[bytes], name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        match = _FIELD.fullmatch(line)
        if match is None:
            raise UsageConfigError(
                f"{name} is no raw HTTP request: line {number} is no header, `Name: value`"
            )
        key, value = match[1].decode("latin-1"), match[2].strip(b" \t").decode("latin-1")
        first = spelt.setdefault(key.lower(), key)
        found[first] = f"{found[first]},{value}" if first in found else value
    return found


def _content_length(text: str | None) -> int | None:
    """Return the number in a Content-Length; None if there is none, or it is not a number."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 12 else None


def _unchunked(body: bytes, name: str) -> bytes:
    pieces: list[bytes] = []
    at = 0
    while (line := _CHUNK.match(body, at)) is not None:
        size = int(line[1], 16)
        if size == 0:
            return b"".join(pieces)
        at = line.end() + size
        pieces.append(body[line.end() : at])
        at += 2 if body[at : at + 2] == b"\r\n" else 1
    raise UsageConfigError(f"{name} has a chunked body that is cut or broken: capture it again")


@click.command()
@option(
    "--to FOLDER folder",
    "Where the files go; made if it is missing, with access for its owner alone.",
    click.Path(path_type=Path),
    required=True,
)
@option("--bind", "HOST:PORT.", TCP_BIND, default="127.0.0.1:8080")
@integer("--answer", 200, 599, 200, "The status to answer; with 503 a sender tries again later.")
@integer("--max-files", 1, 100_000, 100, "Record no more when the folder has this many.")
@integer("--max-mb", 1, 100_000, 50, "Record no more when its files have this many MiB together.")
@option("--count", "Exit when this many have been recorded.", click.IntRange(1))
def capture(folder: Path, bind: str, answer: int, max_files: int, max_mb: int, count: int | None) -> None:
    """Record each request that arrives as a file of its raw bytes, until SIGTERM, SIGINT or --count.

    For a sender whose requests are all refused: point its callback URL here, wait for one, and give the file
    to `billhook doctor signature`. Nothing is verified or handled, and a sender that is answered 200 does not
    send again. The files hold what customers' data and credentials the requests have: delete them afterwards.

    \b
    Examples:
      billhook capture --to captured
      billhook capture --bind 127.0.0.1:8080 --to captured --answer 503 --count 1
    """
    _make_own_folder(folder)
    recorder = _Recorder(folder, max_files, max_mb * _MIB)
    stop = threading.Event()
    with listen(bind) as listening, ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: stop.set()))
        at = f"http://{bind.rpartition(':')[0]}:{listening.getsockname()[1]}"
        click.echo(f"Recording requests to {at} in {printable(folder)}, answering {answer}")
        sys.stdout.flush()
        listening.settimeout(0.2)  # `stop` is looked at a few times a second
        threads = stack.enter_context(ThreadPoolExecutor(_CONNECTIONS))
        for connection in accept_connections(
            listening, lambda: stop.is_set() or recorder.recorded == count, _ReportOnce()
        ):
            threads.submit(_serve, connection, recorder, answer, time.monotonic() + _SECONDS)
    click.echo(f"{recorder.recorded} recorded")


def _make_own_folder(folder: Path) -> None:
    """Make the folder. Raises UsageConfigError for one that other users may look into."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise UsageConfigError(f"--to {folder} cannot be made: {error.strerror}") from None
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageConfigError(
            f"--to {folder} is open to other users, and requests hold credentials: run `chmod 700` on it, or "
            "name a new folder"
        )


class _ReportOnce:
    """Says on standard error that connections wait, once: a stranger who opens them must not fill the log."""

    _said = False

    def __call__(self, error: OSError) -> None:
        if not self._said:
            self._said = True
            click.echo(
                f"no more connections for now: {error.strerror}; those that are open end within {_SECONDS:g} "
                "seconds, and what waits is recorded then. If they are your senders', raise `ulimit -n`.",
                err=True,
            )


@dataclass
class _Recorder:
    """Writes requests into the folder until it is full."""

    folder: Path
    max_files: int
    max_bytes: int
    recorded: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, raw: bytes) -> str:
        """Write a file that only its owner may read; return its path, or why nothing was written."""
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        with self._lock:
            path = self.folder / f"{moment}-{self.recorded + 1:04}.http"
            try:
                sizes = [*self._sizes()]
                if len(sizes) >= self.max_files or sum(sizes) + len(raw) > self.max_bytes:
                    full = "not recorded: the folder is full (--max-files, --max-mb)"
                    return f"{full}; delete files, or name another"
                with os.fdopen(open_new(path), "wb") as stream:
                    stream.write(raw)
            except OSError as error:
                return f"not recorded: {path}: {error.strerror}"
            self.recorded += 1
            return str(path)

    def _sizes(self) -> Iterator[int]:
        """Yield the size of each recorded file; one may be deleted meanwhile, to make room."""
        with os.scandir(self.folder) as entries:
            for each in entries:
                if each.name.endswith(".http"):
                    with suppress(FileNotFoundError):
                        yield each.stat().st_size


def _serve(connection: socket.socket, recorder: _Recorder, answer: int, end_at: float) -> None:
    """Record a connection's request. `end_at` ends it, also if it has waited for its turn until then."""
    with connection, suppress(OSError):
        connection.settimeout(None)
        end = threading.Timer(max(0.0, end_at - time.monotonic()), connection.shutdown, [socket.SHUT_RD])
        end.start()
        try:
            with connection.makefile("rb") as stream:
                let_continue = partial(connection.sendall, _CONTINUE)
                raw = bytes(_read_request(stream, recorder.max_bytes, let_continue))
        finally:
            end.cancel()
        if not raw:
            return
        try:
            request = parse_request(raw, "the request")
            told = f"{request.method} {request.target[:200]}, {len(request.body)} bytes of body"
        except UsageConfigError:
            told = "what is no HTTP request"
        click.echo(printable(f"{recorder.record(raw)}: {told}"))
        sys.stdout.flush()
        retry = "Retry-After: 60\r\n" if answer == HTTPStatus.SERVICE_UNAVAILABLE else ""
        head = f"HTTP/1.1 {answer} {responses.get(answer, '')}\r\n{retry}Content-Length: 0\r\n"
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode("ascii"))
        connection.shutdown(socket.SHUT_WR)


def _read_request(stream: BinaryIO, max_bytes: int, let_continue: Callable[[], None]) -> bytearray:
    """Return the bytes of one request as they come, until its end, the limit or the time is reached."""
    raw, headers = bytearray(), {}
    while (line := stream.readline(MAX_HEAD_BYTES + 1)).strip(b"\r\n") and len(raw) <= MAX_HEAD_BYTES:
        raw += line
        name, _, value = line.lower().partition(b":")
        headers[name.strip()] = value.strip()
    raw += line
    # A sender that asks before it sends the body waits for this line.
    if b"100-continue" in headers.get(b"expect", b""):
        let_continue()
    if b"chunked" not in headers.get(b"transfer-encoding", b""):
        length = _content_length(headers.get(b"content-length", b"0").decode("latin-1"))
        return raw + stream.read(min(length or 0, max_bytes - len(raw)))
    while (chunk := _CHUNK.fullmatch(line := stream.readline(_LONGEST_LINE))) and len(raw) < max_bytes:
        raw += line
        if int(chunk[1], 16) == 0:
            # Behind the last chunk there may be trailers, and an empty line ends them.
            while line.strip(b"\r\n") and len(raw) < max_bytes:
                raw += (line := stream.readline(_LONGEST_LINE))
            return raw
        raw += stream.read(min(int(chunk[1], 16), max_bytes - len(raw))) + stream.readline(_LONGEST_LINE)
    return raw + line
