"""Write the Python file that declares an event type, from bodies that came: names and kinds, never values."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel, to_snake

from billhook.events.base import EVENT_TYPES, Event
from billhook.fields.types import UtcDatetime

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
    named = "" if class_name == event_type else f', type="{event_type}"'
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
    is_taken = to_snake(name) in signals or keyword.iskeyword(name) or name in _IMPORTED
    return f"{name}Event" if is_taken else name


def _field(name: str, bodies: Sequence[Mapping[str, Any]], taken: set[str]) -> str:
    """Return the line of a field; adds its name in Python to those that are `taken`."""
    plain = re.sub(r"[^a-z0-9]+", "_", to_snake(name).casefold()).strip("_")
    if not plain.isidentifier() or plain.startswith("model_"):
        plain = f"field_{plain}".rstrip("_")
    if keyword.iskeyword(plain) or hasattr(Event, plain) or plain in ("type", "signal_name"):
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
