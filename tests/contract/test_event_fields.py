"""Every event model against the spec's table of body fields, and our transcription of it against the file.

Source: spec, "Events". The file itself is not part of this repository: BILLHOOK_SPEC names it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from pydantic.fields import FieldInfo

from billhook.events import (
    EVENT_TYPES,
    Event,
    IntegrationEntity,
    NewCustomer,
    ProductConsumptionSnapshot,
)
from billhook.fields import WireModel
from billhook.fields.unstated import InText
from support.specification import (
    Fields,
    altered,
    differences,
    kind_of,
    lists,
    read_specification,
    unnoticed,
    without_description,
)

TRANSCRIPTION = tomllib.loads(Path(__file__).with_name("event_fields.toml").read_text(encoding="utf-8"))
MODELS = {
    "events": EVENT_TYPES,
    "shapes": {cls.__name__: cls for cls in (IntegrationEntity, NewCustomer, ProductConsumptionSnapshot)},
}
LISTED = [
    (name, field, kind.removesuffix(" or more").split(", "))
    for name, fields in TRANSCRIPTION["events"].items()
    for field, kind in fields.items()
    if kind.endswith(" or more")
]

# --- the models as the transcription would write them ---------------------------------------------


def written_out(cls: type[WireModel]) -> Fields:
    return {
        field.alias: kind_of(field.annotation) + _where_a_text_does(field) + _where_there_is_none(field)
        for field in cls.model_fields.values()
    }


def _where_a_text_does(field: FieldInfo) -> str:
    return " or text" if any(isinstance(each, InText) for each in field.metadata) else ""


def _where_there_is_none(field: FieldInfo) -> str:
    if not field.is_required():
        return "?"
    return " or null" if NoneType in get_args(field.annotation) else ""


def models_and(transcription: dict[str, dict[str, Fields]]) -> list[str]:
    """What the models have otherwise than `transcription`."""
    wanted = {
        name: {field: "string" if kind.endswith(" or more") else kind for field, kind in fields.items()}
        for group in MODELS
        for name, fields in transcription[group].items()
    }
    written = {name: written_out(cls) for models in MODELS.values() for name, cls in models.items()}
    return differences(wanted, written)


ALTERED = [
    ("InvoiceApproved", {"invoiceNumber": "string"}, "InvoiceApproved.invoiceNumber: string is transcribed"),
    ("InvoiceApproved", {"invoiceId": None}, "the model has string"),
    ("Overage", {"overageAmount": "string"}, "the model has number"),
    ("Overage", {"date": "string"}, "the model has date"),
    ("Overage", {"overageAmount": "number or text"}, "number or text is transcribed, the model has number"),
    ("CreditPoolIncreased", {"balance": "number"}, "number is transcribed, the model has number or text"),
    ("Overage", {"currency": "string?"}, "string? is transcribed, the model has string or null"),
    ("Overage", {"customerId": "string or null"}, "string or null is transcribed, the model has string"),
    ("PaymentFailed", {"failureReason": "string"}, "the model has string?"),
    ("AnonymousCustomer", {"aliases": "string"}, "the model has array of string"),
    ("VoucherIssued", {"date": "date"}, "VoucherIssued: only in the transcription"),
]


def test_every_model_has_exactly_the_fields_of_the_transcription_and_another_would_be_noticed():
    assert models_and(TRANSCRIPTION) == [], "event_fields.toml has what the models have"
    for event_type, change, told in ALTERED:
        (difference,) = models_and(altered(TRANSCRIPTION, "events", event_type, change))
        assert told in difference
    events = {name: fields for name, fields in TRANSCRIPTION["events"].items() if name != "PingTest"}
    assert models_and({**TRANSCRIPTION, "events": events}) == ["PingTest: only in the models"]


def test_listed_values_are_recognised_and_others_stay_text():
    assert LISTED
    assert [place for *place, values in LISTED if not lists(EVENT_TYPES[place[0]], place[1], values)] == []


def test_every_event_and_field_has_a_description_and_source():
    unexplained = [
        name for name, cls in EVENT_TYPES.items() if 'Source: spec, "Events"' not in (cls.__doc__ or "")
    ]

    assert without_description(cls for models in MODELS.values() for cls in models.values()) == []
    assert unexplained == []


def test_an_event_is_named_as_its_header_and_its_signal_in_snake_case():
    names = {name: (cls.__name__, cls.type, cls.signal_name) for name, cls in EVENT_TYPES.items()}

    assert all(names[name][:2] == (name, name) for name in TRANSCRIPTION["events"])
    assert names["InvoiceApproved"][2] == "invoice_approved"
    assert names["PingTest"][2] == "ping_test"
    assert len({signal for *_, signal in names.values()}) == len(EVENT_TYPES)
    assert all(issubclass(cls, Event) for cls in EVENT_TYPES.values())


# --- the transcription against the file -----------------------------------------------------------


def cell_fields(cell: str) -> dict[str, str | None]:
    """The fields that one cell of the table names, each with the remark in brackets after it."""
    if cell == "empty object":
        return {}
    cell = re.sub(r"^a [a-z ]+: ", "", cell)  # "a product consumption snapshot: ..."
    cell = re.sub(r"; (\w+) is added .*", r", \1", cell)  # "...; errorMessage is added when ..."
    fields = {name: remark or None for name, remark in re.findall(r"(\w+)(?: \(([^()]*)\))?(?:, |$)", cell)}
    waiting: list[str] = []
    for name, remark in fields.items():
        waiting.append(name)
        if remark == "numbers":  # of all since the last remark: "amountDue, amountPaid, total (numbers)"
            fields |= dict.fromkeys(waiting, "number")
        if remark:
            waiting.clear()
    return fields


def table_of(text: str) -> dict[str, Fields]:
    """The table of the file, with nested objects written out and without what the table does not say."""
    section = text.split("\n## Events\n", 1)[1].split("\n## ", 1)[0]
    rows = {
        name: cell_fields(cell)
        for name, cell in re.findall(r"^\| (\w+) \| [^|]+ \| ([^|]+) \|$", section, re.MULTILINE)
    }
    listed = {
        name: remark
        for fields in rows.values()
        for name, remark in fields.items()
        if " or " in (remark or "")
    }
    table: dict[str, Fields] = {}
    for event_type, fields in rows.items():
        # Only the values of a string are those of another row; its kind is what its own row says of it.
        table[event_type] = {
            name: meaning(remark or listed.get(name, "string"), table) for name, remark in fields.items()
        }
    return table


def meaning(remark: str, table: dict[str, Fields]) -> Any:
    if remark == "snapshot without exceededAmount":
        return {
            field: kind for field, kind in table["CommitmentCrossed"].items() if field != "exceededAmount"
        }
    if remark == "same shape as the CustomerCreated body":
        return table["CustomerCreated"]
    if listed := re.fullmatch(r"array of \{(.*)\}", remark):
        return [dict.fromkeys(listed[1].split(", "), "string")]
    if remark in {"string", "number", "boolean", "array of string"}:
        return remark
    return {"one of": re.split(", | or ", remark)}


def as_stated(kind: str, shapes: dict[str, Fields]) -> Any:
    """What the table can say of a transcribed kind."""
    kind = kind.removesuffix("?").removesuffix(" or null")
    if kind.endswith(" or text"):  # "strings unless stated"
        return "string"
    name = kind.removeprefix("array of ")
    if name in shapes:
        fields = {field: as_stated(inner, shapes) for field, inner in shapes[name].items()}
        return [fields] if kind.startswith("array of ") else fields
    if kind.endswith(" or more"):
        return {"one of": kind.removesuffix(" or more").split(", ")}
    return "string" if kind == "date" else kind


def transcribed() -> dict[str, Fields]:
    """What is transcribed of the table, in its order."""
    return {
        event_type: {
            field: as_stated(kind, TRANSCRIPTION["shapes"])
            for field, kind in fields.items()
            if f"{event_type}.{field}" not in TRANSCRIPTION["beside"]
        }
        for event_type, fields in TRANSCRIPTION["events"].items()
        if event_type not in TRANSCRIPTION["beside"]
    }


def test_the_transcription_is_the_table_of_the_spec():
    spec = read_specification()
    table = table_of(spec)

    assert table == transcribed(), "what the spec does not have is named under `beside` in event_fields.toml"
    assert [(name, [*fields]) for name, fields in table.items()] == [
        (name, [*fields]) for name, fields in transcribed().items()
    ]
    # The control: an altered table would be noticed.
    changes = [
        ("| date, invoiceId |", "| date, invoiceId, invoiceNumber |"),
        ("| date, invoiceId |", "| date |"),
        ("isTrial (boolean)", "isTrial"),
        ("overageAmount (number)", "overageAmount (boolean)"),
        ("total (numbers)", "total"),
        ("grantedAmount, previousBalance", "grantedAmount (number), previousBalance"),
        ("customerName, isTrial |", "customerName, isTrial (boolean) |"),
        ("name, externalId, aliases, int", "name, externalId, aliases (array of string), int"),
        ("Monetary or Unit", "Monetary or Token"),
        ("| PingTest |", "| PongTest |"),
        ("syncStatus}", "syncState}"),
        ("errorMessage is added", "errorText is added"),
        ("remainingAmount, exceededAmount |", "exceededAmount |"),
    ]
    assert unnoticed(spec, changes, table_of) == []
