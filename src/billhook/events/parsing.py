"""Parse a body as the event of a type; the only place that decodes it. Source: spec, "Events", rule 1."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from billhook.errors import InvalidPayload
from billhook.events.base import EVENT_TYPES, Event
from billhook.signals import event_signal
from billhook.wire import strict_json
from billhook.wire.model import read, require_object

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


def parse_event(
    type: str,  # noqa: A002 - the public contract's name
    body: bytes,
    *,
    as_named: bool = False,
) -> Event | UnknownEvent:
    """Parse `body` as the event that X-Webhook-Type names; UnknownEvent if no model has that name.

    Raises InvalidJSON, or InvalidPayload for JSON that is not an object of this type. A body that has all
    fields of the type but looks like another type is invalid too: most schemes do not sign the type, so an
    attacker who captured a failed payment could send it as an approved invoice. `as_named` skips this check,
    for a type that an operator chose. Neither error repeats anything of the body; InvalidPayload.details has
    `loc` (in the wire's spelling), `msg`, `type`.
    """
    data = require_object(strict_json.loads(body), InvalidPayload)
    model = EVENT_TYPES.get(type)
    if model is None:
        return UnknownEvent(type=type, data=data)
    event = read(model, data, InvalidPayload)
    like = None if as_named else _look_alike(model, data)
    if like is not None:
        raise InvalidPayload(f"the body looks like {like.type}: it has fields of that which {type} lacks", [])
    return event


def _look_alike(model: type[Event], data: dict[str, Any]) -> type[Event] | None:
    """The type that a body is rather than `model`; None if it is what it says.

    That has fields which `model` does not list, and everything that it needs is there. An empty body is
    PingTest's: there any field of another type is too much. A field that no type lists is the service's
    news, and tells nothing.
    """
    own, _ = _fields(model)
    extra = data.keys() - own
    if not extra:
        return None
    found = []
    for other in EVENT_TYPES.values():
        listed, required = _fields(other)
        if extra & listed and (required <= data.keys() or not own):
            found.append((len(listed & data.keys()), other))
    return max(found, key=lambda each: each[0])[1] if found else None


@cache
def _fields(model: type[Event]) -> tuple[frozenset[str], frozenset[str]]:
    """The names that a type lists, in the wire's spelling, and those of them that it needs."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    return frozenset(fields), frozenset(name for name, field in fields.items() if field.is_required())
