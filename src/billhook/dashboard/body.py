"""A body, read as its event type: each field with its value and its meaning, and what no model lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from billhook.errors import InvalidJSON
from billhook.events import EVENT_TYPES
from billhook.events.inspection import event_json_schema, event_summary, schema_fields, unlisted
from billhook.wire import strict_json

__all__ = ["BodyField", "TypedBody", "indented_json", "read_body"]

_MOST_FIELDS = 300
_VALUE_CHARACTERS = 2_000
_PATH_CHARACTERS = 300
_DEEPEST = 20
"""Levels of indentation: with more, the spaces of a deep body would outweigh it a thousand times."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s"\[\]{},:]+')


@dataclass(frozen=True, slots=True)
class BodyField:
    """One value of a body. `remark` says what the model does not know of it; empty for what it lists."""

    path: str
    value: str
    meaning: str
    remark: str


@dataclass(frozen=True, slots=True)
class TypedBody:
    """The fields of a body. `meaning` is what such an event says; `left_out` fields are not in the list."""

    meaning: str
    fields: tuple[BodyField, ...]
    left_out: int


def read_body(event_type: str, body: bytes) -> TypedBody | None:
    """Return the fields of a body; None for one that is no JSON object."""
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
    """Yield each value that holds no others: its path, the path as models have it, its remark, and itself.

    The remark is what is unlisted of the value, or of the nearest that it is in. It is handed down: names may
    be as long as a body, so looking up every part of each path would take minutes.
    """
    remark = remarks.get(plain) or remarks.get(plain.removesuffix("[]")) or remark
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            dot = "." if path else ""
            yield from _leaves(inner, f"{path}{dot}{name}", f"{plain}{dot}{name}", remark, remarks)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]", f"{plain}[]", remark, remarks)
    else:
        yield path, plain, remark, value


def _count_leaves(data: dict[str, Any]) -> int:
    """Return how many values hold no others, without their paths: each may be as long as a body."""
    number, left = 0, list(data.values())
    while left:
        value = left.pop()
        if isinstance(value, dict | list) and value:
            left.extend(value.values() if isinstance(value, dict) else value)
        else:
            number += 1
    return number


def _text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    elif value is None or isinstance(value, bool | dict | list):
        text = json.dumps(value)
    else:
        text = str(value)
    return _cut(text, _VALUE_CHARACTERS)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "…"


def indented_json(text: str) -> str:
    """Return JSON with a line for each value, and every token as it was sent; text that is none as it is."""
    if not _is_json(text):
        return text
    parts: list[str] = []
    depth, before = 0, ""
    for part in _TOKEN.findall(text):
        if part in "]}":
            depth -= 1
            if before not in "[{":
                parts.append("\n" + "  " * min(depth, _DEEPEST))
        elif before and before in "[{,":
            parts.append("\n" + "  " * min(depth, _DEEPEST))
        parts.append(": " if part == ":" else part)
        if part in "[{":
            depth += 1
        before = part
    return "".join(parts)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
