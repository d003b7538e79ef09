"""The body that `billhook send` posts: a sample or a file, with fields set by path; the fields of a type."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from billhook.errors import BillhookError, ConfigError, InvalidJSON, PayloadError
from billhook.events import EVENT_TYPES, Event, parse_event, sample
from billhook.events.samples import in_agreement
from billhook.wire import strict_json

if TYPE_CHECKING:
    from billhook.events import Event

__all__ = [
    "build_payload",
    "event_class",
    "event_json_schema",
    "event_summary",
    "payload_warnings",
    "schema_fields",
    "suggest",
]


_INDEX = re.compile(r"\.[0-9]+(?=\.|$)")


def event_class(event_type: str) -> type[Event]:
    """Return the model of a type. Raises ConfigError, with the closest names, for an unknown one."""
    model = EVENT_TYPES.get(event_type)
    if model is None:
        hint = suggest(event_type, EVENT_TYPES) or "`billhook events` lists the known ones"
        raise ConfigError(f"unknown event type {event_type!r}: {hint}")
    return model


def suggest(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return `did you mean …?` with the known names closest to `name`; empty if none is close."""
    by_folded = {_folded(each): each for each in known}
    found = difflib.get_close_matches(_folded(name), by_folded, n=most, cutoff=0.5)
    return f"did you mean {', '.join(by_folded[each] for each in found)}?" if found else ""


def _folded(name: str) -> str:
    return name.casefold().replace("_", "")


def payload_warnings(event_type: str, body: bytes, changes: Sequence[str]) -> list[str]:
    """Return what the user may not have meant: fields that the type does not have, an invalid body."""
    kinds = _kinds(event_type)
    found = []
    for path in (change.partition("=")[0] for change in changes):
        field = _INDEX.sub("[]", path).removesuffix("[]")
        if event_type in EVENT_TYPES and field not in kinds:
            hint = suggest(field, kinds, most=1)
            found.append(f"{event_type} has no field {path}" + (f"; {hint}" if hint else ""))
    try:
        parse_event(event_type, body)
    except PayloadError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.details)
        found.append(f"this body is not a valid {event_type} ({wrong or error})")
    return found


def _kinds(event_type: str) -> Mapping[str, str]:
    """Return each field's type in words by its path; nothing for a type without a model."""
    model = EVENT_TYPES.get(event_type)
    return (
        {} if model is None else {row["name"]: row["type"] for row in schema_fields(event_json_schema(model))}
    )


def build_payload(event_type: str, content: bytes | None, changes: Sequence[str]) -> bytes:
    """Return `content`, or a sample of the type, with changes such as `a.b=1`. Raises ConfigError."""
    body = sample(event_class(event_type)).to_json() if content is None else content
    if not changes:
        return body
    try:
        value = strict_json.loads(body)
    except BillhookError as error:
        raise ConfigError(f"--set needs a JSON body: {error}") from None
    kinds = _kinds(event_type)
    for change in changes:
        path, equals, text = change.partition("=")
        if not (path and equals):
            raise ConfigError(f"--set {change!r} is not PATH=VALUE, such as customerId=cus_1")
        _put(value, path, _value(text, _kind(kinds, path)))
    if content is None:  # in a sample, fields that depend on a changed one follow it
        value = in_agreement(
            event_type, cast("dict[str, Any]", value), {change.partition("=")[0] for change in changes}
        )
    return strict_json.dumps(value)


def _kind(kinds: Mapping[str, str], path: str) -> str:
    """Return the type of a field or of a list's items; empty for a field that the model does not have."""
    field = _INDEX.sub("[]", path)
    return kinds.get(field) or kinds.get(field.removesuffix("[]"), "").removeprefix("list of ")


def _value(text: str, kind: str) -> object:
    """Return `text` decoded as JSON, or as it is; in a text field `42` is text, too."""
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
    return ConfigError(f"--set {path}: the body has no place for {name!r}")


def event_summary(model: type[Event]) -> str:
    """Return the first line of the type's docstring: what such an event says."""
    return (model.__doc__ or "").strip().splitlines()[0]


def event_json_schema(model: type[Event]) -> dict[str, Any]:
    """Return the JSON schema by the fields' JSON names, with numbers as numbers and not as text."""
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
    from pydantic_core import core_schema

    class Wire(GenerateJsonSchema):
        def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
            return {"type": "number"}

    schema = model.model_json_schema(by_alias=True, schema_generator=Wire)
    schema["description"] = event_summary(model)
    for part in schema.get("$defs", {}).values():
        if "description" in part:
            part["description"] = part["description"].splitlines()[0]
    return {"$schema": Wire.schema_dialect, **schema}


def schema_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every field by its path: name, type in words, required, meaning."""
    return list(_fields(schema, schema.get("$defs", {}), ""))


def _fields(schema: dict[str, Any], parts: dict[str, Any], prefix: str) -> Any:
    """Yield the fields of an object, each followed by those of the object or the list in it."""
    for name, field in schema.get("properties", {}).items():
        kind, inner = _type_and_schema(field, parts)
        yield {
            "name": prefix + name,
            "type": kind,
            "required": name in schema.get("required", ()),
            "meaning": field.get("description", ""),
        }
        if inner is not None:
            yield from _fields(inner, parts, f"{prefix}{name}{'[]' if kind.startswith('list') else ''}.")


def _type_and_schema(field: dict[str, Any], parts: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return a field's type in words and the schema of the object in it, if there is one."""
    if "$ref" in field:
        return "object", parts[field["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in field:
        (kind, inner), *_ = (
            _type_and_schema(each, parts) for each in field["anyOf"] if each.get("type") != "null"
        )
        return f"{kind} or null", inner
    if field.get("type") == "array":
        kind, inner = _type_and_schema(field["items"], parts)
        return f"list of {kind}", inner
    if field.get("format") == "date-time":
        return "date-time", None
    return {"string": "text", "boolean": "true/false"}.get(
        field.get("type", ""), field.get("type", "any")
    ), None
