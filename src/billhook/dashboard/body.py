"""The body of a delivery for its page, read as its event type: each value, and what no model lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from billhook.errors import InvalidJSON
from billhook.events import EVENT_TYPES
from billhook.events.inspection import event_json_schema, event_summary, schema_fields, unlisted
from billhook.fields import strict_json

_MOST_FIELDS = 300
_VALUE_CHARACTERS = 2_000
_PATH_CHARACTERS = 300


class BodyField(NamedTuple):
    """One value of a body. `remark` says what of it the model does not list; empty if it lists all of it."""

    path: str
    value: str
    meaning: str
    remark: str


class TypedBody(NamedTuple):
    """The fields of a body. `meaning` says what such an event reports; `left_out` fields are not shown."""

    meaning: str
    fields: tuple[BodyField, ...]
    left_out: int


def read_body(event_type: str, body: bytes) -> TypedBody | None:
    """Return the fields of a body; None if it is not a JSON object."""
    try:
        data = strict_json.loads(body)
    except InvalidJSON:
        return None
    if not isinstance(data, dict):
        return None
    model = EVENT_TYPES.get(event_type)
    meanings: dict[str, str] = {}
    remarks: dict[str, str] = {}
    if model is not None:
        meanings = {row["name"]: row["meaning"] for row in schema_fields(event_json_schema(model))}
        remarks = {one.path: f"{one.kind} not listed" for one in unlisted(model, data)}
    leaves = _leaves(data, "", "", "", remarks) if data else iter(())
    rows = tuple(
        BodyField(_cut(path, _PATH_CHARACTERS), _text(value), meanings.get(plain, ""), remark)
        for path, plain, remark, value in islice(leaves, _MOST_FIELDS)
    )
    return TypedBody(
        event_summary(model) if model is not None else "An event type that this billhook does not know.",
        rows,
        _count_leaves(data) - len(rows),
    )


def _leaves(
    value: Any, path: str, plain: str, remark: str, remarks: Mapping[str, str]
) -> Iterator[tuple[str, str, str, Any]]:
    """Yield each value without parts: its path, its path in the models, its remark, and the value.

    The remark is that of the value, or of the nearest object or list around it. It is passed down: names may
    be as long as a body, so looking up every part of each path would take minutes.
    """
    if not isinstance(value, dict | list) or not value:
        yield path, plain, remark, value
        return
    dot = "." if path else ""
    parts = (
        ((f"{dot}{name}", f"{dot}{name}", part) for name, part in value.items())
        if isinstance(value, dict)
        else ((f"[{index}]", "[]", part) for index, part in enumerate(value))
    )
    for own, own_plain, part in parts:
        named = f"{plain}{own_plain}"
        yield from _leaves(part, f"{path}{own}", named, remarks.get(named) or remark, remarks)


def _count_leaves(data: dict[str, Any]) -> int:
    """Return the number of values without parts, without their paths: each may be as long as a body."""
    number, left = 0, list(data.values())
    while left:
        value = left.pop()
        if isinstance(value, dict | list) and value:
            left.extend(value.values() if isinstance(value, dict) else value)
        else:
            number += 1
    return number


def _text(value: Any) -> str:
    # Numbers are decimals, which json.dumps does not know.
    text = json.dumps(value) if value is None or isinstance(value, bool | dict | list) else str(value)
    return _cut(text, _VALUE_CHARACTERS)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "…"
