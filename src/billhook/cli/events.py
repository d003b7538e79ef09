"""`billhook events`: the event types, their fields, samples and JSON schemas; look-up of a type by name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable

import click

from billhook.cli.output import print_json, print_table, print_wire
from billhook.cli.params import as_json
from billhook.errors import ConfigError
from billhook.events import EVENT_TYPES, Event, sample
from billhook.events.inspection import event_json_schema, event_summary, schema_fields


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
    if as_json and json_schema:
        raise click.UsageError("choose one of --json and --json-schema")
    model = None if event_type is None else event_class(event_type)
    if json_schema:
        schemas = {name: event_json_schema(each) for name, each in EVENT_TYPES.items()}
        print_json(schemas if model is None else event_json_schema(model))
    elif as_json:
        each_json = [_type_json(each) for each in ([model] if model else EVENT_TYPES.values())]
        print_json(each_json if model is None else each_json[0])
    elif model is None:
        rows = [(name, event_summary(each)) for name, each in EVENT_TYPES.items()]
        print_table("", ("type", "meaning"), rows)
    else:
        _show(model)


def _show(model: type[Event]) -> None:
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
    print_wire(sample(model).to_json())


def _type_json(model: type[Event]) -> dict[str, object]:
    return {
        "type": model.type,
        "meaning": event_summary(model),
        "signal": model.signal_name,
        "fields": schema_fields(event_json_schema(model)),
        "sample": json.loads(sample(model).to_json()),
    }


def event_class(event_type: str) -> type[Event]:
    """Return the model of a type. Raises ConfigError, with the closest names, for an unknown one."""
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
