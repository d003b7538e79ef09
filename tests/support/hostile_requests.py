"""Requests that are no HTTP, or nearly none, each with MARK in it: what a stranger may send to any door."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from support.signing import PATH
from support.timeouts import scaled

MARK = "Echo7391Mark"
LETTERS = MARK * 500
TARGETS = ("/nothing", "/healthz", PATH)
_STATUS = re.compile(rb"HTTP/(\S+) (\d{3})[^\r\n]*\r\n")

TRANSFER_ENCODINGS = (
    *(MARK, f"chunked, {MARK}", f"{MARK}, chunked", "chunked, chunked", "gzip, chunked", "gzip", "identity"),
    *("identity, chunked", "", ",", "chunked,", ", chunked", "chunked;q=1", f"chunked;{MARK}", '"chunked"'),
    *("CHUNKED", "\tchunked", "chunked\t", "chunked\x0b", "chunked\x0c", "\x00chunked", "chunked\xa0"),
    *(
        "chunked\r\n chunked",
        f"chunked\r\n {MARK}",
        f"chunked\r\nTransfer-Encoding: {MARK}",
        "chunkedchunked",
    ),
    *("chunked\r\nTransfer-Encoding: chunked", "chunked\r\nContent-Length: 5", "x\r\nContent-Length: 5"),
    *(
        f"chunked\r\nContent-Length: {MARK}",
        "deflate",
        "compress, chunked",
        "br",
        LETTERS,
        "chunked, identity",
    ),
)
CHUNK_SIZES = (
    *(MARK, LETTERS, "f" * 6_000, "0" * 6_000 + "5", "f" * 16, "f" * 17, "7" * 400, "0x5", "-5", "+5", " 5"),
    *("5 ", "\t5", "5\t", "", "G", "5G", "5_0", "1e3", "5.0", "\xb2", "5\x00", "\x005", "5\r", "5\n", "5,5"),
    *("--1", "5 5", f"5 {MARK}", f"{MARK};5", "5\x0b", '"5"', "5h"),
)
CHUNK_EXTENSIONS = (
    *(f";{MARK}", f";{MARK}={MARK}", f';{MARK}="{MARK}"', f';{MARK}="{MARK}', f";={MARK}", ";", ";;", "; ;"),
    *(
        f" ; {MARK}",
        f";{MARK} {MARK}",
        f";{MARK}\x00",
        f";\r{MARK}",
        f";{MARK}\n",
        f";{LETTERS}",
        f";{MARK}=",
    ),
    *(f";{MARK}=\x7f", f";({MARK})", f";{MARK}==", f";\xff{MARK}", ";" * 5_000),
)
DATA_ENDS = ("", "\n", "\r", "X", "XX", MARK, "\r\r\n", "\n\r", f"{MARK}\r\n", " \r\n", "\x00\r\n", LETTERS)
"""What follows the data of a chunk in place of CRLF."""
TRAILERS = (
    *(MARK, f"{MARK}: 1", f"{MARK} : 1", f"{MARK} {MARK}: 1", f": {MARK}", f"{MARK}\x00: 1", f"({MARK}): 1"),
    *(f"X: {MARK}\x00", f"X: {MARK}\r", f"X: 1\n{MARK}: 2", f" {MARK}", f"X: 1\r\n {MARK}", f"{MARK}\xe9: 1"),
    *(
        "Content-Length: 5",
        f"Content-Length: {MARK}",
        "Transfer-Encoding: chunked",
        f"Host: {MARK}",
        "Trailer: x",
    ),
    *(
        f"Transfer-Encoding: {MARK}",
        f"Authorization: {MARK}",
        f"{LETTERS}: 1",
        f"X: {LETTERS}",
        "X: 1\r\n" * 150,
    ),
    *(f"X_{MARK}: 1", f"webhook-id: {MARK}", f"Expect: {MARK}", "X: " + LETTERS * 14),
)
LAST_CHUNKS = (
    *(
        "0\n\n",
        "0\r\n\n",
        "0\r\r\n\r\n",
        "00\r\n\r\n",
        f"0;{MARK}\r\n\r\n",
        f"0;{MARK}\x00\r\n\r\n",
        "0 \r\n\r\n",
    ),
    *(f"0{MARK}\r\n\r\n", "-0\r\n\r\n", "+0\r\n\r\n", "0x0\r\n\r\n", "\r\n\r\n", f"0\r\n{MARK}\r\n\r\n"),
)
HEADERS = (
    *(MARK, f"{MARK} : 1", f"{MARK} {MARK}: 1", f": {MARK}", f" {MARK}: 1", f"\t{MARK}: 1", f"{MARK}\x00: 1"),
    *(f"({MARK}): 1", f"{MARK}\xe9: 1", f'"{MARK}": 1', f"{MARK}@: 1", f"{MARK}\x7f: 1", f"{MARK}\t: 1"),
    *(f"X: {MARK}\x00", f"X: {MARK}\x01", f"X: {MARK}\x7f", f"X: {MARK}\rY: 1", f"X: 1\nY{MARK}: 2"),
    *(f"X: 1\r\n {MARK}", f"X: 1\r\n\t{MARK}", f"X: \xff{MARK}", f"{LETTERS}: 1", f"{LETTERS * 2}: 1"),
    *(f"X: {LETTERS}", f"X: {LETTERS * 2}", f"X: {LETTERS * 12}", f"{MARK}: 1\r\n" * 101, f"X_{MARK}: 1"),
    *(
        f"Host: {MARK}",
        f"Content-Length: {MARK}",
        "Content-Length: -1",
        "Content-Length: +5",
        "Content-Length:",
    ),
    *("Content-Length: 5, 5", "Content-Length: 5, 6", "Content-Length: 5\r\nContent-Length: 6"),
    *("Content-Length: 5\r\nContent-Length: 5", "Content-Length: 1_0", "Content-Length: 0x5"),
    *("Content-Length: \xb2", f"Content-Length: 5 {MARK}", "Content-Length: 5;5", "Content-Length: 5.0"),
    *(f"Content-Length: {'9' * 4_301}", f"Content-Length: {'9' * 19}", f"Content-Length: {'0' * 300}"),
    *(f"Expect: {MARK}", f"Expect: 100-continue, {MARK}", "Expect: 100-continue", "Expect: \x00", "Expect:"),
    *(f"Connection: {MARK}", f"Upgrade: {MARK}\r\nConnection: Upgrade", "Connection: close, keep-alive"),
    *("Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__",),
    *("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: a",),
    *(f"X-Forwarded-Proto: {MARK}", "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http"),
    *(f"Forwarded: host={MARK}", f"X-Forwarded-Host: {MARK}", f"X-Forwarded-Prefix: /{MARK}"),
    *(f"Script-Name: /{MARK}", f"SCRIPT_NAME: /{MARK}", f"Path-Info: /{MARK}", f"Remote-User: {MARK}"),
    *(f"Content-Encoding: {MARK}", f"Content-Type: {MARK}", f"Content-Type: a\r\nContent-Type: {MARK}"),
    *(f"Cookie: {MARK}=\xff", f"Cookie: session={MARK}", f"Authorization: Basic {MARK}", f"Range: {MARK}"),
    *(f"Authorization: Bearer \xff{MARK}", f"If-None-Match: {MARK}", f"If-Modified-Since: {MARK}"),
    *(f"X-HTTP-Method-Override: {MARK}", f"Accept: {MARK}", f"Accept-Encoding: {MARK}", f"Origin: {MARK}"),
    *(f"Proxy: {MARK}", f"X-Billhook-Probe: {MARK}", f"webhook-id: {MARK}\r\nwebhook-id: {MARK}"),
)
METHODS = (
    *(
        MARK,
        "get",
        "gEt",
        "GET(",
        "G\x00T",
        "G\xe9T",
        "{}",
        '"GET"',
        "GET\t",
        "\tGET",
        " GET",
        LETTERS,
        "A" * 9_000,
    ),
    *(
        MARK.upper(),
        "TRACE",
        "CONNECT",
        "OPTIONS",
        "PATCH",
        "PURGE",
        "PRI",
        "G" * 21,
        "1",
        "<script>",
        "",
        "GET:",
    ),
)
VERSIONS = (
    *(
        "HTTP/1.0",
        "HTTP/1.2",
        "HTTP/1.3",
        "HTTP/1.9",
        "HTTP/1.10",
        "HTTP/1.",
        "HTTP/1",
        "HTTP/0.9",
        "HTTP/2.0",
    ),
    *(
        "HTTP/2",
        "HTTP/3.0",
        "HTTP/9.9",
        "HTTP/11.1",
        f"HTTP/{MARK}",
        MARK,
        "http/1.1",
        "HTTP/1.1 ",
        "HTTP/ 1.1",
    ),
    *(
        f"HTTP/1.1 {MARK}",
        "HTTP/1,1",
        "HTTP/-1.1",
        "HTTP/1.1\x00",
        "HTTP/1.1\t",
        "HTTP/\xb9.1",
        "ICY/1.1",
        "",
    ),
    *(f"HTTP/1.1{MARK}", "HTTPS/1.1", "HTTP/01.1", "HTTP/1.01", LETTERS),
)
REQUEST_TARGETS = (
    *(
        f"/{MARK}",
        f"/nothing?{MARK}",
        f"/{MARK}\x00",
        f"/{MARK}\xe9",
        f"/{MARK} x",
        f"/%00{MARK}",
        f"/%zz{MARK}",
    ),
    *(
        f"/%ff{MARK}",
        f"/nothing#{MARK}",
        f"//{MARK}/x",
        f"/../{MARK}",
        MARK,
        f"{MARK}:443",
        "*",
        "",
        "?",
        f"?{MARK}",
    ),
    *(f"http://[{MARK}/", f"http://{MARK}:x/", f"http://{MARK}/nothing", f"http://{MARK}", "http:///nothing"),
    *(
        f"{MARK}://x/",
        f"http://a@{MARK}/nothing",
        f"/<b>{MARK}</b>",
        f"/{LETTERS}",
        f"/{LETTERS * 2}",
        f"\\{MARK}",
    ),
    *(f"/billhook?next={MARK}", f"/billhook/{MARK}", f"/billhook/login?next=//{MARK}", f"/metrics?{MARK}"),
    *(
        f"{PATH}/{MARK}",
        f"{PATH}?{MARK}",
        f"{PATH};{MARK}",
        f"{PATH}%0d%0a{MARK}",
        f"/healthz/{MARK}",
        "/readyz/",
    ),
)
HOSTS = (
    *(
        f"[{MARK}",
        f"{MARK}]",
        f"[{MARK}]:1",
        f"{MARK}:99999999",
        f"{MARK}:x",
        f"{MARK} {MARK}",
        f"{MARK}/x",
        "",
    ),
    *(
        f"a@{MARK}",
        f"{MARK}\xff",
        f"{MARK}\x00",
        f"{MARK},{MARK}",
        f"{MARK}\\",
        f"<{MARK}>",
        LETTERS,
        "..",
        ":",
    ),
)
NO_HTTP = (
    *(
        f"{MARK}\r\n\r\n",
        f"{MARK} {MARK}\r\n\r\n",
        f"GET /{MARK}\r\n\r\n",
        f"GET\r\n{MARK}\r\n\r\n",
        "\r\n\r\n\r\n\r\n",
    ),
    *(
        f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{MARK}",
        f"PROXY TCP4 {MARK} 1 1 1\r\n\r\n",
        f"\x16\x03\x01\x02{MARK}\r\n\r\n",
    ),
    *(
        "\x00" * 600 + f"{MARK}\r\n\r\n",
        f"HTTP/1.1 200 {MARK}\r\n\r\n",
        f"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51UIT\x0a{MARK}",
    ),
    *(
        f"GET /{MARK} HTTP/1.1\nHost: x\n\n",
        f"GET /{MARK} HTTP/1.1\r\rHost: x\r\r\n\r\n",
        f"\xff\xfe{MARK}\r\n\r\n",
    ),
)


def hostile_requests() -> Iterator[tuple[str, bytes]]:
    """Each request by a name; all but those of the last kinds at each of TARGETS. None is a delivery."""
    for target in TARGETS:
        method = "GET" if target == "/healthz" else "POST"
        for kind, pieces in _by_target(method, target):
            for number, text in enumerate(pieces):
                yield f"{target} {kind} {number}", text.encode("latin-1")
    for kind, pieces in (
        ("request target", [_request("GET", target) for target in REQUEST_TARGETS]),
        ("request target, by POST", [_request("POST", target) for target in REQUEST_TARGETS]),
        ("no HTTP", NO_HTTP),
    ):
        for number, text in enumerate(pieces):
            yield f"{kind} {number}", text.encode("latin-1")


def _by_target(method: str, target: str) -> Iterator[tuple[str, list[str]]]:
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\n"
    chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n"
    end = "0\r\n\r\n"
    yield (
        "transfer encoding",
        [f"{head}Transfer-Encoding: {one}\r\n\r\n5\r\nabcde\r\n{end}" for one in TRANSFER_ENCODINGS],
    )
    yield (
        "encoding of HTTP/1.0",
        [
            f"{head.replace('1.1', '1.0')}Transfer-Encoding: {one}\r\n\r\n5\r\nabcde\r\n{end}"
            for one in ("chunked", MARK)
        ],
    )
    yield (
        "name of the encoding",
        [
            f"{head}{name}chunked\r\n\r\n5\r\nabcde\r\n{end}"
            for name in ("Transfer-Encoding : ", " Transfer-Encoding: ", "Transfer-Encoding\x00: ")
        ],
    )
    yield "chunk size", [f"{chunked}{size}\r\nabcde\r\n{end}" for size in CHUNK_SIZES]
    yield "later chunk size", [f"{chunked}3\r\nabc\r\n{size}\r\nabcde\r\n{end}" for size in CHUNK_SIZES]
    yield "chunk extension", [f"{chunked}5{one}\r\nabcde\r\n{end}" for one in CHUNK_EXTENSIONS]
    yield "end of a chunk", [f"{chunked}5\r\nabcde{one}{end}" for one in DATA_ENDS]
    yield "trailer", [f"{chunked}5\r\nabcde\r\n0\r\n{one}\r\n\r\n" for one in TRAILERS]
    yield "last chunk", [f"{chunked}5\r\nabcde\r\n{one}" for one in LAST_CHUNKS]
    yield "header", [f"{head}{one}\r\n\r\n" for one in HEADERS]
    yield "method", [_request(one, target) for one in METHODS]
    yield "version", [f"{method} {target} {one}\r\nHost: x\r\n\r\n" for one in VERSIONS]
    yield "host", [f"{method} {target} HTTP/1.1\r\nHost: {one}\r\n\r\n" for one in HOSTS]
    yield "no host", [f"{method} {target} HTTP/1.1\r\n\r\n"]


def _request(method: str, target: str) -> str:
    return f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n"


NEXT = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
_CLOSE = b"Connection: close\r\n"
_UP = b'{"status": "up"}'
_MOST_PIPELINED = 65_536
"""Of a longer request behind another one a parser keeps a part only, and the connection is closed instead."""


def answers_of(port: int, *, behind: bool = False, clients: int = 48) -> dict[str, bytes]:
    """What comes back for each request, by its name; `behind`: as the second one of its connection.

    A good request follows it, which is answered only if the server knows where it begins.
    """
    first = NEXT + b"\r\n" if behind else b""
    table = [row for row in hostile_requests() if not behind or len(row[1]) < _MOST_PIPELINED]
    with ThreadPoolExecutor(clients) as threads:
        found = threads.map(lambda row: _answer(port, first + row[1] + NEXT + _CLOSE + b"\r\n"), table)
        return {name: answer for (name, _), answer in zip(table, found, strict=True)}


def _answer(port: int, sent: bytes) -> bytes:
    """All that a server sends until it closes; or sends nothing more, if the next request is in a body."""
    found = b""
    # An OSError: the server has answered and closed before the end, or waits for the rest of a body.
    with socket.create_connection(("127.0.0.1", port), timeout=scaled(20)) as connection, suppress(OSError):
        connection.sendall(sent)
        while piece := connection.recv(65_536):
            found += piece
            connection.settimeout(scaled(4))  # longer than a receiver waits for a body
    return found


def faults_of(answer: bytes, *, behind: bool = False) -> list[str]:
    """What is wrong with an answer: it may not quote its request, be a 5xx, or be two or none."""
    found = [(one.group(1), int(one.group(2)), one.end()) for one in _STATUS.finditer(answer)]
    found = [one for one in found if one[1] != 100]
    faults = [f"status {status}" for _, status, _ in found if status >= 500]
    faults += [f"version {version!r}" for version, _, _ in found if version not in (b"1.0", b"1.1")]
    own = found[1:] if behind else found
    if len(own) > 1 and own[-1][1] == 200 and answer.endswith(_UP):
        own.pop()
    if len(own) != 1:
        faults.append(f"{len(own)} answers")
    if MARK.lower().encode() in answer.lower():
        faults.append("quotes it")
    return faults
