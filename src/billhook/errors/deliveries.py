"""Why one delivery cannot be taken, or not be read."""

from __future__ import annotations

from typing import Any, ClassVar

from billhook.errors.root import BillhookError

__all__ = [
    "BodyIncomplete",
    "BodyTooLarge",
    "DeliveryError",
    "InvalidJSON",
    "InvalidPayload",
    "PayloadError",
    "RequestError",
    "SignatureError",
    "SignatureMalformed",
    "SignatureMismatch",
    "SignatureMissing",
    "TimestampInFuture",
    "TimestampTooOld",
    "UnsupportedEncoding",
]


class DeliveryError(BillhookError):
    """One delivery cannot be taken or read."""


class RequestError(DeliveryError):
    """The HTTP request is unusable, whoever sent it."""

    status: ClassVar[int] = 400
    cause: ClassVar[str] = "request"


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
