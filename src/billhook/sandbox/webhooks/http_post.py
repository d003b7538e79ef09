"""One POST over HTTP/1.1 to a checked address, under one deadline that a receiver cannot stretch."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from urllib.parse import SplitResult

import httpx2

from billhook.sandbox.webhooks.addresses import Lookup, parse_callback_url, resolve
from billhook.sandbox.webhooks.outcomes import FailureReason, PostResult

MAX_ANSWER_BYTES = 1024
MAX_ANSWER_SECONDS = 1.0
"""How much of a response's body is read, and for how long; only the status decides about success."""

_TEXT = re.compile(r"text/.*|application/(.*[+/])?(json|xml)")
_UNUSED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For plain HTTP: the transport would load all certificates without a context of its own."""


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
    host, tls = str(target.hostname), _tls() if target.scheme == "https" else _UNUSED
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
def _tls() -> ssl.SSLContext:
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
