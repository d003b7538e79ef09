"""Every exception billhook raises or understands.

BillhookError
├── ConfigError                  the app is set up wrongly; raised at start, never per delivery
│   ├── MissingSecret
│   ├── WeakSecret
│   ├── DuplicateHandlerName
│   ├── HandlerSignature
│   ├── LateRegistration
│   ├── SchemaMismatch
│   │   └── InboxElsewhere
│   ├── SchemaForbidden
│   └── MissingExtra
├── DeliveryError                one delivery cannot be taken
│   ├── RequestError             the HTTP request is unusable (400, 413, 415)
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
│   │   ├── Draining
│   │   └── OutOfResources
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
├── Refusal                      the sandbox does not do what it was asked
└── HandlerSignal                raised by a handler, to say how its run ended
    ├── Retry
    └── Discard

No text here ever holds a secret, a header value or a body: what an attacker sent is not repeated. An ApiError
quotes what the service answered, without tokens and cut short.
"""

from __future__ import annotations

from billhook.errors.api import (
    ApiError,
    AuthenticationFailed,
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    RequestTooLarge,
    ResourceNotFound,
    ServiceError,
    ServiceUnavailable,
    UnexpectedResponse,
)
from billhook.errors.config import (
    ConfigError,
    DuplicateHandlerName,
    HandlerSignature,
    InboxElsewhere,
    LateRegistration,
    MissingExtra,
    MissingSecret,
    SchemaForbidden,
    SchemaMismatch,
    WeakSecret,
)
from billhook.errors.deliveries import (
    BodyIncomplete,
    BodyTooLarge,
    DeliveryError,
    InvalidJSON,
    InvalidPayload,
    PayloadError,
    RequestError,
    SignatureError,
    SignatureMalformed,
    SignatureMismatch,
    SignatureMissing,
    TimestampInFuture,
    TimestampTooOld,
    UnsupportedEncoding,
)
from billhook.errors.handling import Discard, HandlerSignal, Retry
from billhook.errors.inbox import (
    BacklogFull,
    DeadlinePassed,
    Draining,
    IllegalTransition,
    InboxError,
    InboxUnavailable,
    OutOfResources,
)
from billhook.errors.resources import (
    FieldConflict,
    FieldMissing,
    InvalidResource,
    LimitBroken,
    ResourceError,
    RuleBroken,
)
from billhook.errors.root import BillhookError
from billhook.errors.sandbox import Refusal

__all__ = [
    "ApiError",
    "AuthenticationFailed",
    "BacklogFull",
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
    "InboxElsewhere",
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
    "OutOfResources",
    "PayloadError",
    "RateLimitExceeded",
    "Refusal",
    "RequestError",
    "RequestTooLarge",
    "ResourceError",
    "ResourceNotFound",
    "Retry",
    "RuleBroken",
    "SchemaForbidden",
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
