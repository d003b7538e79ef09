"""Usage events: sending them and asking for them. Source: spec, "Resources and their fields"; "Endpoints"."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from billhook.errors import LimitBroken
from billhook.resources.base import Resource
from billhook.resources.paging import CountedPage, PageQuery
from billhook.wire.fields import JsonObject, JsonValue, ListOf, Moment, Text

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_BATCH_EVENTS",
    "MAX_PAGE_EVENTS",
    "EventBatch",
    "EventPage",
    "EventQuery",
    "IngestionResult",
    "InvalidEvent",
    "UsageEvent",
    "wrong_count",
]

MAX_BATCH_EVENTS = 1000
MAX_BATCH_BYTES = 256 * 1024
MAX_PAGE_EVENTS = 1000


class UsageEvent(Resource):
    """Something that a customer used.

    Source: spec, "Resources and their fields", Event (ingested).
    """

    name: Annotated[
        Text,
        Field(description="What happened; to be metered, a meter's eventName.", examples=["api_call"]),
    ]
    timestamp: Annotated[Moment, Field(description="When it happened.", examples=["2026-01-15T09:29:00Z"])]
    customer_alias: Annotated[
        Text, Field(description="Who used it: the customer's external id or an alias.", examples=["acme"])
    ]
    ref: Annotated[
        Text, Field(description="Unique reference: sent twice, it is taken once.", examples=["call-881"])
    ]
    data: Annotated[
        JsonObject | None,
        Field(description="What meters filter and add up.", examples=[{"region": "eu", "units": 3}]),
    ] = None


def wrong_count(count: int) -> str:
    """What is wrong with a batch of so many events."""
    rule = f"a batch has 1 to {MAX_BATCH_EVENTS} events, and this one has"
    return f"{rule} {count}: split it" if count else f"{rule} none: give at least one"


def _counted(value: object) -> object:
    """Count before anything is read: a list of millions is refused at once."""
    if isinstance(value, list | tuple) and not 1 <= len(value) <= MAX_BATCH_EVENTS:
        raise LimitBroken(wrong_count(len(value)), "events")
    return value


class EventBatch(Resource):
    """The request of PUT /events, POST /v2/events and POST /events/dry-run: 1 to 1000 events, 256 KB at most.

    Source: spec, "Endpoints", PUT /events; "Limits".
    """

    events: Annotated[
        ListOf[UsageEvent],
        BeforeValidator(_counted),
        Field(description="The events.", json_schema_extra={"minItems": 1, "maxItems": MAX_BATCH_EVENTS}),
    ]

    def to_request(self) -> bytes:
        """The body of the request. LimitBroken if it is over 256 KB (262,144 bytes)."""
        body = super().to_request()
        if len(body) > MAX_BATCH_BYTES:
            raise LimitBroken(
                f"a batch has at most 256 KB ({MAX_BATCH_BYTES} bytes), and this one {len(body)}: split it",
                "events",
            )
        return body


class InvalidEvent(Resource):
    """An event that was not taken, and why.

    Source: spec, "Resources and their fields", Event (ingested), invalid-event entry.
    """

    event: Annotated[
        UsageEvent | JsonValue,
        Field(
            description="The event as it was sent; plain values where it has not even an event's form.",
            union_mode="left_to_right",
        ),
    ]
    error: Annotated[
        Text, Field(description="Why it was not taken.", examples=["an event with this ref exists"])
    ]


class IngestionResult(Resource):
    """The response of PUT /events and POST /v2/events. What is valid was taken, whatever the others are.

    Source: spec, "Endpoints", PUT /events.
    """

    valid_events: Annotated[ListOf[UsageEvent], Field(description="What was taken.")]
    invalid_events: Annotated[
        ListOf[InvalidEvent], Field(description="What was not taken, each with the reason.")
    ]


class EventQuery(PageQuery):
    """The query of GET /events.

    Source: spec, "Endpoints", GET /events; "Limits".
    """

    start_time: Annotated[
        Moment, Field(description="Where the range begins.", examples=["2026-01-01T00:00:00Z"])
    ]
    end_time: Annotated[Moment, Field(description="Where the range ends.", examples=["2026-02-01T00:00:00Z"])]
    event_name: Annotated[
        Text | None, Field(description="Only events of this name.", examples=["api_call"])
    ] = None
    customer_alias: Annotated[
        Text | None, Field(description="Only events under this alias.", examples=["acme"])
    ] = None

    @model_validator(mode="after")
    def _limited(self) -> EventQuery:
        if self.limit is not None and self.limit > MAX_PAGE_EVENTS:
            raise LimitBroken(
                f"limit is {self.limit}, and the maximum is {MAX_PAGE_EVENTS}: ask for more pages", "limit"
            )
        return self


class EventPage(CountedPage):
    """The response of GET /events.

    Source: spec, "Endpoints", GET /events.
    """

    events: Annotated[ListOf[UsageEvent], Field(description="The events of this page.")]
