"""Where deliveries may go: the rules for callback URLs, and the addresses behind their names.

A callback URL is chosen by whoever may call the API, and the sandbox calls it from inside a network: so
what is not on the open internet is refused, unless the options allow it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

__all__ = [
    "Address",
    "Found",
    "Lookup",
    "Target",
    "destination_of",
    "is_public",
    "resolve",
    "target_of",
]

MAX_URL_CHARACTERS = 2048

_PLAIN = re.compile(r"[!-\[\]-~]+")  # printable ASCII without the backslash
_TRANSLATED = [
    (ipaddress.IPv6Network("::/96"), 0),  # IPv4-compatible
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # IPv4-mapped
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
]
"""IPv6 addresses that stand for an IPv4 address: its place is so many bits from the right."""
_NEVER = [
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "168.63.129.16/32",  # Azure's own server for its machines, on an address that is routed nowhere else
        "192.0.0.0/24",  # of IETF protocols; Oracle's machines find their metadata there
        "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "224.0.0.0/3",  # multicast, and all that is reserved
        "64:ff9b:1::/48",  # NAT64 of one's own network
        "100::/32",  # discarded
        "2001::/23",  # of IETF protocols, Teredo among them
        "2001:db8::/32", "3fff::/20",  # documentation
        "5f00::/16",  # segment routing
        "fc00::/7", "fe80::/9", "ff00::/8",
    )
]  # fmt: skip
"""Not to be called whatever this Python's `is_global` knows of them. Source: IANA's registries of special
addresses; RFC 6890, 9637, 9602; the clouds' documentation."""
_ISATAP = (0x00005EFE, 0x02005EFE)
"""What stands before the IPv4 address in the second half of such an IPv6 address. Source: RFC 5214, 6.1."""

Found = Sequence[tuple[Any, Any, Any, Any, Any]]
"""What `socket.getaddrinfo` gives."""

Lookup = Callable[..., Found]
"""What `socket.getaddrinfo` is."""

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a callback URL."""

    scheme: str
    host: str
    port: int
    netloc: str
    """Host and port as they stand in the URL: what the header `Host` says."""
    path: str
    """With the query."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address that was looked up and checked: what a socket is opened for and connected to."""

    family: int
    sockaddr: tuple[Any, ...]


def target_of(url: str, *, allow_private: bool) -> Target:
    """Take a callback URL apart; ValueError, in words for its owner, for one not to be called.

    A literal address is judged here, a name when it is looked up.
    """
    if not _PLAIN.fullmatch(url) or len(url) > MAX_URL_CHARACTERS:
        raise ValueError(
            f"the URL must have at most {MAX_URL_CHARACTERS} characters, of printable ASCII without spaces "
            "and backslashes: write other letters as %XX, and those of a name as xn--"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as the look-up and TLS do: no part of it is empty, or too long
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
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    return Target(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), parts.netloc, path)


def destination_of(url: str) -> str:
    """What the receiver at a callback URL is known by, however many URLs it has: its host and port."""
    return urlsplit(url).netloc.lower()


def is_public(address: IPAddress) -> bool:
    """Is it an address of one machine on the open internet?"""
    if any(address in network for network in _NEVER if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
            return False
        for network, shift in _TRANSLATED:
            if address in network:
                return is_public(ipaddress.IPv4Address(int(address) >> shift & 0xFFFFFFFF))
        if address.is_site_local:
            return False
    inner = (
        address.is_private, address.is_loopback, address.is_link_local,
        address.is_multicast, address.is_reserved, address.is_unspecified,
    )  # fmt: skip
    return address.is_global and not any(inner)


def resolve(
    target: Target, *, allow_private: bool, timeout_seconds: float, lookup: Lookup, answer: Future[Found]
) -> list[Address]:
    """All addresses of the target, looked up once: connect to these, and look up no more.

    Whoever cancels `answer` breaks the look-up off. Raises socket.gaierror for a name that nobody knows,
    PermissionError if any one of its addresses is not public, TimeoutError and ConnectionAbortedError.
    """
    _begin_to_look(target, lookup, answer)
    try:
        found = answer.result(timeout_seconds)
    except CancelledError:
        raise ConnectionAbortedError from None
    addresses = [Address(family, sockaddr) for family, _, _, _, sockaddr in found]
    if not addresses:
        raise _unknown()
    if not allow_private:
        for address in addresses:
            if not is_public(ipaddress.ip_address(address.sockaddr[0].partition("%")[0])):
                raise PermissionError("the name stands for an address that is not on the open internet")
    return addresses


def _may_be_public(host: str) -> bool:
    name = host.rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return False
    try:
        return is_public(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        pass
    try:
        return is_public(ipaddress.IPv4Address(socket.inet_aton(name)))  # 127.1, 0x7f000001, 2130706433
    except OSError:
        return True


def _begin_to_look(target: Target, lookup: Lookup, answer: Future[Found]) -> None:
    """In a thread of its own: a look-up knows no time limit, and does not end when it is broken off."""

    def look() -> None:
        with suppress(InvalidStateError):  # nobody waits any more
            try:
                answer.set_result(lookup(target.host, target.port, type=socket.SOCK_STREAM))
            except (OSError, UnicodeError):
                answer.set_exception(_unknown())

    threading.Thread(target=look, name="sandbox-lookup", daemon=True).start()


def _unknown() -> socket.gaierror:
    return socket.gaierror(socket.EAI_NONAME, "the name is not known")
