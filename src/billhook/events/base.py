"""Event, the base of all event models: the open registry, the JSON form, and the fields that several share.

A body is parsed here as the event of a type, and decoded nowhere else. Each shared field is described here
once, or in `billhook.fields.types`. Source: spec, "Events", rules 1 and 2, and the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from inspect import formatannotation
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StrictStr
from pydantic.alias_generators import to_snake

from billhook.basics.printable import IDENTIFIER_CHARACTERS, first_line
from billhook.basics.type_names import ANY_TYPE_NAME, ANY_TYPE_NAME_IN_WORDS
from billhook.errors import InvalidPayload
from billhook.fields import WireModel, strict_json
from billhook.fields.model import read, require_object
from billhook.fields.types import ExactDecimal, UtcDatetime
from billhook.signals import event_signal

_MOST_IDENTIFYING = 3
_registered: dict[str, type[Event]] = {}
RaisedAt = Annotated[
    UtcDatetime, Field(description="Time at which the event was raised.", examples=["2026-01-15T09:30:00Z"])
]
NameOfCustomer = Annotated[StrictStr, Field(description="Name of the customer.", examples=["Acme Ltd"])]
# The service may send null for a descriptive text that does not exist. Ids are never null.
CustomerName = Annotated[StrictStr | None, Field(description="Name of the customer.", examples=["Acme Ltd"])]
ExternalId = Annotated[
    StrictStr | None,
    Field(description="Id of the customer in your own system, if any.", examples=["crm-7731"]),
]
ContractId = Annotated[StrictStr, Field(description="Id of the contract.", examples=["con_2001"])]
ContractName = Annotated[
    StrictStr | None, Field(description="Name of the contract.", examples=["Acme annual 2026"])
]
Currency = Annotated[StrictStr | None, Field(description="Currency code of the amounts.", examples=["USD"])]
Threshold = Annotated[
    ExactDecimal, Field(description="Configured threshold, in percent.", examples=[Decimal(80)])
]
PctUsage = Annotated[
    ExactDecimal,
    Field(description="Usage when the event was raised, in percent.", examples=[Decimal("81.25")]),
]


class Event(WireModel):
    """The body of one webhook; the class's name is the value of the header that names its type.

    To add a type, write its class: from then on `EVENT_TYPES`, `parse_event` and `signals` know it. Where the
    header's value is no good name for a class, `class PullRequest(Event, type="pull_request")` gives it. A
    class that only holds fields for others says `class Common(Event, register=False)`. Lists of deliveries
    show what an event is about by the fields in `identify = ("order_id", "amount")`.

    Source: spec, "Events", rules 1 and 2.
    """

    type: ClassVar[str]
    """The value of the header that names the type. A field `type` of the body is in `model_extra`, or in a
    field of another name: `type_: str = Field(alias="type")`."""

    signal_name: ClassVar[str]
    """The name of the class in snake_case: the name of its signal."""

    identify: ClassVar[tuple[str, ...]] = ()
    """The fields that say what an event is about: at most three ids and amounts, no names or addresses.

    Their values are stored in plain text beside the delivery, shown in lists, and found by an index.
    """

    def __init_subclass__(cls, *, register: bool = True, type: str | None = None, **kwargs: Any) -> None:  # noqa: A002
        # `register` and `type` are for the hook below, which pydantic calls with the finished class.
        super().__init_subclass__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        *,
        register: bool = True,
        type: str | None = None,  # noqa: A002 - the name of the attribute
        **kwargs: Any,
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        _check_names(cls)
        cls.type = type or cls.__name__
        cls.signal_name = to_snake(cls.__name__)
        _check_identify(cls)
        if register:
            if not ANY_TYPE_NAME.fullmatch(cls.type):
                raise TypeError(
                    f"no delivery can be of the event type {cls.type!r}: {ANY_TYPE_NAME_IN_WORDS}"
                )
            if cls.type in _registered:
                raise TypeError(f"there is an event type {cls.type} already: choose another class name")
            # Two types with one signal would get each other's events.
            signals = {UnknownEvent.signal_name, *(each.signal_name for each in EVENT_TYPES.values())}
            if cls.signal_name in signals:
                raise TypeError(f"there is a signal {cls.signal_name} already: choose another class name")
            event_signal(cls.signal_name)
            _registered[cls.type] = cls

    def identifying_values(self) -> tuple[str, ...]:
        """Return the values of the fields in `identify` that are given, as short printable texts."""
        texts: list[str] = []
        for name in self.identify:
            value = getattr(self, name)
            text = "" if value is None else str(value)
            if len(text) > IDENTIFIER_CHARACTERS or not text.isprintable():  # of few: it takes a while
                text = first_line(text, IDENTIFIER_CHARACTERS)
            if text and text not in texts:
                texts.append(text)
        return tuple(texts)

    def to_json(self) -> bytes:
        """Return a body with this event's values; `parse_event(event.type, event.to_json()) == event`.

        Not the bytes as sent, which are `delivery.body`: it has no white space, its times are in UTC
        (`+01:00` becomes `Z`), and what was sent in a text and read as a number is a number. Optional fields
        that were never given are left out, and a null that was given stays. Extra values without a JSON form
        raise TypeError or ValueError.
        """
        return strict_json.dumps(self.model_dump(by_alias=True, exclude_unset=True))


OWN_NAMES = frozenset(name for name in (*vars(Event), *Event.__annotations__) if not name.startswith("_"))
"""The attributes of an event that billhook reads: no field of a type may have the name of one."""
_SET = ("type", "signal_name")
"""Those that the class statement sets."""


def _check_names(model: type[Event]) -> None:
    for name in _SET:
        if name in vars(model):
            raise TypeError(
                f"{model.__name__}.{name} is set by billhook: name the type in the class statement, "
                f'class {model.__name__}(Event, type="order.placed")'
            )
    for name in sorted(OWN_NAMES & model.model_fields.keys()):
        field = model.model_fields[name]
        raise TypeError(
            f"{model.__name__} has a field {name!r}, which billhook reads of every event: give it another "
            f"name here and its own in JSON, {name}_: {formatannotation(field.annotation)} = "
            f'Field(alias="{field.alias}")'
        )


def _check_identify(model: type[Event]) -> None:
    names, place = model.identify, f"{model.__name__}.identify"
    if not isinstance(names, tuple):
        raise TypeError(f'{place} is {names!r}: give a tuple of fields, as in identify = ("order_id",)')
    if len(names) > _MOST_IDENTIFYING:
        raise TypeError(f"{place} names {len(names)} fields: name {_MOST_IDENTIFYING} at most")
    for name in names:
        if name not in model.model_fields:
            near = get_close_matches(to_snake(str(name)), model.model_fields, n=1)
            known = ", ".join(model.model_fields) or "none"
            hint = f"did you mean {near[0]!r}?" if near else f"the fields are {known}"
            raise TypeError(f"{place} names {name!r}, which is no field of the class: {hint}")


EVENT_TYPES: Mapping[str, type[Event]] = MappingProxyType(_registered)
"""Every event type by the value of the header that names it; read-only, filled by the classes themselves."""


class UnknownEvent(BaseModel):
    """An event of a type that has no model here: its name, and the whole body as plain values.

    Source: spec, "Events": the list of types may grow.
    """

    model_config = ConfigDict(frozen=True)

    signal_name: ClassVar[str] = "unknown_event"

    type: str
    data: dict[str, Any]

    def to_json(self) -> bytes:
        """Return a body with these values; `parse_event(event.type, event.to_json()) == event`."""
        return strict_json.dumps(self.data)


event_signal(UnknownEvent.signal_name)


def parse_event(
    type: str,  # noqa: A002 - the public contract's name
    body: bytes,
    *,
    as_named: bool = False,
) -> Event | UnknownEvent:
    """Parse `body` as an event of this type; UnknownEvent if no model has that name.

    Raises InvalidJSON, or InvalidPayload for JSON that is not an object of this type. A body that has all
    fields of the type but looks like another type is invalid too: most schemes do not sign the type, so an
    attacker who captured a failed payment could send it as an approved invoice. Only the billing service's
    types are compared; `as_named` skips this check, for a type that an operator chose. Neither error repeats
    anything of the body; InvalidPayload.details has `loc` (in camelCase), `msg`, `type`.
    """
    return event_of(type, decode_body(body), as_named=as_named)


def decode_body(body: bytes) -> dict[str, Any]:
    """Return the object that a body is. Raises InvalidJSON or InvalidPayload."""
    return require_object(strict_json.loads(body), InvalidPayload)


def event_of(
    type: str,  # noqa: A002 - as of parse_event
    data: dict[str, Any],
    *,
    as_named: bool = False,
) -> Event | UnknownEvent:
    """Return a decoded body as an event, as `parse_event` does. Raises InvalidPayload."""
    model = EVENT_TYPES.get(type)
    if model is None:
        return UnknownEvent(type=type, data=data)
    event = read(model, data, InvalidPayload)
    if event.model_extra and not as_named and (like := _look_alike(model, data)) is not None:
        raise InvalidPayload(f"the body looks like {like.type}: it has fields of that which {type} lacks", [])
    return event


def _look_alike(model: type[Event], data: dict[str, Any]) -> type[Event] | None:
    """Return the type that a body looks like rather than `model`; None if it looks like `model`.

    The body has fields of that type which `model` does not list, and all the fields that the type requires.
    PingTest has an empty body, so any field of another type is enough there. Fields that no type lists are
    new in the service, and are ignored. Types of users are not compared: what theirs share is not known here.
    """
    if not is_of_service(model):
        return None
    own, _ = _fields(model)
    extra = data.keys() - own
    found = []
    for other in filter(is_of_service, EVENT_TYPES.values()):
        listed, required = _fields(other)
        if extra & listed and (required <= data.keys() or not own):
            found.append((len(listed & data.keys()), other))
    return max(found, key=lambda each: each[0])[1] if found else None


def is_of_service(model: type[Event]) -> bool:
    """Return whether billhook itself has the model, and no user."""
    return model.__module__.startswith(f"{__package__}.")


@cache
def _fields(model: type[Event]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a type lists, in camelCase, and those that it requires."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    return frozenset(fields), frozenset(name for name, field in fields.items() if field.is_required())
