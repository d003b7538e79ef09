"""What would become of usage events. Source: spec, "Endpoints", POST /events/dry-run."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource
from billhook.resources.usage import UsageEvent
from billhook.wire.fields import JsonValue, ListOf, Number, Text

__all__ = ["DryRunEvent", "DryRunResult", "MeterValue"]


class MeterValue(Resource):
    """What an event would add to a meter.

    Source: spec, "Endpoints", POST /events/dry-run, meterWithValues.
    """

    name: Annotated[Text, Field(description="Name of the meter.", examples=["API calls"])]
    event_name: Annotated[Text, Field(description="Name of the events it counts.", examples=["api_call"])]
    aggregation_method: Annotated[Text, Field(description="How it adds them up.", examples=["sum"])]
    value: Annotated[
        Number | None, Field(description="What the event contributes, if anything.", examples=[Decimal(3)])
    ] = None
    instance_value: Annotated[
        JsonValue, Field(description="The instance, for a meter that counts instances.", examples=["vm-7"])
    ] = None


class DryRunEvent(Resource):
    """What would become of one event.

    Source: spec, "Endpoints", POST /events/dry-run and its rules.
    """

    event: Annotated[UsageEvent, Field(description="The event.")]
    matched_customer: Annotated[
        Text | None,
        Field(description="Id of its customer; none: an anonymous one would be made.", examples=["cus_1042"]),
    ] = None
    meter_with_values: Annotated[
        ListOf[MeterValue], Field(description="The meters that would count it; there may be none.")
    ]


class DryRunResult(Resource):
    """The response of POST /events/dry-run; nothing was stored.

    Source: spec, "Endpoints", POST /events/dry-run.
    """

    events: Annotated[ListOf[DryRunEvent], Field(description="What would become of each event.")]
    invalid_events: Annotated[
        ListOf[JsonValue],
        Field(
            description="The events that would not be taken; the form of an entry is not stated.",
            examples=[[{"event": {"name": "api_call"}, "error": "ref is missing"}]],
        ),
    ]
