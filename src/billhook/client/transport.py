"""The client's HTTP: one exchange at a time, bounded in time and size; redirects are not followed.

The client's secrets are removed from text of the service before it is shown. No exception raised here has an
exception of the HTTP library as its cause or context: that would hold the request, and the request holds the
tokens.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

import httpx2
from pydantic import SecretStr

from billhook.client.operation import ApiOperation
from billhook.client.responses import ApiResponse, ResponseParser
from billhook.client.retries import CallDeadline
from billhook.errors import ApiError, ConfigError, ServiceUnavailable, UnexpectedResponse

logger = logging.getLogger("billhook.client")
_HOST = re.compile(rb"[0-9A-Za-z._:-]+")  # the library accepts others, and would look up `a%20b`


def open_client(transport: httpx2.BaseTransport | None) -> httpx2.Client:
    """Return the HTTP client, which reads HTTPS_PROXY, SSL_CERT_FILE and the like. Raises ConfigError.

    A proxy's address may hold a password, so none is repeated.
    """
    try:
        return httpx2.Client(transport=transport, follow_redirects=False)
    except ImportError:
        problem = "a SOCKS proxy is set: pip install 'httpx2[socks]', or look at"
    except OSError as error:
        problem = f"certificates cannot be read ({error.strerror or type(error).__name__}): look at"
    except (ValueError, httpx2.InvalidURL):
        problem = "a proxy's address cannot be read: look at"
    raise ConfigError(
        f"{problem} HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR in the environment"
    )


def parse_base_url(base_url: str) -> str:
    """Return the base URL without a trailing slash. Raises ConfigError, which does not repeat the URL."""
    try:
        url = httpx2.URL(base_url)
        # As the socket does, which fails at empty and long labels.
        url.raw_host.decode("ascii").encode("idna")
    except (httpx2.InvalidURL, TypeError, UnicodeError):
        url = httpx2.URL()
    if url.userinfo:
        raise ConfigError(
            "the base address of the billing service (BILLHOOK_API_URL) has a user name or password in it: "
            "leave that out"
        )
    named = url.scheme in ("http", "https") and _HOST.fullmatch(url.raw_host)
    ported = url.port is None or 1 <= url.port <= 65_535
    if not named or not ported or set("?#") & set(str(url)):
        raise ConfigError(
            "the base address of the billing service (BILLHOOK_API_URL) must be such as "
            "https://billing.example or https://billing.example/api, without a query"
        )
    if url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "::1"):
        logger.warning("%s is plain http: the tokens can be read on the way there", url.host)
    return str(url).rstrip("/")


# A page of 1000 events of a few KB each fits; anything beyond must not fill the memory.
MAX_ANSWER_BYTES = 32 * 1024 * 1024
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",  # what the library can always decode, without optional packages
    "User-Agent": "billhook",
}
# Errors before the first byte of the request is sent.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


class _RemainingTimeout:
    """The time-out of the next socket read or write, computed again for each one from the deadline.

    A fixed number would bound each read alone: a service that sends its headers byte by byte could hold the
    caller for hours, and the library reads headers without a check of ours in between. `socket.settimeout`
    calls `__index__` on an argument that is not a float, so the seconds are whole.
    """

    def __init__(self, timeout_seconds: float, deadline: CallDeadline) -> None:
        self._timeout_seconds = timeout_seconds
        self._deadline = deadline

    def __index__(self) -> int:
        remaining_seconds = min(self._timeout_seconds, self._deadline.remaining_seconds)
        if not remaining_seconds:
            raise TimeoutError
        return math.ceil(remaining_seconds)


class Transport:
    """Sends requests to one base URL; safe for any number of threads."""

    def __init__(
        self,
        base_url: str,
        client_id: SecretStr,
        parser: ResponseParser,
        *,
        timeout_seconds: float,
        transport: httpx2.BaseTransport | None,
    ) -> None:
        """Raises ConfigError for an invalid base URL, or unusable proxy or certificate settings."""
        self.base_url = parse_base_url(base_url)
        """Without a slash at its end."""
        self._client_id = client_id
        self._parser = parser
        self._timeout_seconds = timeout_seconds
        self._http = open_client(transport)

    def request(
        self,
        operation: ApiOperation[Any],
        address: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        bearer: SecretStr | None = None,
    ) -> httpx2.Request:
        """Build a request. Raises ValueError if its parameters do not fit into a URL."""
        # Before the headers, which a traceback that shows variables would show.
        url = self._url(operation, address, query)
        headers = {**_HEADERS, "x-api-key": self._client_id.get_secret_value()}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer.get_secret_value()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        return httpx2.Request(operation.method, url, headers=headers, content=body)

    def exchange(
        self, operation: ApiOperation[Any], request: httpx2.Request, deadline: CallDeadline
    ) -> ApiResponse | ApiError:
        """Send a request; return its response, or the error that it stands for or that there is instead."""
        if self._http.is_closed:
            raise ConfigError("this BillingClient is closed: make a new one")
        # Not 0, which means no time-out to some platforms.
        seconds = max(min(self._timeout_seconds, deadline.remaining_seconds), 0.001)
        left = _RemainingTimeout(self._timeout_seconds, deadline)
        request.extensions["timeout"] = {"connect": seconds, "pool": seconds, "read": left, "write": left}
        try:
            response = self._http.send(request, stream=True)
            with contextlib.closing(response):
                result = self._read(operation, response, deadline)
        except httpx2.RequestError as error:
            # The text of a time-out says only "timed out", or nothing at all.
            reason = "it took too long" if isinstance(error, httpx2.TimeoutException) else str(error)
            problem = f"{self.base_url}: {self._parser.redactor.clean(reason, 200) or type(error).__name__}"
            return ServiceUnavailable(operation.name, problem, sent=not isinstance(error, _NOT_SENT))
        if isinstance(result, ApiError):
            return result
        logger.debug("%s: %d, %d bytes", operation.name, result.status, len(result.body))
        return self._parser.error(operation, result) or result

    def close(self) -> None:
        """Close every connection; a second time does nothing."""
        self._http.close()

    def _url(self, operation: ApiOperation[Any], address: str, query: Mapping[str, str] | None) -> httpx2.URL:
        try:
            text = self.base_url + address
            # `params`, even as None, would replace the query that is in the address already.
            return httpx2.URL(text, params=query) if query else httpx2.URL(text)
        except httpx2.InvalidURL:
            problem = "is too long: shorten its parameters"
        except UnicodeEncodeError:
            problem = "cannot be made: there is half a surrogate pair in its parameters"
        raise ValueError(f"the address of {operation.name} {problem}")

    def _read(
        self, operation: ApiOperation[Any], response: httpx2.Response, deadline: CallDeadline
    ) -> ApiResponse | ApiError:
        body = bytearray()
        problem = ""
        try:
            # Counted after decompression: a small response may decompress to gigabytes.
            for part in response.iter_bytes():
                body += part
                if len(body) > MAX_ANSWER_BYTES:
                    problem = f"it is over {MAX_ANSWER_BYTES} bytes"
                    break
                if not deadline.remaining_seconds:
                    return ServiceUnavailable(operation.name, "it did not end in time", sent=True)
        except httpx2.DecodingError:
            problem = "it cannot be decompressed"
        status, headers = response.status_code, response.headers
        if problem:
            return UnexpectedResponse(operation.name, problem, status=status, excerpt="")
        return ApiResponse(status, headers.get("Content-Type", ""), headers.get("Retry-After"), bytes(body))
