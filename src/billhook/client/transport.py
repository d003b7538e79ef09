"""The client's HTTP: one exchange at a time, bounded in time and size; redirects are not followed.

The client's secrets are removed from text of the service before it is shown. No exception raised here has an
exception of the HTTP library as its cause or context: that would hold the request, and the request holds the
tokens.
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
from pydantic import SecretStr

from billhook.client.operation import ApiOperation
from billhook.client.retries import CallDeadline
from billhook.errors import ConfigError, ServiceUnavailable, UnexpectedResponse

__all__ = ["ApiResponse", "Redactor", "Transport", "open_client", "parse_base_url"]

HIDDEN = "[hidden]"
_KEPT = 50
_MOST_UNSEEN = 20  # spaces and controls for each character that is shown, at most
_LEAST_CHARACTERS = 4  # hiding a shorter one would hide half of every text, and it keeps no secret
_LEAST_LETTERS = 8  # nor does a word such as "wrong", which the text itself may have
_NEVER_ESCAPED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,2}")
logger = logging.getLogger("billhook.client")
_HOST = re.compile(rb"[0-9A-Za-z._:-]+")  # the library accepts others, and would look up `a%20b`


class Redactor:
    """Removes the secrets of one client, and everything that looks like a JWT, from text."""

    def __init__(self, *secrets: SecretStr) -> None:
        self._lasting = secrets
        self._passing: list[SecretStr] = []
        self._lock = threading.Lock()

    def learn(self, secret: SecretStr) -> None:
        """Add an access token. The oldest are dropped; they have expired long before."""
        with self._lock:
            self._passing = [*self._passing[-_KEPT + 1 :], secret]

    def clean(self, text: str, limit: int) -> str:
        """Return `text` without secrets and control characters, cut to `limit` characters."""
        with self._lock:
            # A copy, so that the slow part runs without the lock.
            secrets = [secret.get_secret_value() for secret in (*self._lasting, *self._passing)]
        # The longest first: a secret may contain another one.
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= (_LEAST_LETTERS if secret.isalpha() else _LEAST_CHARACTERS):
                text = re.sub(_spellings(secret), HIDDEN, text)
        # Cut after the secrets are removed, or half a secret could remain; and before the slow part below.
        text = _JWT.sub(HIDDEN, text)[: limit * _MOST_UNSEEN]
        shown = "".join(each if each.isprintable() else " " for each in text)
        return _cut(" ".join(shown.split()), limit)


def _spellings(secret: str) -> str:
    """Return a pattern of `secret` as it is, or escaped by JSON, HTML or URLs: `a/b`, `a\\/b`, `a%2Fb`."""
    return "".join(re.escape(each) if each in _NEVER_ESCAPED else _spelling(each) for each in secret)


def _spelling(character: str) -> str:
    code = "".join(f"[{digit}{digit.upper()}]" for digit in f"{ord(character):02x}")
    entity = rf"&(?:#0*{ord(character)}|#[xX]0*{code}|[A-Za-z]+);"
    return rf"(?:\\?{re.escape(character)}|%{code}|\\u00{code}|{entity})"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


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
        url.raw_host.decode("ascii").encode(
            "idna"
        )  # as the socket does, which fails at empty and long labels
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


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A complete, decompressed response."""

    status: int
    content_type: str
    retry_after: str | None
    body: bytes = field(repr=False)


class _RemainingTimeout:
    """The time-out of the next socket read or write, computed again for each one from the deadline.

    A fixed number would bound each read alone: a service that sends its headers byte by byte could hold the
    caller for hours, and the library reads headers without a check of ours in between. `socket.settimeout`
    calls `__index__` on an argument that is not a float, so the seconds are whole.
    """

    def __init__(self, timeout_seconds: float, deadline: CallDeadline) -> None:
        self._timeout_seconds = timeout_seconds
        self._budget = deadline

    def __index__(self) -> int:
        remaining_seconds = min(self._timeout_seconds, self._budget.remaining_seconds)
        if not remaining_seconds:
            raise TimeoutError
        return math.ceil(remaining_seconds)


class Transport:
    """Sends requests to one base URL; safe for any number of threads."""

    def __init__(
        self,
        base_url: str,
        client_id: SecretStr,
        redactor: Redactor,
        *,
        timeout_seconds: float,
        transport: httpx2.BaseTransport | None,
    ) -> None:
        """Raises ConfigError for an invalid base URL, or unusable proxy or certificate settings."""
        self.base_url = parse_base_url(base_url)
        """Without a slash at its end."""
        self._client_id = client_id
        self._redactor = redactor
        self._timeout_seconds = timeout_seconds
        self._http = open_client(transport)

    def request(
        self,
        operation: ApiOperation,
        address: str,
        query: Mapping[str, str],
        body: bytes | None,
        bearer: SecretStr | None,
    ) -> httpx2.Request:
        """Build a request. Raises ValueError if its parameters do not fit into a URL."""
        headers = {**_HEADERS, "x-api-key": self._client_id.get_secret_value()}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer.get_secret_value()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            text = self.base_url + address
            # `params`, even as None, would replace the query that is in the address already.
            url = httpx2.URL(text, params=query) if query else httpx2.URL(text)
        except httpx2.InvalidURL:
            problem = "is too long: shorten its parameters"
        except UnicodeEncodeError:
            problem = "cannot be made: there is half a surrogate pair in its parameters"
        else:
            return httpx2.Request(operation.method, url, headers=headers, content=body)
        headers.clear()  # they would be seen in a traceback that shows variables
        raise ValueError(f"the address of {operation.name} {problem}")

    def exchange(
        self, operation: ApiOperation, request: httpx2.Request, deadline: CallDeadline
    ) -> ApiResponse:
        """Send a request and read the response. Raises ServiceUnavailable and UnexpectedResponse."""
        if self._http.is_closed:
            raise ConfigError("this BillingClient is closed: make a new one")
        # Not 0, which means no time-out to some platforms.
        timeout_seconds = max(min(self._timeout_seconds, deadline.remaining_seconds), 0.001)
        left = _RemainingTimeout(self._timeout_seconds, deadline)
        request.extensions["timeout"] = {
            "connect": timeout_seconds,
            "pool": timeout_seconds,
            "read": left,
            "write": left,
        }
        result: ApiResponse | ServiceUnavailable | UnexpectedResponse
        try:
            result = self._read(operation, self._http.send(request, stream=True), deadline)
        except httpx2.RequestError as error:
            result = self._failure(operation, error)
        if isinstance(result, ApiResponse):
            logger.debug("%s: %d, %d bytes", operation.name, result.status, len(result.body))
            return result
        raise result

    def close(self) -> None:
        """Close every connection; a second time does nothing."""
        self._http.close()

    def _read(
        self, operation: ApiOperation, response: httpx2.Response, deadline: CallDeadline
    ) -> ApiResponse | ServiceUnavailable | UnexpectedResponse:
        parts: list[bytes] = []
        size = 0
        try:
            # Counted after decompression: a small response may decompress to gigabytes.
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    problem = f"it is over {MAX_ANSWER_BYTES} bytes"
                    return UnexpectedResponse(
                        operation.name, problem, status=response.status_code, excerpt=""
                    )
                if not deadline.remaining_seconds:
                    return ServiceUnavailable(operation.name, "it did not end in time", sent=True)
        except httpx2.DecodingError:
            problem = "it cannot be decompressed"
            return UnexpectedResponse(operation.name, problem, status=response.status_code, excerpt="")
        finally:
            response.close()
        return ApiResponse(
            response.status_code,
            response.headers.get("Content-Type", ""),
            response.headers.get("Retry-After"),
            b"".join(parts),
        )

    def _failure(self, operation: ApiOperation, error: httpx2.RequestError) -> ServiceUnavailable:
        # The text of a time-out says only "timed out", or nothing at all.
        reason = "it took too long" if isinstance(error, httpx2.TimeoutException) else str(error)
        problem = f"{self.base_url}: {self._redactor.clean(reason, 200) or type(error).__name__}"
        return ServiceUnavailable(operation.name, problem, sent=not isinstance(error, _NOT_SENT))
