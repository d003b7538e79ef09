"""The HTTP of the client: one exchange at a time, bounded in time and size, and no redirect is followed.

Nothing raised here has an exception of the HTTP library behind it: that would hold the request, and the
request holds the tokens.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
from pydantic import SecretStr

from billhook.client.connecting import base_address, opened
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
# What happens before the first byte of a request leaves.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, read to its end and decompressed."""

    status: int
    content_type: str
    retry_after: str | None
    body: bytes = field(repr=False)


class _Left:
    """How long the next read or write of a socket may last, told anew for each of them.

    A number would bind each of them alone: a service that sends a header's letter now and then would keep
    its caller for hours. `socket.settimeout` asks what is no float for its `__index__`: so seconds are whole.
    """

    def __init__(self, timeout_seconds: float, budget: Budget) -> None:
        self._timeout_seconds = timeout_seconds
        self._budget = budget

    def __index__(self) -> int:
        left_seconds = min(self._timeout_seconds, self._budget.left_seconds)
        if not left_seconds:
            raise TimeoutError
        return math.ceil(left_seconds)


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
        """Raises ConfigError for what is no base address, and for an environment that does not do."""
        self.base_url = base_address(base_url)
        """Without a slash at its end."""
        self._client_id = client_id
        self._redactor = redactor
        self._timeout_seconds = timeout_seconds
        self._http = opened(transport)

    def request(
        self,
        operation: Operation,
        address: str,
        query: Mapping[str, str],
        body: bytes | None,
        bearer: SecretStr | None,
    ) -> httpx2.Request:
        """A request that is ready to be sent. Raises ValueError if its parameters make no address."""
        headers = {**_HEADERS, "x-api-key": self._client_id.get_secret_value()}
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer.get_secret_value()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            url = httpx2.URL(self.base_url + address, params=query or None)
        except httpx2.InvalidURL:
            problem = "is too long: shorten its parameters"
        except UnicodeEncodeError:
            problem = "cannot be made: there is half a surrogate pair in its parameters"
        else:
            return httpx2.Request(operation.method, url, headers=headers, content=body)
        headers.clear()  # they would be seen in a traceback that shows variables
        raise ValueError(f"the address of {operation.name} {problem}")

    def exchange(self, operation: Operation, request: httpx2.Request, budget: Budget) -> Answer:
        """Send it and read the answer. Raises ServiceUnavailable; UnexpectedResponse if it is unreadable."""
        if self._http.is_closed:
            raise ConfigError("this BillingClient is closed: make a new one")
        timeout_seconds = max(min(self._timeout_seconds, budget.left_seconds), 0.001)
        left = _Left(self._timeout_seconds, budget)
        request.extensions["timeout"] = {
            "connect": timeout_seconds,
            "pool": timeout_seconds,
            "read": left,
            "write": left,
        }
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
