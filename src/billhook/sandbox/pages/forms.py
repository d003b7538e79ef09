"""The form of an operation: fields made from the JSON schema of its models, and read back into a request.

A field is named by its place in the request, as `creditGrant.grantAmount` or `events.0.name`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from billhook.errors import InvalidJSON
from billhook.events import EVENT_TYPES, sample
from billhook.fields import strict_json
from billhook.fields.strict_json import datetime_text
from billhook.pages.text import indented_json
from billhook.resources import Resource
from billhook.sandbox.billing.contracts.contracts import CATALOG_PRODUCTS
from billhook.sandbox.billing.credits.credit_grants import CREDIT_PRODUCTS
from billhook.sandbox.billing.usage.meters import METERS
from billhook.sandbox.operations import Operation
from billhook.sandbox.pages.texts import newest, parse_number
from billhook.sandbox.scenario import PRICES, STARTER_GRANT
from billhook.sandbox.storage.database import Transaction

Options = Sequence[tuple[str, str]]
"""Values that may be chosen, each with its text."""
_DEPTH = 16
"""Places that are nested deeper are of no model."""
OTHER = "other"
"""The field for what no model lists. No operation has a field of this name."""
Kind = Literal["text", "number", "boolean", "json", "object", "list"]
_KINDS: Mapping[str, Kind] = {"string": "text", "number": "number", "integer": "number", "boolean": "boolean"}
"""The kinds of fields by the types of JSON schema; any other is given as JSON."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a request; those of the kinds object and list have parts instead of a text."""

    place: str
    name: str
    """As written on the wire, or the number of an entry in a list."""
    kind: Kind
    hint: str = ""
    example: str = ""
    required: bool = False
    opened: bool = False
    """True for an entry of a list: it is shown even while it is empty."""
    text: str = ""
    options: Options = ()
    parts: Sequence[FormField] = ()

    @property
    def is_shown(self) -> bool:
        """True if it must be filled in or is; the others are folded away."""
        return self.required or self.opened or bool(self.text) or any(part.is_shown for part in self.parts)


def make_fields(
    operation: Operation, values: Mapping[str, Any], options_of: Callable[[str], Options]
) -> list[FormField]:
    """Return the fields of path and body (or query), filled with `values`: nested, as `nest` returns them.

    `options_of` returns what may be chosen for a field of a name; nothing for one that is typed.
    """
    schema: dict[str, Any] = {"properties": {}} if operation.takes is None else _schema(operation.takes)
    path = {name: {"type": "string", "description": "Part of the address."} for name in operation.path_names}
    properties = {**path, **schema["properties"]}
    required = [*path, *schema.get("required", ())]
    if operation.has_body:
        properties[OTHER] = {"description": "Other fields of the body, as a JSON object."}
    whole = {**schema, "properties": properties, "required": required}
    return _Builder(schema.get("$defs", {}), options_of).parts(whole, values, "", required=True)


@cache  # a page may have a dozen forms
def _schema(model: type[Resource]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


@dataclass(frozen=True, slots=True)
class _Builder:
    definitions: Mapping[str, Any]
    options_of: Callable[[str], Options]

    def parts(
        self, schema: Mapping[str, Any], values: object, place: str, *, required: bool
    ) -> list[FormField]:
        given = values if isinstance(values, Mapping) else {}
        known = {name: one for name, one in schema["properties"].items() if not one.get("readOnly")}
        # Fields that the model does not list, such as the tiers of a price, are shown if they have a value.
        others: dict[str, Any] = {name: {} for name in given if name not in schema["properties"]}
        needed = schema.get("required", ()) if required else ()
        return [
            self.field(f"{place}{name}", name, one, given.get(name), required=name in needed)
            for name, one in {**known, **others}.items()
        ]

    def field(
        self, place: str, name: str, schema: Mapping[str, Any], value: object, *, required: bool
    ) -> FormField:
        plain = self._resolved(schema)
        examples = schema.get("examples") or [""]
        about = {"hint": schema.get("description", ""), "example": as_text(examples[0])}
        if "properties" in plain:
            parts = self.parts(plain, value, f"{place}.", required=required)
            return FormField(place, name, "object", parts=parts, **about)
        entry = self._resolved(plain.get("items", {}))
        if "properties" in entry:
            entries = list(value.values()) if isinstance(value, dict) else value or [{}] * required
            made = [
                FormField(
                    f"{place}.{number}", str(number), "object", opened=True,
                    parts=self.parts(entry, one, f"{place}.{number}.", required=True),
                )
                for number, one in enumerate(entries if isinstance(entries, list) else [])
            ]  # fmt: skip
            return FormField(place, name, "list", parts=made, **about)
        kind = _KINDS.get(plain.get("type", ""), "json")
        options = [(each, each) for each in plain.get("enum", ())] or self.options_of(name)
        if kind == "boolean":
            options = [("true", "yes"), ("false", "no")]
        text = as_text(value)
        if options and text and text not in dict(options):
            options = [*options, (text, text)]
        return FormField(place, name, kind, text=text, options=options, required=required, **about)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema that a field has where it is not null, without references."""
        wanted = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        found: Mapping[str, Any] = wanted[0] if len(wanted) == 1 else schema
        reference = found.get("$ref")
        return found if reference is None else self.definitions[reference.rpartition("/")[2]]


def as_text(value: object) -> str:
    """Return a value of JSON as the text of its field."""
    if value is None or isinstance(value, str):
        return value or ""
    return indented_json(strict_json.dumps(value).decode())


def nest(
    fields: Iterable[tuple[str, Any]], begun: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the fields of a form by their places: `a.b` is `b` in the object `a`; without empty ones.

    They are added to those that are `begun`, in which the entries of a list are objects by their number.
    """
    # A copy: an example may hold prices that all examples and the demo share.
    found = deepcopy(dict(begun))
    for place, value in fields:
        content = value.strip().replace("\r\n", "\n") if isinstance(value, str) else value
        *outer, name = place.split(".")
        if content == "" or len(outer) > _DEPTH:
            continue
        there: object = found
        for part in outer:
            there = there.setdefault(part, {}) if isinstance(there, dict) else None
        # Not a dict: two fields contradict each other, in a form that no page has made.
        if isinstance(there, dict):
            there[name] = content
    return found


def read_fields(fields: Iterable[FormField]) -> dict[str, Any]:
    """Return the request that the fields hold, without those that are empty.

    A text that is no number or no JSON stays one: the operation's model refuses it, by the name of its field.
    """
    found = {field.name: _read(field) for field in fields}
    return {name: value for name, value in found.items() if value not in (None, {}, [])}


def _read(field: FormField) -> object:
    match field.kind:
        case "object":
            return read_fields(field.parts)
        case "list":
            return [one for part in field.parts if (one := read_fields(part.parts))]
        case "number":
            number = parse_number(field.text)
            return (field.text or None) if number is None else number
        case "boolean":
            return {"true": True, "false": False}.get(field.text, field.text or None)
        case "json":
            return _json(field.text)
        case _:
            return field.text or None


def _json(text: str) -> object:
    try:
        return strict_json.loads(text.encode("utf-8", "replace")) if text else None
    except InvalidJSON:
        return text


def begin(tx: Transaction, key: str, event_type: str) -> dict[str, Any]:
    """Return the example that the form of an operation begins with; `event_type` is of an event to raise."""
    now, product = datetime_text(tx.now.replace(microsecond=0)), newest(tx, CATALOG_PRODUCTS)
    # A credit product that is not there yet is created with this id.
    credit = newest(tx, CREDIT_PRODUCTS) or "tokens"
    match key:
        case "POST /contracts":
            sold = {"catalogProductId": product, **PRICES["per unit"]}
            return {"name": "Contract", "startDate": now, "currency": "USD", "products": {"0": sold}}
        case "POST /_sandbox/customers":
            contact = {"name": "Ada Byron", "email": "ada@acme.example", "receiveInvoiceEmail": True}
            return {"name": "Acme Ltd", "currency": "USD", "contacts": {"0": contact}}
        case "POST /_sandbox/meters":
            counted = {"eventName": "calls", "aggregationMethod": "sum", "property": "units"}
            return {"name": "calls", **counted, "catalogProductId": product}
        case "POST /v2/events" | "POST /events/dry-run":
            meter = METERS.find(tx, newest(tx, METERS) or "")
            name, data = (
                ("calls", {}) if meter is None else (meter.event_name, {meter.property or "units": 1})
            )
            event = {"name": name, "timestamp": now, "ref": secrets.token_hex(6), "data": data}
            return {"events": {"0": event}}
        case "POST /credits/top-up":
            topped = {"name": "Top-up", "price": 100, "creditProductId": credit}
            return {"creditGrant": {**STARTER_GRANT, **topped}}
        case "POST /measurements":
            return {"usageDate": {"year": tx.now.year, "month": tx.now.month, "day": tx.now.day}}
        case "POST /_sandbox/trigger/{eventType}" if event_type in EVENT_TYPES:
            # Without the sample's date: the event is dated by the sandbox's clock.
            fields: Any = strict_json.loads(sample(EVENT_TYPES[event_type]).to_json())
            return {OTHER: {name: value for name, value in fields.items() if name != "date"}}
        case _:
            return {}
