"""Every exception billhook raises or understands.

BillhookError
├── ConfigError                  the app is set up wrongly; raised at start, never per delivery
│   ├── MissingSecret
│   ├── WeakSecret
│   ├── DuplicateHandlerName
│   ├── HandlerSignature
│   ├── LateRegistration
│   ├── SchemaMismatch
│   └── MissingExtra
├── DeliveryError                one delivery cannot be taken
│   ├── RequestError             the HTTP request is unusable (400, 413, 415)
│   │   ├── BadTypeHeader
│   │   ├── BodyIncomplete
│   │   ├── BodyTooLarge
│   │   └── UnsupportedEncoding
│   ├── SignatureError           the sender is not who it must be (401)
│   │   ├── SignatureMissing
│   │   ├── SignatureMalformed
│   │   ├── SignatureMismatch
│   │   ├── TimestampTooOld
│   │   └── TimestampInFuture
│   └── PayloadError             authentic, stored, but not readable as its type (quarantined)
│       ├── InvalidJSON
│       └── InvalidPayload
├── InboxError                   the inbox cannot do what was asked
│   ├── InboxUnavailable         storage failed or is closed (503)
│   │   ├── DeadlinePassed
│   │   ├── BacklogFull
│   │   └── Draining
│   └── IllegalTransition
├── ResourceError                an object of the billing service's API is not as it must be
│   ├── InvalidResource          what came cannot be read as its model
│   └── RuleBroken               what is to be sent breaks a rule of the specification
│       ├── FieldConflict
│       ├── FieldMissing
│       └── LimitBroken
├── ApiError                     a call of the billing service's API did not do what was asked
│   ├── ServiceError             the service answered with an error of the specification
│   │   ├── InvalidRequest
│   │   │   ├── ResourceNotFound
│   │   │   └── RequestTooLarge
│   │   ├── AuthenticationFailed
│   │   ├── RateLimitExceeded
│   │   └── InternalError
│   ├── UnexpectedResponse       something answered, but not as the specification has it
│   └── ServiceUnavailable       nothing answered
└── HandlerSignal                raised by a handler, to say how its run ended
    ├── Retry
    └── Discard

No text here ever holds a secret, a header value or a body: what an attacker sent is not repeated. An ApiError
quotes what the service answered, without tokens and cut short.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "ApiError",
    "AuthenticationFailed",
    "BacklogFull",
    "BadTypeHeader",
    "BillhookError",
    "BodyIncomplete",
    "BodyTooLarge",
    "ConfigError",
    "DeadlinePassed",
    "DeliveryError",
    "Discard",
    "Draining",
    "DuplicateHandlerName",
    "FieldConflict",
    "FieldMissing",
    "HandlerSignal",
    "HandlerSignature",
    "IllegalTransition",
    "InboxError",
    "InboxUnavailable",
    "InternalError",
    "InvalidJSON",
    "InvalidPayload",
    "InvalidRequest",
    "InvalidResource",
    "LateRegistration",
    "LimitBroken",
    "MissingExtra",
    "MissingSecret",
    "PayloadError",
    "RateLimitExceeded",
    "RequestError",
    "RequestTooLarge",
    "ResourceError",
    "ResourceNotFound",
    "Retry",
    "RuleBroken",
    "SchemaMismatch",
    "ServiceError",
    "ServiceUnavailable",
    "SignatureError",
    "SignatureMalformed",
    "SignatureMismatch",
    "SignatureMissing",
    "TimestampInFuture",
    "TimestampTooOld",
    "UnexpectedResponse",
    "UnsupportedEncoding",
    "WeakSecret",
]


class BillhookError(Exception):
    """The root: catching it catches everything that billhook raises on purpose."""


# --- set-up ---------------------------------------------------------------------------------------


class ConfigError(BillhookError):
    """The app is set up wrongly. The text names the value seen, the limit and the remedy."""


class MissingSecret(ConfigError):
    """A source has no secret, so nothing could be verified: refuse to start."""

    def __init__(self, source: str) -> None:
        self.source = source
        super().__init__(
            f"source {source!r} has no secret: set BILLHOOK_SECRETS or BILLHOOK_SECRETS_FILE, "
            "or pass secrets=[...] to Source"
        )


class WeakSecret(ConfigError):
    """A secret is too short to keep anybody out."""

    def __init__(self, length_bytes: int, minimum_bytes: int) -> None:
        self.length_bytes = length_bytes
        self.minimum_bytes = minimum_bytes
        super().__init__(
            f"a secret of {length_bytes} bytes is too short: use at least {minimum_bytes} random bytes"
        )


class DuplicateHandlerName(ConfigError):
    """Two handlers share a name; the name is stored with each run, so it must be unique."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"two handlers are named {name!r}: give one of them another name=")


class HandlerSignature(ConfigError):
    """A handler cannot be called with (event) or (event, delivery)."""

    def __init__(self, handler: str, signature: str) -> None:
        self.handler = handler
        self.signature = signature
        super().__init__(
            f"handler {handler!r} has the signature {signature}: it must take (event) or (event, delivery)"
        )


class LateRegistration(ConfigError):
    """A handler was registered after the app began to handle deliveries, and would have missed some."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"handler {name!r} was registered after init_app: import its module before Billhook.init_app"
        )


class SchemaMismatch(ConfigError):
    """The inbox's schema is not the one this version of billhook was written for."""

    def __init__(self, found: str | None, expected: str) -> None:
        self.found = found
        self.expected = expected
        remedy = (
            "run `billhook db upgrade`"
            if found is None or found < expected
            else "it is newer than this billhook: upgrade the package"
        )
        super().__init__(f"the inbox has schema {found or 'none'}, this billhook needs {expected}: {remedy}")


class MissingExtra(ConfigError):
    """An optional dependency is needed and not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.feature = feature
        self.extra = extra
        super().__init__(f"{feature} needs an optional dependency: pip install 'billhook[{extra}]'")


# --- one delivery ---------------------------------------------------------------------------------


class DeliveryError(BillhookError):
    """One delivery cannot be taken or read."""


class RequestError(DeliveryError):
    """The HTTP request is unusable, whoever sent it."""

    status: ClassVar[int] = 400
    cause: ClassVar[str] = "request"


class BadTypeHeader(RequestError):
    """X-Webhook-Type is missing, given twice or not a type name."""

    cause = "type_header"


class BodyIncomplete(RequestError):
    """The body ended, or stalled, before all of it came."""

    cause = "body_incomplete"


class BodyTooLarge(RequestError):
    """The body is over BILLHOOK_MAX_BODY_BYTES."""

    status = 413
    cause = "body_too_large"


class UnsupportedEncoding(RequestError):
    """The body is compressed; the signature is over the plain bytes, so none is accepted."""

    status = 415
    cause = "content_encoding"


class SignatureError(DeliveryError):
    """The sender could not be verified. The cause is for the log; the answer never tells it."""

    cause: ClassVar[str] = "signature"


class SignatureMissing(SignatureError):
    """A header that the scheme needs is absent."""

    cause = "missing"


class SignatureMalformed(SignatureError):
    """A signature header is present but is not of the scheme's form."""

    cause = "malformed"


class SignatureMismatch(SignatureError):
    """No signature given matches the body under any secret."""

    cause = "mismatch"


class TimestampTooOld(SignatureError):
    """Signed longer ago than the tolerance allows."""

    cause = "stale"


class TimestampInFuture(SignatureError):
    """Signed later than the tolerance allows."""

    cause = "future"


class PayloadError(DeliveryError):
    """An authentic delivery whose body cannot be read as its type.

    `details` is a list of {"loc", "msg", "type"} objects without the input's values.
    """

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None) -> None:
        self.details = details or []
        super().__init__(message)


class InvalidJSON(PayloadError):
    """The body is not the strict JSON that billhook reads."""


class InvalidPayload(PayloadError):
    """The body is JSON, but not an object of the type's model."""


# --- the inbox ------------------------------------------------------------------------------------


class InboxError(BillhookError):
    """The inbox cannot do what was asked."""


class InboxUnavailable(InboxError):
    """Storage failed, or cannot be reached; nothing was acknowledged, the sender must try again."""

    cause: ClassVar[str] = "storage"


class DeadlinePassed(InboxUnavailable):
    """The commit did not come back within BILLHOOK_DEADLINE_SECONDS."""

    cause = "deadline"


class BacklogFull(InboxUnavailable):
    """BILLHOOK_BACKLOG_LIMIT deliveries wait already."""

    cause = "backlog"


class Draining(InboxUnavailable):
    """The process is shutting down and takes nothing more."""

    cause = "draining"


class IllegalTransition(InboxError):
    """A state may not follow another; the table is in billhook.inbox.states."""

    def __init__(self, kind: str, before: str, after: str) -> None:
        self.kind = kind
        self.before = before
        self.after = after
        super().__init__(f"a {kind} in state {before!r} cannot become {after!r}")


# --- the objects of the billing service's API -----------------------------------------------------


class ResourceError(BillhookError):
    """An object of the billing service's API is not as it must be."""


class InvalidResource(ResourceError):
    """What came is not strict JSON, or not an object of the model that was asked for.

    `details` is a list of {"loc", "msg", "type"} objects without the input's values.
    """

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None) -> None:
        self.details = details or []
        super().__init__(message)


class RuleBroken(ResourceError):
    """What is to be sent breaks a rule that the specification states, so it cannot be made.

    `params` are the fields that are concerned, in the wire's spelling, such as `creditGrant.name`.
    """

    def __init__(self, message: str, *params: str) -> None:
        self.params = params
        super().__init__(message)


class FieldConflict(RuleBroken):
    """Fields are given that exclude each other, or a field where it does not apply."""


class FieldMissing(RuleBroken):
    """A field is not given that is needed in this request, though not in every one."""


class LimitBroken(RuleBroken):
    """A number or a size is over its limit, or under it."""


# --- the billing service's API ----------------------------------------------------------------------


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


# --- raised by handlers ---------------------------------------------------------------------------


class HandlerSignal(BillhookError):
    """Raised by a handler, to say how its run ended."""


class Retry(HandlerSignal):
    """Run this handler again: after `after_seconds`, or when the schedule says if that is None."""

    def __init__(self, reason: str = "", *, after_seconds: float | None = None) -> None:
        if after_seconds is not None and not 0 <= after_seconds <= 31 * 86_400:
            raise ValueError(f"after_seconds must be between 0 and 31 days, got {after_seconds!r}")
        self.after_seconds = after_seconds
        super().__init__(reason or "the handler asked for another attempt")


class Discard(HandlerSignal):
    """Do not run this handler again for this delivery, and do not call it a failure."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler discarded the delivery")
