"""Where deliveries may go: the rules for callback URLs and for the addresses their names resolve to.

Callers of the API choose the URLs, and the sandbox calls them from inside a network (server-side request
forgery): addresses that are not on the open internet are refused unless the options allow them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, urlsplit

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
