"""Inspect models and bodies: the fields of a type, unlisted fields and values of a body, and its customer.

Of bodies whose type has no class it makes the file that declares one.

Neither an unlisted field nor an unlisted value of an open enumeration is an error: the service may add both
at any time. Source: spec, "Events". A customer is named by the fields that identify one, never by a part of
a text.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, get_args

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic.fields import FieldInfo

from billhook.events.base import EVENT_TYPES, OWN_NAMES, Event
from billhook.fields import WireModel
from billhook.fields.types import OpenEnum, UtcDatetime

_OWN_FIELDS = frozenset({"id", "externalid", "alias", "aliases"})
"""Fields that identify the customer where the object is one. Source: spec, "Customer", "Events"."""


def event_summary(model: type[Event]) -> str:
    """Return the first line of the type's docstring, which says what such an event reports."""
    return (model.__doc__ or "").strip().partition("\n")[0]


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
    words = {"string": "text", "boolean": "true/false"}
    if isinstance(several := field.get("type"), list):  # a kind that the specification leaves unstated
        (kind, inner), *others = (_type_and_schema({**field, "type": each}, parts) for each in several)
        return " or ".join([kind, *(other for other, _ in others)]), inner
    if field.get("type") == "array":
        kind, inner = _type_and_schema(field["items"], parts)
        return f"list of {kind}", inner
    if field.get("format") == "date-time":
        return "date-time", None
    return words.get(field.get("type", ""), field.get("type", "any")), None


@dataclass(frozen=True, slots=True)
class Unlisted:
    """One field, or one value of an enumeration, that `model` does not list.

    `path` is its place in the body, in camelCase, `[]` for the items of a list. `value` is as
    decoded. `change` is the line that a model would need.
    """

    kind: Literal["field", "value"]
    model: str
    path: str
    value: Any
    change: str


def unlisted(model: type[WireModel], data: Mapping[str, Any], path: str = "") -> Iterator[Unlisted]:
    """Yield what `model` and its parts do not list of `data`, an object as strict_json decodes it."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for name, value in data.items():
        place = f"{path}{name}"
        field = fields.get(name)
        if field is None:
            yield Unlisted("field", model.__name__, place, value, _field_line(name, value))
            continue
        listed = _open_enum(field)
        if listed is not None and isinstance(value, str) and value not in listed.listed:
            yield Unlisted("value", model.__name__, place, value, f"{value.upper()} = {value!r}")
        inner = _inner_model(field.annotation)
        if inner is not None:
            several = isinstance(value, list)
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Mapping):
                    yield from unlisted(inner, item, f"{place}[]." if several else f"{place}.")


def _field_line(name: str, value: Any) -> str:
    kinds: tuple[tuple[type[object], str], ...] = (
        (bool, "StrictBool"),
        (int, "ExactDecimal"),
        (Decimal, "ExactDecimal"),
        (str, "StrictStr"),
        (list, "ListOf[JsonValue]"),
        (dict, "JsonObject"),
    )
    kind = next((written for known, written in kinds if isinstance(value, known)), "JsonValue")
    return f"{to_snake(name)}: {kind} | None = None"


def _open_enum(field: FieldInfo) -> OpenEnum | None:
    for each in field.metadata:
        if isinstance(each, AfterValidator) and isinstance(each.func, OpenEnum):
            return each.func
    return None


def _inner_model(annotation: Any) -> type[WireModel] | None:
    """Return the model in an annotation such as `list[X]`, `X | None` or `Annotated[X, …]`."""
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner_model(part))), None)


def search_parts(customer: str) -> list[bytes]:
    r"""Return byte strings; every body that names this customer contains one of them.

    A sender may escape any character of a JSON string, so each body with a backslash has to be read. So does
    one with a zero byte, which is UTF-16.
    """
    return [customer.encode(), b"\\", b"\0"]


def names_customer(event_type: str, body: bytes, customer: str) -> bool | None:
    """Return whether a body names this customer; None if that cannot be said.

    It cannot of what is no JSON but contains the id as a word, nor of a body without a type (it may be in the
    body, and not read yet) that has the id as its own.

    A field names a customer if the word is in its name (`customerId`, `customer_id`), or if it is the id, the
    external id or an alias of an object that is a customer: the value of a field `customer`, or the body of a
    type such as AnonymousCustomer. Its value, or one in its list, equals `customer`: 42 is not in 420.
    """
    try:
        # Numbers keep their text, as an id may be written without quotes. Objects become pairs, because a
        # quarantined body may have a key twice, and both values count.
        content = json.loads(
            body, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str
        )
    except (ValueError, RecursionError):
        word = rb"(?<![0-9A-Za-z_-])" + re.escape(customer.encode()) + rb"(?![0-9A-Za-z_-])"
        return None if re.search(word, body) else False
    if any(name == customer for name in _names(content, "customer" in event_type.casefold())):
        return True
    may_be_customer = not event_type and any(name == customer for name in _names(content, is_customer=True))
    return None if may_be_customer else False


class _Pairs(list[tuple[str, Any]]):
    """The names and values of a JSON object."""


def _names(content: object, is_customer: bool) -> Iterator[object]:
    """Yield the values that identify customers, wherever they are in the content."""
    waiting: list[tuple[object, bool]] = [(content, is_customer)]
    while waiting:
        value, is_customer = waiting.pop()
        if isinstance(value, _Pairs):
            for name, each in value:
                plain = name.replace("_", "").replace("-", "").casefold()
                own = "customer" in plain or (is_customer and plain in _OWN_FIELDS)
                yield from _values(each) if own else ()
                waiting.append((each, "customer" in plain))
        elif isinstance(value, list):
            waiting += ((each, is_customer) for each in value)


def _values(value: object) -> list[object]:
    return list(value) if isinstance(value, list) and not isinstance(value, _Pairs) else [value]


_MOST_FIELDS = 60
_MOST_CHARACTERS = 60
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ].*")
_MOMENT: TypeAdapter[datetime] = TypeAdapter(UtcDatetime)
_PYDANTIC = ("Field", "StrictBool", "StrictStr")
_OWN = ("Event", "ExactDecimal", "UtcDatetime")
_IMPORTED = (*_PYDANTIC, *_OWN, "Any", "Delivery", "Handlers")


def event_source(event_type: str, bodies: Sequence[Mapping[str, Any]]) -> str:
    """Return a complete file with the class of a type and a handler, guessed from decoded bodies.

    A field that each of them has is required. Fields beyond the first 60 are left out, as are names of over
    60 characters: events keep what their class does not list.
    """
    class_name = _class_name(event_type)
    names = list(dict.fromkeys(name for body in bodies for name in body if len(name) <= _MOST_CHARACTERS))
    taken: set[str] = set()
    fields = "".join(f"    {_field(name, bodies, taken)}\n" for name in names[:_MOST_FIELDS])
    named = "" if class_name == event_type else f", type={json.dumps(event_type)}"
    number = "1 delivery" if len(bodies) == 1 else f"{len(bodies)} deliveries"
    used = set(re.findall(r"\w+", fields)) | {"Event"}
    pydantic, own = (", ".join(name for name in each if name in used) for each in (_PYDANTIC, _OWN))
    imports = "from typing import Any\n\n" if "Any" in used else ""
    imports += f"from pydantic import {pydantic}\n\n" if pydantic else ""
    return f'''"""{class_name}, as guessed from {number}: correct the types, and what may be missing."""

{imports}from billhook import Delivery, Handlers
from billhook.events import {own}

handlers = Handlers()


class {class_name}(Event{named}):
    """Say here what such an event reports."""

{fields}

@handlers.on({class_name})
def handle_{to_snake(class_name)}(event: {class_name}, delivery: Delivery) -> None:
    """Say here what is done with it."""
    raise NotImplementedError("a failed attempt is made again: no delivery is lost until this is written")
'''


def _class_name(event_type: str) -> str:
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", event_type))
    signals = {model.signal_name for model in EVENT_TYPES.values()} | {"unknown_event"}
    if not name[:1].isalpha():
        name = f"Event{name}"
    is_taken = to_snake(name) in signals or keyword.iskeyword(name) or name in _IMPORTED
    return f"{name}Event" if is_taken else name


def _field(name: str, bodies: Sequence[Mapping[str, Any]], taken: set[str]) -> str:
    """Return the line of a field; adds its name in Python to those that are `taken`."""
    plain = re.sub(r"[^a-z0-9]+", "_", to_snake(name).casefold()).strip("_")
    if not plain.isidentifier() or plain.startswith("model_"):
        plain = f"field_{plain}".rstrip("_")
    if keyword.iskeyword(plain) or hasattr(Event, plain) or plain in OWN_NAMES:
        plain += "_"
    while plain in taken:
        plain += "_"
    taken.add(plain)
    values = [body[name] for body in bodies if name in body]
    kind = _kind(value for value in values if value is not None)
    is_missing = len(values) < len(bodies)
    optional = kind != "Any" and (is_missing or any(value is None for value in values))
    line = f"{plain}: {kind}{' | None' if optional else ''}"
    alias = "" if to_camel(plain) == name else f"alias={name!a}"
    if alias:
        return f"{line} = Field({'None, ' if is_missing else ''}{alias})"
    return f"{line} = None" if is_missing else line


def _kind(values: Iterable[Any]) -> str:
    found = {_kind_of(value) for value in values}
    if found == {"UtcDatetime", "StrictStr"}:
        return "StrictStr"
    if all(kind.startswith("list[") for kind in found) and len(found) > 1:
        return "list[Any]"
    return found.pop() if len(found) == 1 else "Any"


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "StrictBool"
    if isinstance(value, int | Decimal):
        return "ExactDecimal"
    if isinstance(value, dict):
        return "dict[str, Any]"
    if isinstance(value, list):
        return f"list[{_kind(value)}]"
    return "UtcDatetime" if isinstance(value, str) and _is_moment(value) else "StrictStr"


def _is_moment(text: str) -> bool:
    if not _DATE_TIME.fullmatch(text):
        return False
    try:
        _MOMENT.validate_python(text)
    except ValidationError:
        return False
    return True
