"""How a call of the billing service's API failed."""

from __future__ import annotations

from billhook.errors.root import BillhookError

__all__ = [
    "ApiError",
    "AuthenticationFailed",
    "InternalError",
    "InvalidRequest",
    "RateLimitExceeded",
    "RequestTooLarge",
    "ResourceNotFound",
    "ServiceError",
    "ServiceUnavailable",
    "UnexpectedResponse",
]


class ApiError(BillhookError):
    """A call of the billing service's API did not do what was asked.

    `operation` is its method and path as the specification has them, such as `GET /invoices/{invoiceId}`.
    `retry_after_seconds` is how long the service asked to be left alone, if it did.
    """

    def __init__(self, operation: str, text: str, *, retry_after_seconds: float | None = None) -> None:
        self.operation = operation
        self.retry_after_seconds = retry_after_seconds
        super().__init__(f"{operation}: {text}")


class ServiceError(ApiError):
    """The service answered with an error. Source: spec, "Errors", whose fields it has, and the HTTP status.

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
        self.status = status
        self.type = type
        self.code = code
        self.message = message
        self.param = param
        self.params = params or []
        wrong = "; ".join(f"{each['param']}: {each['message']}" for each in self.params) or param
        text = f"the service answered {status} {code}: {message}" + (f" ({wrong})" if wrong else "")
        super().__init__(operation, text, retry_after_seconds=retry_after_seconds)


class InvalidRequest(ServiceError):
    """The request failed validation; `param` or `params` may say where."""


class ResourceNotFound(InvalidRequest):
    """There is no such customer, contract, invoice or whatever else was addressed."""


class RequestTooLarge(InvalidRequest):
    """A batch of events is over the size limit."""


class AuthenticationFailed(ServiceError):
    """The client id, the refresh token or the access token was not accepted."""


class RateLimitExceeded(ServiceError):
    """Too many requests; see `retry_after_seconds`."""


class InternalError(ServiceError):
    """The service failed on its own side."""


class UnexpectedResponse(ApiError):
    """Something answered, but not as the specification has it: a page, half a JSON text, another shape.

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
        self.status = status
        self.excerpt = excerpt
        quoted = f"; it begins with {excerpt!r}" if excerpt else ""
        text = f"the answer, of status {status}, is not one of the billing service: {problem}{quoted}"
        super().__init__(operation, text, retry_after_seconds=retry_after_seconds)


class ServiceUnavailable(ApiError):
    """No answer came. `sent` is False if the request surely did not reach the service: nothing was done."""

    def __init__(self, operation: str, problem: str, *, sent: bool) -> None:
        self.sent = sent
        doubt = "it is not known whether it was done" if sent else "nothing was sent"
        super().__init__(operation, f"no answer from the billing service: {problem}; {doubt}")
