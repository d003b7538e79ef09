"""Strict parsing of a request's bytes into a model; errors name fields as they are written on the wire."""

from __future__ import annotations

from collections.abc import Mapping

from flask import Request
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from billhook.errors import InvalidJSON, InvalidResource, RuleBroken
from billhook.resources import READ_ONLY, EventBatch, Resource
from billhook.sandbox.errors import invalid_request, invalid_resource, too_large
from billhook.wire import strict_json

__all__ = ["parse_body", "parse_query", "read_body"]

# In JSON a NUL is always escaped: strict JSON refuses the byte itself.
_ESCAPED_NUL = b"\\u0000"


def read_body(request: Request, *, required: bool, max_bytes: int) -> bytes:
    """Return the body; {} if there is none and none is `required`.

    Refuses a body that is longer than `max_bytes` (without reading the rest of it), incomplete, or not
    declared as JSON.
    """
    body = _read_limited(request, max_bytes)
    if not body and not required:
        return b"{}"
    if request.mimetype != "application/json":
        raise invalid_request("the body must be sent as Content-Type: application/json", code="not_json")
    return body


def _read_limited(request: Request, max_bytes: int) -> bytes:
    # One byte more than allowed: Werkzeug truncates a chunked body at the limit instead of refusing it.
    request.max_content_length = max_bytes + 1
    too_long = too_large(f"the body is longer than the limit of {max_bytes} bytes")
    try:
        body = request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise too_long from None
    except ClientDisconnected:
        raise invalid_request("the body is shorter than its Content-Length", code="not_json") from None
    except Exception:  # noqa: BLE001 - servers raise exceptions of their own for broken chunks
        raise invalid_request("the body cannot be read: its chunks are broken", code="not_json") from None
    if len(body) > max_bytes:
        raise too_long
    return body


def parse_body(model: type[Resource], body: bytes) -> Resource:
    """Return `body` as a `model`; 400 if it is not a valid one."""
    try:
        if issubclass(model, EventBatch):
            return model.from_json(body)  # its events are validated one by one, NUL included
        data = strict_json.loads(body)
        parsed = model.from_wire(_without_read_only(model, data))
    except InvalidJSON as error:
        raise invalid_request(str(error)) from None
    except (InvalidResource, RuleBroken) as error:
        raise invalid_resource(error) from None
    if _ESCAPED_NUL in body:
        _refuse_nul(model, data)
    return parsed


def parse_query(model: type[Resource], query: Mapping[str, str]) -> Resource:
    """Return the parameters of the URL as a `model`; 400 if they are not valid."""
    if nul := [name for name, value in query.items() if "\0" in value]:
        raise invalid_request("a parameter of the URL holds a NUL character", *nul)
    try:
        return model.from_wire(dict(query))
    except RuleBroken as error:
        raise invalid_resource(error) from None
    except InvalidResource as error:
        raise invalid_resource(error, "the parameters of the URL are not valid, because of") from None


def _without_read_only(model: type[Resource], data: object) -> object:
    """Drop read-only fields: they are ignored, even with an invalid value.

    Source: spec, Customer, customFieldValues.
    """
    if not isinstance(data, dict):
        return data
    read_only = {field.alias for field in model.model_fields.values() if READ_ONLY in field.metadata}
    return {name: value for name, value in data.items() if name not in read_only}


def _refuse_nul(model: type[Resource], data: object) -> None:
    """Refuse a NUL in any string at any depth: PostgreSQL cannot store it. Names known fields only."""
    fields = {field.alias or name for name, field in model.model_fields.items()}
    wrong = []
    for name, value in data.items() if isinstance(data, dict) else ():
        entries = enumerate(value) if isinstance(value, list) else ()
        places = [f"{name}.{n}" for n, entry in entries if _holds_nul(entry)]
        if name in fields and (places or _holds_nul(value)):
            wrong += places or [name]
    if wrong or _holds_nul(data):
        raise invalid_request("a text in the body holds a NUL character: it cannot be stored", *wrong)


def _holds_nul(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_nul, value)) or any(map(_holds_nul, value.values()))
    if isinstance(value, list):
        return any(map(_holds_nul, value))
    return isinstance(value, str) and "\0" in value
