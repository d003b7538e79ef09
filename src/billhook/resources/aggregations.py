"""Usage added up. Source: spec, "Endpoints", POST /v2/events/aggregation."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource
from billhook.wire.fields import CustomerId, Flag, ListOf, Moment, Number, Text

__all__ = ["Aggregation", "AggregationRequest", "DataPoint", "MeterKey", "Period"]

_GroupBy = Annotated[
    Text, Field(description="What to group by; the values are not stated.", examples=["day"])
]


class Period(Resource):
    """From when to when.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    start_time: Annotated[Moment, Field(description="When it begins.", examples=["2026-01-01T00:00:00Z"])]
    end_time: Annotated[Moment, Field(description="When it ends.", examples=["2026-02-01T00:00:00Z"])]


class MeterKey(Resource):
    """A meter, and the name its figures get in the response.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    key: Annotated[Text, Field(description="The key of the meter's figures.", examples=["calls"])]
    event_name: Annotated[Text, Field(description="Name of the events it counts.", examples=["api_call"])]


class AggregationRequest(Resource):
    """The request of POST /v2/events/aggregation.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    customer_id: CustomerId
    customer_id_pattern: Annotated[Text | None, Field(description="A pattern of customer ids.")] = None
    period: Annotated[Period, Field(description="Which events to add up.")]
    meters: Annotated[ListOf[MeterKey], Field(description="The meters wanted.")]
    group_by: _GroupBy
    fill_dates: Annotated[Flag | None, Field(description="Tell dates without events as well?")] = None


class DataPoint(Resource):
    """The figures of one group.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    group: Annotated[Text, Field(description="The group.", examples=["2026-01-15"])]
    values: Annotated[
        dict[str, Number], Field(description="The figures by key.", examples=[{"calls": Decimal(8125)}])
    ]


class Aggregation(Resource):
    """The response of POST /v2/events/aggregation.

    Source: spec, "Endpoints", POST /v2/events/aggregation.
    """

    data_points: Annotated[ListOf[DataPoint], Field(description="The figures, group by group.")]
    period: Annotated[Period, Field(description="Which events were added up.")]
    group_by: _GroupBy
