"""Event, the base of all event models: the open registry, the JSON form, and the fields that several share.

Each shared field is described here once, or in `billhook.wire.fields`. Source: spec, "Events", rule 2 and
the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictStr
from pydantic.alias_generators import to_snake

from billhook.signals import event_signal
from billhook.wire import WireModel, strict_json
from billhook.wire.fields import ExactDecimal, UtcDatetime

__all__ = ["EVENT_TYPES", "Event"]

_registered: dict[str, type[Event]] = {}
RaisedAt = Annotated[
    UtcDatetime, Field(description="Time at which the event was raised.", examples=["2026-01-15T09:30:00Z"])
]
NameOfCustomer = Annotated[StrictStr, Field(description="Name of the customer.", examples=["Acme Ltd"])]
# Texts that describe: where there is none, the service may say null. Ids are never null.
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
    """The body of one webhook; the class's name is the value of the X-Webhook-Type header.

    To add a type, write its class: from then on `EVENT_TYPES`, `parse_event` and `signals` know it. A class
    that only holds fields for others says `class Common(Event, register=False)`.

    Source: spec, "Events", rules 1 and 2.
    """

    type: ClassVar[str]
    """The value of X-Webhook-Type. A body's own `type`, should one ever come, is in `model_extra`."""

    signal_name: ClassVar[str]
    """The type in snake_case: the name of its signal."""

    def __init_subclass__(cls, *, register: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)  # `register` is for the hook below, which sees the finished class

    @classmethod
    def __pydantic_init_subclass__(cls, *, register: bool = True, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.type = cls.__name__
        cls.signal_name = to_snake(cls.__name__)
        if register:
            if cls.type in _registered:
                raise TypeError(f"there is an event type {cls.type} already: choose another class name")
            _registered[cls.type] = cls
            event_signal(cls.signal_name)

    def to_json(self) -> bytes:
        """The body as it goes over the wire; `parse_event(event.type, event.to_json()) == event`.

        Optional fields that were never given are left out, a null that was given stays. Extra values that
        have no JSON form raise TypeError or ValueError.
        """
        return strict_json.dumps(self.model_dump(by_alias=True, exclude_unset=True))


EVENT_TYPES: Mapping[str, type[Event]] = MappingProxyType(_registered)
"""Every event type by the value of its X-Webhook-Type header; read-only, filled by the classes themselves."""
