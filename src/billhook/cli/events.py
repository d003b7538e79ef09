"""`billhook events`: the event types, their fields, samples and JSON schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json

if TYPE_CHECKING:
    from billhook.events import Event

__all__ = ["events"]


@click.command()
@click.argument("event_type", metavar="[TYPE]", required=False)
@as_json
@click.option("--json-schema", is_flag=True, help="Print the JSON schema of TYPE, or of all types by name.")
def events(event_type: str | None, as_json: bool, json_schema: bool) -> None:
    """List the event types; with TYPE, its fields and a sample.

    \b
    Examples:
      billhook events
      billhook events PaymentFailed
      billhook events PaymentFailed --json-schema > payment-failed.json
    """
    from billhook.cli.wanted import event_class
    from billhook.events import EVENT_TYPES

    if as_json and json_schema:
        raise click.UsageError("choose one of --json and --json-schema")
    model = None if event_type is None else event_class(event_type)
    if json_schema:
        schemas = {name: _schema(each) for name, each in EVENT_TYPES.items()}
        print_json(schemas if model is None else _schema(model))
    elif model is None:
        _list_all(as_json)
    elif as_json:
        print_json(_facts(model))
    else:
        _show(model)


def _list_all(as_json: bool) -> None:
    from billhook.events import EVENT_TYPES

    if as_json:
        print_json([_facts(model) for model in EVENT_TYPES.values()])
        return
    rows = [(name, _meaning(model)) for name, model in EVENT_TYPES.items()]
    print_table("", ("type", "meaning"), rows)


def _show(model: type[Event]) -> None:
    from billhook.events import sample

    click.echo(f"{model.type}: {_meaning(model)}")
    click.echo(f"signal: billhook.signals.{model.signal_name}")
    rows = _rows(_schema(model))
    if rows:
        cells = [
            (row["name"], row["type"], "yes" if row["required"] else "no", row["meaning"]) for row in rows
        ]
        print_table("", ("field", "type", "required", "meaning"), cells)
    else:
        click.echo("no fields: the body is {}")
    click.echo("sample:")
    click.echo(_indented(sample(model).to_json()))


def _indented(body: bytes) -> str:
    """JSON for people, each number with the digits that it has on the wire: 12.50 stays 12.50."""
    text = json.dumps(json.loads(body, parse_float=lambda digits: f"\0{digits}\0"), indent=2)
    return text.replace('"\\u0000', "").replace('\\u0000"', "")


def _facts(model: type[Event]) -> dict[str, object]:
    from billhook.events import sample

    return {
        "type": model.type,
        "meaning": _meaning(model),
        "signal": model.signal_name,
        "fields": _rows(_schema(model)),
        "sample": json.loads(sample(model).to_json()),
    }


def _meaning(model: type[Event]) -> str:
    return (model.__doc__ or "").strip().splitlines()[0]


def _schema(model: type[Event]) -> dict[str, Any]:
    """By the wire's names. Numbers are numbers there, and text is no way to write one."""
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
    from pydantic_core import core_schema

    class Wire(GenerateJsonSchema):
        def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
            return {"type": "number"}

    schema = model.model_json_schema(by_alias=True, schema_generator=Wire)
    schema["description"] = _meaning(model)
    for part in schema.get("$defs", {}).values():
        if "description" in part:
            part["description"] = part["description"].splitlines()[0]
    return {"$schema": Wire.schema_dialect, **schema}


def _rows(schema: dict[str, Any]) -> list[dict[str, Any]]:
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
