"""Errors of the billing service's API: of its resources, of calls to it, and of the sandbox."""

from __future__ import annotations

from typing import Any

from billhook.errors.framework import BillhookError


class ResourceError(BillhookError):
    """An object of the billing service's API is invalid."""


class InvalidResource(ResourceError):
    """The received data is not strict JSON, or not an object of the requested model.

    `details` is a list of {"loc", "msg", "type"} objects without the input's values.
    """

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None) -> None:
        self.details = details or []
        super().__init__(message)


class RuleBroken(ResourceError):
    """A request would break a rule that the specification states, so it is not built.

    `params` are the fields concerned, in camelCase, such as `creditGrant.name`.
    """

    def __init__(self, message: str, *params: str) -> None:
        self.params = params
        super().__init__(message)


class FieldConflict(RuleBroken):
    """Fields are given that exclude each other, or a field where it does not apply."""


class FieldMissing(RuleBroken):
    """A field is missing that this request needs, though not every request does."""


class LimitBroken(RuleBroken):
    """A number or a size is outside its limits."""


class ApiError(BillhookError):
    """A call of the billing service's API failed.

    `operation` is its method and path as the specification has them, such as `GET /invoices/{invoiceId}`.
    `retry_after_seconds` is the wait that the service asked for, or None.
    """

    def __init__(self, operation: str, text: str, *, retry_after_seconds: float | None = None) -> None:
        self.operation = operation
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{operation}: {text}")


class ServiceError(ApiError):
    """The service answered with an error: its fields and the HTTP status. Source: spec, "Errors".

    `params` is a list of {"param", "message"} objects.
    """

    def __init__(
        self,
        operation: str,
        *,
        status: int,
        type: str,  # noqa: A002 - the specification's name
        code: str,
        message: str,
        param: str | None = None,
        params: list[dict[str, str]] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.status, self.type, self.code, self.message = status, type, code, message
        self.param, self.params = param, params or []
        wrong = "; ".join(f"{each['param']}: {each['message']}" for each in self.params) or param
        text = f"the service answered {status} {code}: {message}" + (f" ({wrong})" if wrong else "")
        super().__init__(operation, text, retry_after_seconds=retry_after_seconds)


class InvalidRequest(ServiceError):
    """The request failed validation; `param` or `params` may say where."""


class ResourceNotFound(InvalidRequest):
    """The addressed customer, contract, invoice or other resource does not exist."""


class RequestTooLarge(InvalidRequest):
    """A batch of events is over the size limit."""


class AuthenticationFailed(ServiceError):
    """The client id, the refresh token or the access token was not accepted."""


class RateLimitExceeded(ServiceError):
    """Too many requests; see `retry_after_seconds`."""


class InternalError(ServiceError):
    """The service failed internally."""


class UnexpectedResponse(ApiError):
    """The response is not one of the specification: an HTML page, truncated JSON, another object.

    `excerpt` is the beginning of the body, without tokens and control characters.
    """

    def __init__(
        self,
        operation: str,
        problem: str,
        *,
        status: int,
        excerpt: str,
        retry_after_seconds: float | None = None,
    ) -> None:
        self.status, self.excerpt = status, excerpt
        quoted = f"; it begins with {excerpt!r}" if excerpt else ""
        text = f"the answer, of status {status}, is not one of the billing service: {problem}{quoted}"
        super().__init__(operation, text, retry_after_seconds=retry_after_seconds)


class ServiceUnavailable(ApiError):
    """There was no response. `sent` is False if the request surely did not reach the service."""

    def __init__(self, operation: str, problem: str, *, sent: bool) -> None:
        self.sent, self._problem = sent, problem
        doubt = "it is not known whether it was done" if sent else "nothing was sent"
        super().__init__(operation, f"no answer from the billing service: {problem}; {doubt}")

    def after_a_sent_attempt(self) -> ServiceUnavailable:
        """Return this error as that of a call whose earlier attempt may have reached the service."""
        if self.sent:
            return self
        return ServiceUnavailable(
            self.operation, f"{self._problem}, after an attempt that was sent", sent=True
        )


class SandboxError(BillhookError):
    """The sandbox refuses a request: `status`, and `body` in the specification's shape."""

    def __init__(
        self, status: int, code: str, message: str, body: bytes, retry_after_seconds: int | None = None
    ) -> None:
        self.status, self.code, self.body = status, code, body
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{status} {code}: {message}")
