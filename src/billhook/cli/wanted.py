"""The body to send: a sample or a file, with fields set by path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from billhook.cli.fields import rows_of, schema_of
from billhook.errors import BillhookError, ConfigError, InvalidJSON, PayloadError
from billhook.events import EVENT_TYPES, Event, parse_event, sample, strict_json
from billhook.events.samples import in_agreement

__all__ = ["body_of", "event_class", "near", "remarks"]

_INDEX = re.compile(r"\.[0-9]+(?=\.|$)")


def event_class(event_type: str) -> type[Event]:
    """The model of a type; ConfigError, with the nearest names, when there is none."""
    model = EVENT_TYPES.get(event_type)
    if model is None:
        hint = near(event_type, EVENT_TYPES) or "`billhook events` lists them"
        raise ConfigError(f"there is no event type {event_type!r}: {hint}")
    return model


def near(name: str, known: Iterable[str], most: int = 3) -> str:
    """`did you mean …?` with the names that are spelt much like it; empty if none is."""
    by_folded = {_folded(each): each for each in known}
    found = difflib.get_close_matches(_folded(name), by_folded, n=most, cutoff=0.5)
    return f"did you mean {', '.join(by_folded[each] for each in found)}?" if found else ""


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")


def remarks(event_type: str, body: bytes, changes: Sequence[str]) -> list[str]:
    """What a sender may not have meant: fields that the type has not, and a body that is not valid."""
    kinds = _kinds(event_type)
    found = []
    for path in (change.partition("=")[0] for change in changes):
        field = _INDEX.sub("[]", path).removesuffix("[]")
        if event_type in EVENT_TYPES and field not in kinds:
            hint = near(field, kinds, most=1)
            found.append(f"{event_type} has no field {path}" + (f"; {hint}" if hint else ""))
    try:
        parse_event(event_type, body)
    except PayloadError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.details)
        found.append(f"this body is not a valid {event_type} ({wrong or error})")
    return found


def _kinds(event_type: str) -> Mapping[str, str]:
    """Each field's type in words, by its path; nothing for a type without a model."""
    model = EVENT_TYPES.get(event_type)
    return {} if model is None else {row["name"]: row["type"] for row in rows_of(schema_of(model))}


def body_of(event_type: str, content: bytes | None, changes: Sequence[str]) -> bytes:
    """`content` or a sample of the type, with changes such as `a.b=1`. Raises ConfigError."""
    body = sample(event_class(event_type)).to_json() if content is None else content
    if not changes:
        return body
    try:
        value = strict_json.loads(body)
    except BillhookError as error:
        raise ConfigError(f"--set needs a JSON body to change: {error}") from None
    kinds = _kinds(event_type)
    for change in changes:
        path, equals, text = change.partition("=")
        if not (path and equals):
            raise ConfigError(f"--set {change!r} is not PATH=VALUE, such as customerId=cus_1")
        _put(value, path, _value(text, _kind(kinds, path)))
    if content is None:  # of a sample, what depends on a change follows it
        value = in_agreement(
            event_type, cast("dict[str, Any]", value), {change.partition("=")[0] for change in changes}
        )
    return strict_json.dumps(value)


def _kind(kinds: Mapping[str, str], path: str) -> str:
    """The type of a field, or of the item of a list; empty for what the model does not have."""
    field = _INDEX.sub("[]", path)
    return kinds.get(field) or kinds.get(field.removesuffix("[]"), "").removeprefix("list of ")


def _value(text: str, kind: str) -> object:
    """The value as JSON if it is any, else the text itself; where a text belongs, 42 is one too."""
    try:
        value = strict_json.loads(text.encode("utf-8", "surrogateescape"))
    except InvalidJSON:
        return text
    if isinstance(value, str) or not kind.startswith("text"):
        return value
    return None if value is None and kind == "text or null" else text


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
