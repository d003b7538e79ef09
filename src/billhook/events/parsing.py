"""From a type and a body to an event: the only place that decodes JSON. Source: spec, "Events", rule 1."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from billhook.errors import InvalidPayload
from billhook.events.base import EVENT_TYPES, Event
from billhook.signals import event_signal
from billhook.wire import strict_json
from billhook.wire.reading import as_object, read

__all__ = ["UnknownEvent", "parse_event"]


class UnknownEvent(BaseModel):
    """An event of a type that has no model here: its name, and the whole body as plain values.

    Source: spec, "Events": the list of types may grow.
    """

    model_config = ConfigDict(frozen=True)

    signal_name: ClassVar[str] = "unknown_event"

    type: str
    data: dict[str, Any]

    def to_json(self) -> bytes:
        """The body as it goes over the wire; `parse_event(event.type, event.to_json()) == event`."""
        return strict_json.dumps(self.data)


event_signal(UnknownEvent.signal_name)


def parse_event(type: str, body: bytes) -> Event | UnknownEvent:  # noqa: A002 - the public contract's name
    """Read `body` as the event that the X-Webhook-Type header names; UnknownEvent if no model has that name.

    Raises InvalidJSON, or InvalidPayload for JSON that is not an object or not one of this type. Neither
    repeats anything of the body; InvalidPayload.details has `loc` (in the wire's spelling), `msg`, `type`.
    """
    data = as_object(strict_json.loads(body), InvalidPayload)
    model = EVENT_TYPES.get(type)
    if model is None:
        return UnknownEvent(type=type, data=data)
    return read(model, data, InvalidPayload)
