"""`billhook events`: the event types, their fields, samples and JSON schemas; look-up of a type by name."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence

import click
from pydantic import ValidationError

from billhook.cli.context import import_handlers
from billhook.cli.output import print_json, print_table, print_wire
from billhook.cli.params import as_json, flag
from billhook.errors import ConfigError, ModelFailed
from billhook.events import EVENT_TYPES, Event, sample
from billhook.events.inspection import event_json_schema, event_summary, schema_fields
from billhook.events.own_models import guarded
from billhook.fields.model import describe_invalid


@click.command()
@click.argument("names", nargs=-1, metavar="[TYPE] [FILE]...")
@as_json
@flag("--json-schema", "Print the JSON schema of TYPE, or of all types by name.")
def events(names: Sequence[str], as_json: bool, json_schema: bool) -> None:
    """List the event types; with TYPE, its fields and a sample.

    Each FILE is a .py file with event types of your own, and perhaps handlers; the default is
    BILLHOOK_HANDLERS.

    \b
    Examples:
      billhook events
      billhook events PaymentFailed
      billhook events PaymentFailed --json-schema > payment-failed.json
      billhook events BrandNew own.py
    """
    if as_json and json_schema:
        raise click.UsageError("choose one of --json and --json-schema")
    types = [name for name in names if not name.endswith(".py")]
    if len(types) > 1:
        raise click.UsageError("give one TYPE; files with types of your own end in .py")
    import_handlers([name for name in names if name not in types])
    models = [event_class(types[0])] if types else [*EVENT_TYPES.values()]
    if json_schema:
        schemas = {each.type: event_json_schema(each) for each in models}
        print_json(schemas[types[0]] if types else schemas)
    elif as_json:
        documents = [
            {
                "type": each.type,
                "meaning": event_summary(each),
                "signal": each.signal_name,
                "fields": schema_fields(event_json_schema(each)),
                "sample": json.loads(sample_body(each)),
            }
            for each in models
        ]
        print_json(documents[0] if types else documents)
    elif types:
        _show(models[0])
    else:
        print_table(("type", "meaning"), [(each.type, event_summary(each)) for each in models])


def _show(model: type[Event]) -> None:
    click.echo(f"{model.type}: {event_summary(model)}")
    click.echo(f"signal: billhook.signals.{model.signal_name}")
    cells = [
        (row["name"], row["type"], "yes" if row["required"] else "no", row["meaning"])
        for row in schema_fields(event_json_schema(model))
    ]
    if cells:
        print_table(("field", "type", "required", "meaning"), cells)
    else:
        click.echo("no fields: the body is {}")
    click.echo("sample:")
    print_wire(sample_body(model))


def sample_body(model: type[Event]) -> bytes:
    """Return the body of a sample. Raises ConfigError for fields of a type of the user's that have none."""
    try:
        with guarded(model.type):
            return sample(model).to_json()
    except ModelFailed as error:
        if not isinstance(error.__cause__, ValidationError):
            raise ConfigError(f"no sample of {model.type} can be made: {error}") from None
        raise ConfigError(
            f"no sample of {model.type} can be made ({describe_invalid(error.__cause__)}): give the field "
            "one, Field(examples=[…])"
        ) from None


def event_class(event_type: str) -> type[Event]:
    """Return the model of a type, perhaps of the user's modules.

    Raises ConfigError, with the closest names, for an unknown one.
    """
    if event_type not in EVENT_TYPES:
        import_handlers()
    model = EVENT_TYPES.get(event_type)
    if model is None:
        hint = suggest(event_type, EVENT_TYPES) or "`billhook events` lists the known ones"
        raise ConfigError(
            f"unknown event type {event_type!r} ({hint}); for a type of your own name its file too, "
            "or BILLHOOK_HANDLERS"
        )
    return model


def suggest(name: str, known: Iterable[str], most: int = 3) -> str:
    """Return `did you mean …?` with the known names closest to `name`; empty if none is close."""
    by_folded = {_fold(each): each for each in known}
    # 0.5, lower than difflib's 0.6: people shorten the long names.
    close = difflib.get_close_matches(_fold(name), by_folded, n=most, cutoff=0.5)
    return f"did you mean {', '.join(by_folded[each] for each in close)}?" if close else ""


def _fold(name: str) -> str:
    return name.casefold().replace("_", "")
