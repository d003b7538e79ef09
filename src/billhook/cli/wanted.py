"""The body to send: a sample or a file, with fields set by path."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from billhook.errors import BillhookError, ConfigError, InvalidJSON
from billhook.events import EVENT_TYPES, Event, sample, strict_json

__all__ = ["body_of", "event_class"]


def event_class(event_type: str) -> type[Event]:
    """The model of a type; ConfigError, with the nearest names, when there is none."""
    model = EVENT_TYPES.get(event_type)
    if model is None:
        by_folded = {name.casefold(): name for name in EVENT_TYPES}
        near = difflib.get_close_matches(event_type.casefold(), by_folded, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(by_folded[name] for name in near)}?" if near else ""
        raise ConfigError(f"there is no event type {event_type!r}: {hint or '`billhook events` lists them'}")
    return model


def body_of(event_type: str, content: bytes | None, changes: Sequence[str]) -> bytes:
    """`content` or a sample of the type, with changes such as `a.b=1`. Raises ConfigError."""
    body = sample(event_class(event_type)).to_json() if content is None else content
    if not changes:
        return body
    try:
        value = strict_json.loads(body)
    except BillhookError as error:
        raise ConfigError(f"--set needs a JSON body to change: {error}") from None
    for change in changes:
        path, equals, text = change.partition("=")
        if not (path and equals):
            raise ConfigError(f"--set {change!r} is not PATH=VALUE, such as customerId=cus_1")
        _put(value, path, _value(text))
    return strict_json.dumps(value)


def _value(text: str) -> object:
    """The value as JSON if it is any, else the text itself."""
    try:
        return strict_json.loads(text.encode("utf-8", "surrogateescape"))
    except InvalidJSON:
        return text


def _put(value: Any, path: str, new: object) -> None:
    *parents, last = path.split(".")
    for name in parents:
        value = _step(value, name, path, default={})
    if isinstance(value, dict):
        value[last] = new
    elif isinstance(value, list) and last.isdecimal() and int(last) < len(value):
        value[int(last)] = new
    else:
        raise _no_such(path, last)


def _step(value: Any, name: str, path: str, default: object) -> Any:
    if isinstance(value, dict):
        return value.setdefault(name, default)
    if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
        return value[int(name)]
    raise _no_such(path, name)


def _no_such(path: str, name: str) -> ConfigError:
    return ConfigError(f"--set {path}: there is no place for {name!r} in this body")
