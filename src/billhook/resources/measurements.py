"""Measurements: the usage of a day, told as one figure. Source: spec, "Resources and their fields"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource, Stored
from billhook.wire.fields import CustomerId, FromOne, Integer, Number, Text

__all__ = ["Measurement", "MeasurementResponse", "NewMeasurement", "UsageDate"]


class UsageDate(Resource):
    """A day.

    Source: spec, "Resources and their fields", Measurement.
    """

    year: Annotated[Integer, Field(description="The year.", examples=[2026])]
    month: Annotated[Integer, Field(description="The month.", examples=[1])]
    day: Annotated[FromOne, Field(description="The day, from 1.", examples=[15])]


class NewMeasurement(Resource):
    """The request of POST /measurements.

    Source: spec, "Resources and their fields", Measurement.
    """

    customer_id: CustomerId
    meter_id: Annotated[Text, Field(description="Id of the meter or product.", examples=["mtr_5"])]
    usage_date: Annotated[UsageDate, Field(description="The day of the usage.")]
    value: Annotated[
        Number, Field(description="Units used on that day, as they now are.", examples=[Decimal("812.5")])
    ]


class Measurement(Stored, NewMeasurement):
    """A measurement as the service keeps it.

    Source: spec, "Resources and their fields", Measurement.
    """


class MeasurementResponse(Resource):
    """The response of POST /measurements.

    Source: spec, "Endpoints", POST /measurements.
    """

    measurement: Annotated[Measurement, Field(description="The measurement.")]
