"""`billhook events`: the event types, their fields, samples and JSON schemas; look-up of a type by name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json
from billhook.errors import ConfigError

if TYPE_CHECKING:
    from billhook.events import Event

__all__ = ["event_class", "event_json_schema", "events", "schema_fields", "suggest"]


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
    from billhook.events import EVENT_TYPES

    if as_json and json_schema:
        raise click.UsageError("choose one of --json and --json-schema")
    model = None if event_type is None else event_class(event_type)
    if json_schema:
        schemas = {name: event_json_schema(each) for name, each in EVENT_TYPES.items()}
        print_json(schemas if model is None else event_json_schema(model))
    elif model is None:
        _list_all(as_json)
    elif as_json:
        print_json(_type_json(model))
    else:
        _show(model)


def _list_all(as_json: bool) -> None:
    from billhook.events import EVENT_TYPES

    if as_json:
        print_json([_type_json(model) for model in EVENT_TYPES.values()])
        return
    rows = [(name, event_summary(model)) for name, model in EVENT_TYPES.items()]
    print_table("", ("type", "meaning"), rows)


def _show(model: type[Event]) -> None:
    from billhook.events import sample

    click.echo(f"{model.type}: {event_summary(model)}")
    click.echo(f"signal: billhook.signals.{model.signal_name}")
    rows = schema_fields(event_json_schema(model))
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
    """Return indented JSON with each number's digits unchanged: 12.50 stays 12.50."""
    # A float would print 12.50 as 12.5, and json.dumps takes no Decimal. So the digits pass through as text
    # between NULs, which no sample contains; the escaped NULs and their quotes are removed again.
    text = json.dumps(json.loads(body, parse_float=lambda digits: f"\0{digits}\0"), indent=2)
    return text.replace('"\\u0000', "").replace('\\u0000"', "")


def _type_json(model: type[Event]) -> dict[str, object]:
    from billhook.events import sample

    return {
        "type": model.type,
        "meaning": event_summary(model),
        "signal": model.signal_name,
        "fields": schema_fields(event_json_schema(model)),
        "sample": json.loads(sample(model).to_json()),
    }


def event_class(event_type: str) -> type[Event]:
    """Return the model of a type. Raises ConfigError, with the closest names, for an unknown one."""
    from billhook.events import EVENT_TYPES

    model = EVENT_TYPES.get(event_type)
    if model is None:
        hint = suggest(event_type, EVENT_TYPES) or "`billhook events` lists the known ones"
        raise ConfigError(f"unknown event type {event_type!r}: {hint}")
    return model


def suggest(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return `did you mean …?` with the known names closest to `name`; empty if none is close."""
    by_folded = {_fold(each): each for each in known}
    # 0.5, lower than difflib's 0.6: people shorten the long names.
    close = difflib.get_close_matches(_fold(name), by_folded, n=most, cutoff=0.5)
    return f"did you mean {', '.join(by_folded[each] for each in close)}?" if close else ""


def _fold(name: str) -> str:
    return name.casefold().replace("_", "")


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
