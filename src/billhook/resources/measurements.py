"""Measurements: the usage of a day, told as one figure. Source: spec, "Resources and their fields"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictStr

from billhook.resources.base import Resource, StoredResource
from billhook.wire.fields import CustomerId, ExactDecimal, Integer, PositiveInt

__all__ = ["Measurement", "MeasurementResponse", "NewMeasurement", "UsageDate"]


class UsageDate(Resource):
    """A day.

    Source: spec, "Resources and their fields", Measurement.
    """

    year: Annotated[Integer, Field(description="Year.", examples=[2026])]
    month: Annotated[Integer, Field(description="Month, from 1.", examples=[1])]
    day: Annotated[PositiveInt, Field(description="Day, from 1.", examples=[15])]


class NewMeasurement(Resource):
    """The request of POST /measurements.

    Source: spec, "Resources and their fields", Measurement.
    """

    customer_id: CustomerId
    meter_id: Annotated[StrictStr, Field(description="Id of the meter or product.", examples=["mtr_5"])]
    usage_date: Annotated[UsageDate, Field(description="Day of the usage.")]
    value: Annotated[
        ExactDecimal,
        Field(description="Units used on that day: the current total.", examples=[Decimal("812.5")]),
    ]


class Measurement(StoredResource, NewMeasurement):
    """A measurement as the service keeps it.

    Source: spec, "Resources and their fields", Measurement.
    """


class MeasurementResponse(Resource):
    """The response of POST /measurements.

    Source: spec, "Endpoints", POST /measurements.
    """

    measurement: Annotated[Measurement, Field(description="The measurement.")]
