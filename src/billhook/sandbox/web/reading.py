"""From a request's bytes to a model, strictly; what is wrong is told by the name that it has on the wire."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Request
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from billhook.errors import InvalidJSON, InvalidResource, Refusal, RuleBroken
from billhook.resources import READ_ONLY, EventBatch, Resource, WrongParam
from billhook.sandbox.refusals import invalid_request, too_large
from billhook.wire import strict_json

__all__ = ["body_bytes", "read_body", "read_query"]

_NUL = b"\\u0000"
"""As JSON has it: the byte itself stands in no JSON. A batch's events are judged one by one."""


def body_bytes(request: Request, *, needed: bool, most: int) -> bytes:
    """The body, of `most` bytes at most, and {} for none where none is `needed`.

    Refused if it is longer, before the rest of it is read; if it is broken off, or no JSON by its own word.
    """
    body = _all_of(request, most)
    if not body and not needed:
        return b"{}"
    if request.mimetype != "application/json":
        raise invalid_request("the body must be sent as Content-Type: application/json", code="not_json")
    return body


def _all_of(request: Request, most: int) -> bytes:
    # One more: of a body in chunks no more is read than is allowed, and what is at the limit may be cut off.
    request.max_content_length = most + 1
    too_long = too_large(f"the body is longer than what is taken here, {most} bytes")
    try:
        body = request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise too_long from None
    except ClientDisconnected:
        raise invalid_request("the body is shorter than its Content-Length", code="not_json") from None
    except Exception:  # noqa: BLE001 - broken chunks raise whatever the server likes
        raise invalid_request("the body cannot be read: its chunks are broken", code="not_json") from None
    if len(body) > most:
        raise too_long
    return body


def read_body(model: type[Resource], body: bytes) -> Resource:
    """`body` as a `model`, or the refusal that the specification has for it."""
    try:
        if issubclass(model, EventBatch):
            return model.from_json(body)
        given = strict_json.loads(body)
        read = model.from_wire(_writable(model, given))
    except InvalidJSON as error:
        raise invalid_request(str(error)) from None
    except (InvalidResource, RuleBroken) as error:
        raise refusal_of(error) from None
    if _NUL in body:
        _refuse_nul(model, given)
    return read


def _writable(model: type[Resource], given: object) -> object:
    """`given` without the fields that are read-only: they are ignored, whatever stands in them.

    Source: spec, Customer, customFieldValues.
    """
    if not isinstance(given, dict):
        return given
    read_only = {field.alias for field in model.model_fields.values() if READ_ONLY in field.metadata}
    return {name: value for name, value in given.items() if name not in read_only}


def _refuse_nul(model: type[Resource], given: object) -> None:
    """Refuse a NUL in any text, however deep: PostgreSQL keeps none. Only fields of ours are named."""
    fields = {field.alias or name for name, field in model.model_fields.items()}
    wrong = []
    for name, value in given.items() if isinstance(given, dict) else ():
        entries = enumerate(value) if isinstance(value, list) else ()
        places = [f"{name}.{n}" for n, entry in entries if _holds_nul(entry)]
        if name in fields and (places or _holds_nul(value)):
            wrong += places or [name]
    if wrong or _holds_nul(given):
        raise invalid_request("a text in the body holds a NUL character: it cannot be kept", *wrong)


def _holds_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_nul, value)) or any(map(_holds_nul, value.values()))
    if isinstance(value, list):
        return any(map(_holds_nul, value))
    return isinstance(value, str) and "\0" in value


def read_query(model: type[Resource], query: Mapping[str, str]) -> Resource:
    """The same for the parameters of the URL."""
    if nul := [name for name, value in query.items() if "\0" in value]:
        raise invalid_request("a parameter of the URL holds a NUL character", *nul)
    try:
        return model.from_wire(dict(query))
    except RuleBroken as error:
        raise refusal_of(error) from None
    except InvalidResource as error:
        names = ", ".join(each.param for each in _wrong(error))
        raise _invalid(f"the parameters of the URL are not valid, because of {names}", error) from None


def refusal_of(error: InvalidResource | RuleBroken) -> Refusal:
    """400, with `param` or `params`. Source: spec, "Errors"."""
    if isinstance(error, RuleBroken):
        return invalid_request(str(error), *error.params)
    return _invalid(str(error), error)


def _invalid(text: str, error: InvalidResource) -> Refusal:
    """`params` say what is wrong with each of several; of a single one `message` must, if it does not yet."""
    wrong = _wrong(error)
    if len(wrong) == 1 and wrong[0].message not in text:
        text = f"{text}: {wrong[0].message}"
    return invalid_request(text, details=wrong)


def _wrong(error: InvalidResource) -> list[WrongParam]:
    return [WrongParam(param=".".join(map(str, each["loc"])), message=each["msg"]) for each in error.details]
