"""Measurements and cloud usage. Source: spec, "Endpoints", Measurements; Cloud usage submission."""

from __future__ import annotations

from billhook.resources import CloudUsageSubmission, MeasurementResponse, NewMeasurement
from billhook.sandbox.billing import cloud_usage
from billhook.sandbox.billing.ingestion import set_measurement
from billhook.sandbox.operations import Call, OperationGroup

__all__ = ["CLOUD_USAGE_GROUP", "MEASUREMENTS_GROUP"]

MEASUREMENTS_GROUP = OperationGroup("meters", name="measurements")
CLOUD_USAGE_GROUP = OperationGroup("meters", prefix="/cloudUsageSubmission", name="cloudUsage")


@MEASUREMENTS_GROUP.operation(
    "POST", "/measurements", name="create", takes=NewMeasurement, gives=MeasurementResponse
)
def set_measurement_of_day(call: Call[NewMeasurement]) -> MeasurementResponse:
    """Set a customer's usage of one day; it replaces the usage of that day's events."""
    return MeasurementResponse(measurement=set_measurement(call.tx, call.request))


@CLOUD_USAGE_GROUP.operation("POST", "", name="submit", takes=CloudUsageSubmission)
def submit_cloud_usage(call: Call[CloudUsageSubmission]) -> None:
    """Store results of usage submitted to a marketplace; a repeated idempotencyKey is dropped."""
    cloud_usage.store(call.tx, call.request)
