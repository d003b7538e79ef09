"""The error responses of the sandbox, and checks of texts that raise them. Source: spec, "Errors".

The specification gives HTTP statuses for POST /login only; for the rest these are the usual ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from billhook.errors import InvalidResource, RuleBroken, SandboxError
from billhook.resources import ErrorBody, ErrorType, WrongParam
from billhook.sandbox.options import MAX_KEY

_INVALID = ErrorType.INVALID_REQUEST_ERROR


def invalid_request(
    message: str, *params: str, code: str = "invalid_request", details: Sequence[WrongParam] = ()
) -> SandboxError:
    """Return 400 for a request that breaks a rule; `params` are the wrong fields, as on the wire."""
    # Details have messages of their own; plain names share the main message.
    wrong = list(details) or [WrongParam(param=param, message=message) for param in params]
    fields: dict[str, Any] = {}
    if wrong:
        fields = {"param": wrong[0].param} if len(wrong) == 1 else {"params": wrong}
    return _error(400, ErrorBody(type=_INVALID, code=code, message=message, **fields))


def invalid_resource(error: InvalidResource | RuleBroken, prefix: str | None = None) -> SandboxError:
    """Return 400 for a model that could not be read; the message is `prefix` and field names, if given."""
    if isinstance(error, RuleBroken):
        return invalid_request(str(error), *error.params)
    wrong = [WrongParam(param=".".join(map(str, each["loc"])), message=each["msg"]) for each in error.details]
    message = str(error)
    if prefix is not None:
        message = f"{prefix} {', '.join(each.param for each in wrong)}"
    # `params` carry a message for each field; `param` has none, so the main message must hold it.
    if len(wrong) == 1 and wrong[0].message not in message:
        message = f"{message}: {wrong[0].message}"
    return invalid_request(message, details=wrong)


def already_exists(message: str, *params: str) -> SandboxError:
    """Return 400 for what another resource has; `params` are the fields that name it."""
    return invalid_request(message, *params, code="already_exists")


def not_found(noun: str) -> SandboxError:
    """Return 404; `noun` names the kind of resource, never the id in the request."""
    body = ErrorBody(type=_INVALID, code="resource_not_found", message=f"there is no such {noun}")
    return _error(404, body)


def too_large(message: str) -> SandboxError:
    """Return 413 with the code request_too_large."""
    return _error(413, ErrorBody(type=_INVALID, code="request_too_large", message=message))


def not_authenticated(message: str) -> SandboxError:
    """Return 401 for missing or wrong credentials."""
    body = ErrorBody(type="authentication_error", code="authentication_failed", message=message)
    return _error(401, body)


def rate_limited(retry_after_seconds: int) -> SandboxError:
    """Return 429 with a Retry-After header."""
    message = f"too many requests: retry in {retry_after_seconds} s"
    body = ErrorBody(type="rate_limit_error", code="rate_limit_exceeded", message=message)
    return _error(429, body, retry_after_seconds)


def busy(message: str, retry_after_seconds: int) -> SandboxError:
    """Return 503 with a Retry-After header, for a request that would have to wait for others."""
    return _error(503, ErrorBody(type="api_error", code="busy", message=message), retry_after_seconds)


def _error(status: int, body: ErrorBody, retry_after_seconds: int | None = None) -> SandboxError:
    return SandboxError(status, body.code, body.message, body.to_response(), retry_after_seconds)


def key_error(text: str) -> str | None:
    """Return what is wrong with `text` as an alias or external id; None if it is valid."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_KEY:
        return f"has more than {MAX_KEY} characters"
    # SQLite's functions take a text to end there.
    if "\0" in text:
        return "holds a NUL character"
    return None


def check_choice(value: str | None, known: Iterable[str], param: str) -> None:
    """Raise 400 for the field `param` if `value` is not one of `known`; None stands for the default."""
    if value is not None and value not in (names := list(known)):
        raise invalid_request(f"{param.rpartition('.')[2]} must be one of {', '.join(names)}", param)


def check_key(text: str | None, param: str) -> None:
    """Raise 400 for the field `param` if `text` is not a valid key; None is none."""
    if text is not None and (fault := key_error(text)):
        raise invalid_request(f"{param} {fault}: choose another", param)
