"""What the models say about themselves: the summary of a type, and each field with its type and meaning."""

from __future__ import annotations

from typing import Any

from billhook.events.base import Event

__all__ = ["event_json_schema", "event_summary", "schema_fields"]


def event_summary(model: type[Event]) -> str:
    """Return the first line of the type's docstring: what such an event says."""
    return (model.__doc__ or "").strip().splitlines()[0]


def event_json_schema(model: type[Event]) -> dict[str, Any]:
    """Return the JSON schema by the fields' JSON names, with numbers as numbers and not as text."""
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
    from pydantic_core import core_schema

    class Wire(GenerateJsonSchema):
        # pydantic's own schema of a Decimal allows text as well; the service sends numbers only.
        def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
            return {"type": "number"}

    schema = model.model_json_schema(by_alias=True, schema_generator=Wire)
    schema["description"] = event_summary(model)
    for part in schema.get("$defs", {}).values():
        if "description" in part:
            # The rest of a docstring is for readers of the source.
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
