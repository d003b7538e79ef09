"""`billhook events`: the event types, their fields, samples and JSON schemas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from billhook.cli.output import print_json, print_table
from billhook.cli.params import as_json
from billhook.cli.payload import event_json_schema, event_summary, schema_fields

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
    from billhook.cli.payload import event_class
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
        print_json(_facts(model))
    else:
        _show(model)


def _list_all(as_json: bool) -> None:
    from billhook.events import EVENT_TYPES

    if as_json:
        print_json([_facts(model) for model in EVENT_TYPES.values()])
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
    text = json.dumps(json.loads(body, parse_float=lambda digits: f"\0{digits}\0"), indent=2)
    return text.replace('"\\u0000', "").replace('\\u0000"', "")


def _facts(model: type[Event]) -> dict[str, object]:
    from billhook.events import sample

    return {
        "type": model.type,
        "meaning": event_summary(model),
        "signal": model.signal_name,
        "fields": schema_fields(event_json_schema(model)),
        "sample": json.loads(sample(model).to_json()),
    }
