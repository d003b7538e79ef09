"""From a type and a body to an event: the only place that decodes JSON. Source: spec, "Events", rule 1."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from billhook.errors import InvalidPayload
from billhook.events import strict_json
from billhook.events.base import EVENT_TYPES, Event
from billhook.signals import event_signal

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
    data = strict_json.loads(body)
    if not isinstance(data, dict):
        raise InvalidPayload("the body is JSON, but not an object")
    model = EVENT_TYPES.get(type)
    if model is None:
        return UnknownEvent(type=type, data=data)
    try:
        # The wire has one spelling: a snake_case twin of a field is just another extra field.
        return model.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _invalid_payload(model, error) from None


def _invalid_payload(model: type[Event], error: ValidationError) -> InvalidPayload:
    found = error.errors(include_input=False, include_url=False, include_context=False)
    details = [{"loc": each["loc"], "msg": each["msg"], "type": each["type"]} for each in found]
    wrong = ", ".join(".".join(map(str, each["loc"])) for each in found)
    return InvalidPayload(f"the body is not a valid {model.type}, because of {wrong}", details)
