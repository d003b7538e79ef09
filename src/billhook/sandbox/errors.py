"""The error responses of the sandbox, and checks of texts that raise them. Source: spec, "Errors".

The specification gives HTTP statuses for POST /login only; for the rest these are the usual ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from billhook.errors import InvalidResource, RuleBroken, SandboxError
from billhook.resources import ErrorBody, ErrorType, WrongParam
from billhook.sandbox.options import MAX_KEY

_TYPES = {401: ErrorType.AUTHENTICATION_ERROR, 429: ErrorType.RATE_LIMIT_ERROR}
"""The classes of errors by their status; others are of the client below 500, and of the service above."""


def error(
    status: int, code: str, message: str, retry_after_seconds: int | None = None, **fields: Any
) -> SandboxError:
    """Return an error with this status and body; `fields` are others of the body."""
    kind = ErrorType.API_ERROR if status >= 500 else ErrorType.INVALID_REQUEST_ERROR
    body = ErrorBody(type=_TYPES.get(status, kind), code=code, message=message, **fields)
    return SandboxError(status, code, message, body.to_response(), retry_after_seconds)


def invalid_request(
    message: str, *params: str, code: str = "invalid_request", details: Sequence[WrongParam] = ()
) -> SandboxError:
    """Return 400 for a request that breaks a rule; `params` are the wrong fields, as on the wire."""
    # Details have messages of their own; plain names share the main message.
    wrong = list(details) or [WrongParam(param=param, message=message) for param in params]
    fields: dict[str, Any] = {}
    if wrong:
        fields = {"param": wrong[0].param} if len(wrong) == 1 else {"params": wrong}
    return error(400, code, message, **fields)


def invalid_resource(broken: InvalidResource | RuleBroken, prefix: str | None = None) -> SandboxError:
    """Return 400 for a model that could not be read; the message is `prefix` and field names, if given."""
    if isinstance(broken, RuleBroken):
        return invalid_request(str(broken), *broken.params)
    wrong = [
        WrongParam(param=".".join(map(str, each["loc"])), message=each["msg"]) for each in broken.details
    ]
    message = str(broken)
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
    return error(404, "resource_not_found", f"there is no such {noun}")


def too_large(message: str) -> SandboxError:
    """Return 413 with the code request_too_large."""
    return error(413, "request_too_large", message)


def not_authenticated(message: str) -> SandboxError:
    """Return 401 for missing or wrong credentials."""
    return error(401, "authentication_failed", message)


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
