"""One POST over HTTP/1.1 to a checked address, under one deadline that a receiver cannot stretch.

Callers of the API choose the URLs, and the sandbox calls them from inside a network (server-side request
forgery): addresses that are not on the open internet are refused unless the options allow them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx2

MAX_URL_CHARACTERS = 2048
_PLAIN = re.compile(r"[!-\[\]-~]+")  # printable ASCII without the backslash
_TRANSLATED = [
    (ipaddress.IPv6Network("::/96"), 0),  # IPv4-compatible
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
]
"""IPv6 networks that embed an IPv4 address, with its distance from the right in bits."""
_NEVER = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "168.63.129.16/32",  # Azure's metadata and DHCP server for its virtual machines
        "192.0.0.0/24",  # IETF protocols; also the metadata server of Oracle's cloud
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "224.0.0.0/3",  # multicast, and all that is reserved
        "2001::/23",  # IETF protocols, among them Teredo
        "2001:db8::/32", "3fff::/20",  # documentation
    )
]  # fmt: skip
"""Never called; listed because `is_global` of older Python versions misses some of them.
Source: IANA's registries of special addresses; RFC 6890, 9637, 9602; the clouds' documentation."""
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The IPv6 addresses that are given out for the open internet. Source: IANA's registry of IPv6 space."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The 32 bits before the IPv4 address in the interface identifier. Source: RFC 5214, 6.1."""
Found = Sequence[tuple[Any, Any, Any, Any, Any]]
"""The result type of `socket.getaddrinfo`."""
Lookup = Callable[..., Found]
"""The type of `socket.getaddrinfo`."""
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
MAX_ANSWER_BYTES = 1024
MAX_ANSWER_SECONDS = 1.0
"""How much of a response's body is read, and for how long; only the status decides about success."""
_TEXT = re.compile(r"text/.*|application/(.*[+/])?(json|xml)")
_UNUSED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For plain HTTP: the transport would load all certificates without a context of its own."""


class FailureReason(StrEnum):
    """Why an attempt failed; never in words of the receiver or of an exception."""

    UNFIT_URL = "unfit_url"
    UNKNOWN_NAME = "unknown_name"
    FORBIDDEN_ADDRESS = "forbidden_address"
    NOT_CONNECTED = "not_connected"
    TLS_FAILED = "tls_failed"
    TIMED_OUT = "timed_out"
    BROKEN_OFF = "broken_off"
    UNREADABLE_ANSWER = "unreadable_answer"
    REDIRECTED = "redirected"
    BAD_STATUS = "bad_status"
    NOT_SIGNED = "not_signed"
    """The scheme cannot sign this event or this id."""
    ANSWER_LOST = "answer_lost"
    """By the fault `drop`: the receiver had responded with 2xx."""
    LOST = "lost"
    """By the fault `lose`: nothing was sent."""
    SHOULD_HAVE_REFUSED = "should_have_refused"
    """The receiver accepted a delivery with an invalid signature: it does not verify."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of one POST: `problem` is None after a 2xx response."""

    status: int | None = None
    problem: FailureReason | None = None
    answer: bytes | None = None
    """The beginning of the response's body, if it is text."""


def parse_callback_url(url: str, *, allow_private: bool) -> SplitResult:
    """Return the parts of a callback URL; ValueError, with a message for the API's caller, if it is refused.

    A literal address is checked here, a name when it is resolved.
    """
    if not url:
        raise ValueError("the URL is empty: give the receiver's")
    if not _PLAIN.fullmatch(url) or len(url) > MAX_URL_CHARACTERS:
        raise ValueError(
            f"the URL must have at most {MAX_URL_CHARACTERS} characters, of printable ASCII without spaces "
            "and backslashes: write other letters as %XX, and those of a name as xn--"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as getaddrinfo and TLS do; it refuses empty and overlong labels
    except ValueError:
        raise ValueError("the URL's host or port cannot be read") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError("the URL must begin with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("the URL has a user name or password in it: leave that out")
    if not host or port == 0:
        raise ValueError("the URL must name a host, and a port of 1 to 65535 if any")
    if "#" in url:
        raise ValueError("the URL has a fragment (#), which is never sent: leave it out")
    if not allow_private and not _may_be_public(host):
        raise ValueError(
            "the URL's host is not on the open internet: that needs the sandbox's option allow_private "
            "(--allow-private)"
        )
    return parts


def destination(url: str) -> str:
    """Return host and port of a callback URL: what one receiver's URLs have in common."""
    return urlsplit(url).netloc.lower()


def is_public(address: IPAddress) -> bool:
    """Return True for a unicast address on the open internet."""
    if any(address in network for network in _NEVER if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
            return False
        for network, shift in _TRANSLATED:
            if address in network:
                return is_public(ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF))
        return address in _GLOBAL_UNICAST
    return address.is_global


async def resolve(host: str, *, allow_private: bool, lookup: Lookup) -> list[str]:
    """Return all addresses of the host, resolved once. Connect to these and do not resolve again.

    Raises socket.gaierror for an unknown name, and PermissionError if any of its addresses is not public.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Found] = loop.create_future()

    def resolve_name() -> None:
        found: Found = ()
        with suppress(OSError, UnicodeError):
            found = lookup(host, None, type=socket.SOCK_STREAM)
        with suppress(RuntimeError):  # the wait is over: its loop was closed
            loop.call_soon_threadsafe(settle, found)

    def settle(found: Found) -> None:
        if not answer.done():
            answer.set_result(found)

    # In a daemon thread: getaddrinfo has no timeout and cannot be cancelled, and must not delay the exit.
    threading.Thread(target=resolve_name, name="sandbox-lookup", daemon=True).start()
    addresses = [str(sockaddr[0]) for *_, sockaddr in await answer]
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "the name is not known")
    # All addresses, not only the first: a name could resolve to a public and a private one.
    if not allow_private and not all(map(_is_public_text, addresses)):
        raise PermissionError("the name stands for an address that is not on the open internet")
    return addresses


def _is_public_text(address: str) -> bool:
    return is_public(ipaddress.ip_address(address.partition("%")[0]))


def _may_be_public(host: str) -> bool:
    name = host.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return False
    try:
        return _is_public_text(name)
    except ValueError:
        pass
    try:
        return is_public(ipaddress.IPv4Address(socket.inet_aton(name)))  # 127.1, 0x7f000001, 2130706433
    except OSError:
        return True


async def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    timeout_seconds: float,
    allow_private: bool,
    lookup: Lookup = socket.getaddrinfo,
) -> PostResult:
    """Send `body` and return the result. Raises no exception that a receiver can cause.

    It uses no proxy and follows no redirect.
    """
    try:
        target = parse_callback_url(url, allow_private=allow_private)
    except ValueError:
        return PostResult(problem=FailureReason.UNFIT_URL)
    host, tls = str(target.hostname), tls_context() if target.scheme == "https" else _UNUSED
    try:
        async with httpx2.AsyncHTTPTransport(verify=tls, trust_env=False) as transport:
            # One limit for all reads and writes together: that of a socket starts anew with each, so a
            # receiver that sends a byte now and then would never time out.
            async with asyncio.timeout(timeout_seconds) as limit:
                addresses = await resolve(host, allow_private=allow_private, lookup=lookup)
                left = (limit.when() or 0) - asyncio.get_running_loop().time()
                response = await _send(transport, target, addresses, headers, body, left)
            problem: FailureReason | None = None
            if 300 <= response.status_code < 400:
                problem = FailureReason.REDIRECTED
            elif not 200 <= response.status_code < 300:
                problem = FailureReason.BAD_STATUS
            return PostResult(response.status_code, problem, await _beginning(response))
    except (OSError, httpx2.HTTPError) as error:  # reported by type: the text may quote the receiver
        return PostResult(problem=_problem(error))


@cache
def tls_context() -> ssl.SSLContext:
    """Return the certificates that this process trusts, which are read once."""
    return ssl.create_default_context()


async def _send(
    transport: httpx2.AsyncHTTPTransport,
    target: SplitResult,
    addresses: list[str],
    headers: Mapping[str, str],
    body: bytes,
    seconds: float,
) -> httpx2.Response:
    """Send the request to the first of the addresses that accepts a connection."""
    more = {
        # To the address that was checked: the name is not resolved again. The certificate must be the name's.
        "sni_hostname": target.hostname,
        "target": f"{target.path or '/'}{'?' if target.query else ''}{target.query}".encode(),
        # A little earlier than the deadline: the library leaves a socket open whose handshake is cancelled.
        "timeout": {"connect": seconds * 0.95},
    }
    port = target.port or (443 if target.scheme == "https" else 80)
    for address in addresses:
        url = f"{target.scheme}://{f'[{address}]' if ':' in address else address}:{port}/"
        sent = {"Host": target.netloc, **headers}
        request = httpx2.Request("POST", url, headers=sent, content=body, extensions=more)
        try:
            return await transport.handle_async_request(request)
        except httpx2.ConnectError as error:
            if _problem(error) is FailureReason.TLS_FAILED:
                raise
    raise ConnectionRefusedError


async def _beginning(response: httpx2.Response) -> bytes | None:
    """Return the first bytes of a text body, as far as they arrive in time; None for other types."""
    kind, _, _ = response.headers.get("Content-Type", "text/plain").partition(";")
    is_text = _TEXT.fullmatch(kind.strip().lower())
    if not is_text or response.headers.get("Content-Encoding", "identity") != "identity":
        return None
    found = b""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(MAX_ANSWER_SECONDS):
            async for part in response.aiter_raw():
                found += part
                if len(found) >= MAX_ANSWER_BYTES:
                    break
    return found[:MAX_ANSWER_BYTES]


_PROBLEMS: list[tuple[type[BaseException], FailureReason]] = [
    (TimeoutError, FailureReason.TIMED_OUT),
    (socket.gaierror, FailureReason.UNKNOWN_NAME),
    (PermissionError, FailureReason.FORBIDDEN_ADDRESS),
    (ConnectionRefusedError, FailureReason.NOT_CONNECTED),
    (ssl.SSLError, FailureReason.TLS_FAILED),
    (httpx2.RemoteProtocolError, FailureReason.UNREADABLE_ANSWER),
]
"""The first match counts."""


def _problem(error: BaseException) -> FailureReason:
    """Return the reason of the error, or of the one that the HTTP library reports by it."""
    fitting = (problem for kind, problem in _PROBLEMS if isinstance(error, kind))
    # The library's own text, for a connection that was closed before any response.
    if isinstance(error, httpx2.RemoteProtocolError) and "disconnected" in str(error):
        return FailureReason.BROKEN_OFF
    found, inner = next(fitting, None), error.__cause__ or error.__context__
    if found is None and inner is not None:
        return _problem(inner)
    return found or FailureReason.BROKEN_OFF
