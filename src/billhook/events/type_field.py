"""The type of an event in a field of its body, as Stripe, Slack and most users of Standard Webhooks send it.

A field has a path: `type`, or `event.type` for a field of the object in `event`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from billhook.basics.type_names import ANY_TYPE_NAME, ANY_TYPE_NAME_IN_WORDS
from billhook.errors import InvalidPayload
from billhook.events.base import Event, UnknownEvent, decode_body, event_of
from billhook.events.own_models import guarded
from billhook.fields import strict_json


def read_type(data: dict[str, Any], path: str) -> str:
    """Return the type that a body names in the field at `path`; `data` is the body as strict_json decodes it.

    Raises InvalidPayload, which says what is wrong and repeats nothing of the body.
    """
    value: Any = data
    names = path.split(".")
    for depth, name in enumerate(names):
        if not isinstance(value, dict):
            raise InvalidPayload(
                f"no event type: the field {'.'.join(names[:depth])!r} of the body is no object"
            )
        if name not in value:
            raise InvalidPayload(f"no event type: the body has no field {'.'.join(names[: depth + 1])!r}")
        value = value[name]
    if not isinstance(value, str):
        raise InvalidPayload(f"no event type: the field {path!r} of the body is no text")
    if not ANY_TYPE_NAME.fullmatch(value):
        raise InvalidPayload(
            f"no event type: the field {path!r} of the body is no usable name ({ANY_TYPE_NAME_IN_WORDS})"
        )
    return value


def write_type(data: dict[str, Any], path: str, event_type: str) -> None:
    """Set the field at `path` to a type, in objects that are made where they are missing."""
    *parents, last = path.split(".")
    for name in parents:
        inner = data.get(name)
        if not isinstance(inner, dict):
            inner = data[name] = {}
        data = inner
    data[last] = event_type


def parse_unread(event_type: str, path: str | None, body: bytes) -> Event | UnknownEvent:
    """Parse a delivery that perhaps no worker has read: without a type it is of that in the field at `path`.

    Raises InvalidJSON, InvalidPayload, or ModelFailed.
    """
    data = decode_body(body)
    name = event_type if event_type or path is None else read_type(data, path)
    with guarded(name):
        return event_of(name, data)


def with_type(body: bytes, path: str, event_type: str) -> bytes:
    """Return a body with the type in the field at `path`, as it is if it has it. Raises as `parse_unread`."""
    data = decode_body(body)
    with suppress(InvalidPayload):
        if read_type(data, path) == event_type:
            return body
    write_type(data, path, event_type)
    return strict_json.dumps(data)
