"""Forcing an event, whatever the business says."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.errors import InvalidResource
from billhook.events import EVENT_TYPES, sample
from billhook.events.samples import in_agreement
from billhook.resources import Resource
from billhook.sandbox.refusals import not_found
from billhook.sandbox.web.operation import Call, Group
from billhook.sandbox.web.reading import refusal_of
from billhook.wire import strict_json
from billhook.wire.fields import Text
from billhook.wire.reading import as_object, read

__all__ = ["GROUP"]

GROUP = Group("_sandbox/trigger", prefix="/_sandbox/trigger")


class Overrides(Resource, register=False):
    """Fields of the event that are to be other than the sample's."""


class Triggered(Resource, register=False):
    """What was raised."""

    raised_id: Annotated[Text, Field(description="Id of the event in the sandbox's log.")]


@GROUP.operation("POST", "/{eventType}", takes=Overrides, gives=Triggered)
def trigger(call: Call[Overrides]) -> Triggered:
    """Raise an event of this type: a valid sample of now, with the fields that are given.

    What depends on these and is not given follows them: without a failure there is no errorMessage.
    """
    model = EVENT_TYPES.get(call.path["eventType"])
    if model is None:
        raise not_found("event type")
    body, given = (
        as_object(strict_json.loads(text), InvalidResource)
        for text in (sample(model).to_json(), call.given.to_json())
    )
    if "date" in model.model_fields:
        body["date"] = call.tx.now
    try:
        event = read(model, in_agreement(model.type, {**body, **given}, given), InvalidResource)
    except InvalidResource as error:
        raise refusal_of(error) from None
    return Triggered(raised_id=call.tx.raise_event(event))
