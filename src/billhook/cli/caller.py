"""Any request to a service that logs in as the specification has it, by its path.

The typed client speaks the specification's operations; this one is for what the sandbox adds to them.
"""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

from billhook.cli.faults import Fault
from billhook.cli.output import printable
from billhook.errors import BillhookError, InvalidJSON
from billhook.resources import ErrorBody, LoginResponse
from billhook.wire import strict_json

__all__ = ["Caller"]


class Caller:
    """Logs in when it must, and once more when its token has ended."""

    def __init__(self, url: str, client_id: str, api_token: str, timeout_seconds: float) -> None:
        self._parts = urlsplit(url)
        self._client_id = client_id
        self._api_token = api_token
        self._timeout_seconds = timeout_seconds
        self._bearer = ""

    def call(self, method: str, path: str, body: Any) -> Any:
        """Send a request, logging in first where that is needed; the decoded answer."""
        status, answer = self._send(method, path, body)
        if status == 401:  # not logged in yet, or an hour has passed since, by the sandbox's clock
            given = {"refreshToken": self._api_token}
            status, answer = self._send("POST", "/login", given)
            if status == 200:
                self._bearer = LoginResponse.from_json(answer.encode()).access_token
                status, answer = self._send(method, path, body)
        if status != 200:
            raise Fault(f"{method} {path} was answered with {status}: {_told(answer)}")
        try:  # amounts stay as they were written: a float would not be what was sent
            return strict_json.loads(answer.encode())
        except InvalidJSON:
            raise Fault(
                f"{method} {path} was answered with something else than JSON: {printable(answer[:100])}"
            ) from None

    def _send(self, method: str, path: str, body: Any) -> tuple[int, str]:
        secure = self._parts.scheme == "https"
        connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(
            self._parts.hostname or "", self._parts.port, timeout=self._timeout_seconds
        )
        headers = {"x-api-key": self._client_id, "Authorization": f"Bearer {self._bearer}"}
        try:
            raw = None if body is None else strict_json.dumps(body)
            kind = {} if raw is None else {"Content-Type": "application/json"}
            connection.request(method, self._parts.path.rstrip("/") + path, raw, {**headers, **kind})
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise Fault(f"{method} {path} was not answered: {printable(error)}") from None
        finally:
            connection.close()


def _told(answer: str) -> str:
    """The message of an error body, and which parameters are wrong; else how the answer begins."""
    try:
        body = ErrorBody.from_json(answer.encode())
    except BillhookError:
        return printable(answer[:300])
    wrong = [body.param] if body.param else [one.param for one in body.params or ()]
    return printable(body.message + (f" ({', '.join(wrong)})" if wrong else ""))
