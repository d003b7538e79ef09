"""Every exception that billhook raises or understands.

BillhookError
├── ConfigError                  the app is set up wrongly; raised at start, never per delivery
│   ├── MissingSecret
│   ├── WeakSecret
│   ├── DuplicateHandlerName
│   ├── HandlerSignature
│   ├── LateRegistration
│   ├── SchemaMismatch
│   │   ├── UnreleasedSchema
│   │   ├── ForeignFile
│   │   └── UnfitEncoding
│   ├── SchemaForbidden
│   └── MissingExtra
├── DeliveryError                one delivery cannot be accepted or parsed
│   ├── RequestError             the HTTP request is unusable (400, 413, 415)
│   │   ├── BodyIncomplete
│   │   ├── BodyTooLarge
│   │   └── UnsupportedEncoding
│   ├── SignatureError           the sender could not be verified (401)
│   │   ├── SignatureMissing
│   │   ├── SignatureMalformed
│   │   ├── SignatureMismatch
│   │   ├── TimestampTooOld
│   │   └── TimestampInFuture
│   └── PayloadError             verified and stored, but not parseable as its type (quarantined)
│       ├── InvalidJSON
│       ├── InvalidPayload
│       └── ModelFailed
├── InboxError                   the inbox cannot do what was requested
│   ├── InboxUnavailable         storage failed or is closed (503)
│   │   ├── DeadlinePassed
│   │   ├── BacklogFull
│   │   ├── Draining
│   │   └── OutOfResources
│   └── IllegalTransition
├── ResourceError                an object of the billing service's API is invalid
│   ├── InvalidResource          received data cannot be parsed as its model
│   └── RuleBroken               a request would break a rule of the specification
│       ├── FieldConflict
│       ├── FieldMissing
│       └── LimitBroken
├── ApiError                     a call of the billing service's API failed
│   ├── ServiceError             the service answered with an error of the specification
│   │   ├── InvalidRequest
│   │   │   ├── ResourceNotFound
│   │   │   └── RequestTooLarge
│   │   ├── AuthenticationFailed
│   │   ├── RateLimitExceeded
│   │   └── InternalError
│   ├── UnexpectedResponse       there was a response, but not one of the specification
│   └── ServiceUnavailable       there was no response
├── PutOffTooOften               a handler put one run off again and again
├── SandboxError                 the sandbox refuses a request
└── HandlerControl               raised by a handler to choose how its run ends
    ├── Retry
    └── Discard

No text here contains a secret, a header value or a body: an attacker's input is never repeated. An ApiError
quotes the service's response, without tokens and shortened; ModelFailed quotes what the user's code raised.
"""

from billhook.errors.api import *  # noqa: F403 - all of its classes
from billhook.errors.framework import *  # noqa: F403

_CLASSES = {name: found.__module__ for name, found in globals().items() if isinstance(found, type)}
__all__ = sorted(name for name, module in _CLASSES.items() if module.startswith(f"{__name__}."))
