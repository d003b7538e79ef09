"""The HTTP of the client: one exchange at a time, bounded in time and size, and no redirect is followed.

Nothing raised here has an exception of the HTTP library behind it: that would hold the request, and the
request holds the tokens.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
from pydantic import SecretStr

from billhook.client.operation import Operation
from billhook.client.redaction import Redactor
from billhook.client.retries import Budget
from billhook.errors import ConfigError, ServiceUnavailable, UnexpectedResponse

__all__ = ["Answer", "Transport"]

logger = logging.getLogger("billhook.client")

MAX_ANSWER_BYTES = 32 * 1024 * 1024
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "gzip, deflate",  # what the library can always undo, whatever else is installed
    "User-Agent": "billhook",
}
_HOST = re.compile(rb"[0-9A-Za-z._:-]+")  # the library takes others, and asks for `a%20b`
# What happens before the first byte of a request leaves.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, read to its end and decompressed."""

    status: int
    content_type: str
    retry_after: str | None
    body: bytes = field(repr=False)


class Transport:
    """Sends requests to one base address; safe for any number of threads."""

    def __init__(
        self,
        base_url: str,
        client_id: SecretStr,
        redactor: Redactor,
        *,
        timeout_seconds: float,
        transport: httpx2.BaseTransport | None,
    ) -> None:
        """Raises ConfigError for what is no base address."""
        self.base_url = _checked(base_url)
        """Without a slash at its end."""
        self._client_id = client_id
        self._redactor = redactor
        self._timeout_seconds = timeout_seconds
        self._http = httpx2.Client(transport=transport, follow_redirects=False)

    def request(
        self,
        operation: Operation,
        address: str,
        query: Mapping[str, str],
        body: bytes | None,
        bearer: SecretStr | None,
    ) -> httpx2.Request:
        """A request that is ready to be sent. Raises ValueError if its address is too long."""
        headers = {**_HEADERS, "x-api-key": self._client_id.get_secret_value()}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer.get_secret_value()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            url = httpx2.URL(self.base_url + address, params=query or None)
        except httpx2.InvalidURL:
            url = None
        if url is None:
            headers.clear()  # they would be seen in a traceback that shows variables
            raise ValueError(f"the address of {operation.name} is too long: shorten its parameters")
        return httpx2.Request(operation.method, url, headers=headers, content=body)

    def exchange(self, operation: Operation, request: httpx2.Request, budget: Budget) -> Answer:
        """Send it and read the answer. Raises ServiceUnavailable; UnexpectedResponse if it is unreadable."""
        if self._http.is_closed:
            raise ConfigError("this BillingClient is closed: make a new one")
        timeout_seconds = max(min(self._timeout_seconds, budget.left_seconds), 0.001)
        request.extensions["timeout"] = httpx2.Timeout(timeout_seconds).as_dict()
        result: Answer | ServiceUnavailable | UnexpectedResponse
        try:
            result = self._read(operation, self._http.send(request, stream=True), budget)
        except httpx2.RequestError as error:
            result = self._failure(operation, error)
        if isinstance(result, Answer):
            logger.debug("%s: %d, %d bytes", operation.name, result.status, len(result.body))
            return result
        raise result

    def close(self) -> None:
        """Close every connection; a second time does nothing."""
        self._http.close()

    def _read(
        self, operation: Operation, response: httpx2.Response, budget: Budget
    ) -> Answer | ServiceUnavailable | UnexpectedResponse:
        parts: list[bytes] = []
        size = 0
        try:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    problem = f"it is over {MAX_ANSWER_BYTES} bytes"
                    return UnexpectedResponse(
                        operation.name, problem, status=response.status_code, excerpt=""
                    )
                if not budget.left_seconds:
                    return ServiceUnavailable(operation.name, "it did not end in time", sent=True)
        except httpx2.DecodingError:
            problem = "it cannot be decompressed"
            return UnexpectedResponse(operation.name, problem, status=response.status_code, excerpt="")
        finally:
            response.close()
        return Answer(
            response.status_code,
            response.headers.get("Content-Type", ""),
            response.headers.get("Retry-After"),
            b"".join(parts),
        )

    def _failure(self, operation: Operation, error: httpx2.RequestError) -> ServiceUnavailable:
        reason = "it took too long" if isinstance(error, httpx2.TimeoutException) else str(error)
        problem = f"{self.base_url}: {self._redactor.clean(reason, 200) or type(error).__name__}"
        return ServiceUnavailable(operation.name, problem, sent=not isinstance(error, _NOT_SENT))


def _checked(base_url: str) -> str:
    try:
        url = httpx2.URL(base_url)
    except (httpx2.InvalidURL, TypeError):
        url = httpx2.URL()
    if url.userinfo:
        raise ConfigError(
            "the base address of the billing service has a user name or password in it: leave that out"
        )
    named = url.scheme in ("http", "https") and _HOST.fullmatch(url.raw_host)
    if not named or url.query or url.fragment:
        raise ConfigError(
            "the base address of the billing service must be such as https://billing.example or "
            "https://billing.example/api, without a query"
        )
    if url.scheme == "http" and url.host not in ("localhost", "127.0.0.1", "::1"):
        logger.warning("%s is plain http: the tokens can be read on the way there", url.host)
    return str(url).rstrip("/")
