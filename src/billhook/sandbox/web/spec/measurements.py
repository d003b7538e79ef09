"""The usage of a day as one figure. Source: spec, "Endpoints", Measurements."""

from __future__ import annotations

from billhook.resources import MeasurementResponse, NewMeasurement
from billhook.sandbox.billing.measurements import measure
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("meters", name="measurements")


@GROUP.operation("POST", "/measurements", takes=NewMeasurement, gives=MeasurementResponse)
def create(call: Call[NewMeasurement]) -> MeasurementResponse:
    """Tell what a customer used on a day; it replaces what was known of that day."""
    return MeasurementResponse(measurement=measure(call.tx, call.given))
