"""An event model's fields, as the wire has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from billhook.events import Event

__all__ = ["meaning_of", "rows_of", "schema_of"]


def meaning_of(model: type[Event]) -> str:
    """What an event of this type says."""
    return (model.__doc__ or "").strip().splitlines()[0]


def schema_of(model: type[Event]) -> dict[str, Any]:
    """By the wire's names. Numbers are numbers there, and text is no way to write one."""
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
    from pydantic_core import core_schema

    class Wire(GenerateJsonSchema):
        def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
            return {"type": "number"}

    schema = model.model_json_schema(by_alias=True, schema_generator=Wire)
    schema["description"] = meaning_of(model)
    for part in schema.get("$defs", {}).values():
        if "description" in part:
            part["description"] = part["description"].splitlines()[0]
    return {"$schema": Wire.schema_dialect, **schema}


def rows_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Every field by its path: name, type (in words), required, meaning."""
    return list(_fields(schema, schema.get("$defs", {}), ""))


def _fields(schema: dict[str, Any], parts: dict[str, Any], prefix: str) -> Any:
    """The fields of an object, and below each those of the object or the list that it is."""
    for name, field in schema.get("properties", {}).items():
        kind, inner = _kind(field, parts)
        yield {
            "name": prefix + name,
            "type": kind,
            "required": name in schema.get("required", ()),
            "meaning": field.get("description", ""),
        }
        if inner is not None:
            yield from _fields(inner, parts, f"{prefix}{name}{'[]' if kind.startswith('list') else ''}.")


def _kind(field: dict[str, Any], parts: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """A field's type in words, and the schema of the object in it."""
    if "$ref" in field:
        return "object", parts[field["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in field:
        (kind, inner), *_ = (_kind(each, parts) for each in field["anyOf"] if each.get("type") != "null")
        return f"{kind} or null", inner
    if field.get("type") == "array":
        kind, inner = _kind(field["items"], parts)
        return f"list of {kind}", inner
    if field.get("format") == "date-time":
        return "date-time", None
    return {"string": "text", "boolean": "true/false"}.get(
        field.get("type", ""), field.get("type", "any")
    ), None
