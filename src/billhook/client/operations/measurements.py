"""Measurements. Source: spec, "Endpoints", Measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.resources import Measurement, MeasurementResponse, NewMeasurement

__all__ = ["CREATE", "Measurements"]

# Not repeatable: the specification does not show what a second measurement of a day does.
CREATE = ApiOperation("POST", "/measurements", repeatable=False)


class Measurements(ApiGroup):
    """Measurements: the usage of a day as one figure."""

    def create(self, measurement: NewMeasurement | Mapping[str, Any]) -> Measurement:
        """Set a customer's usage of one day. Calls POST /measurements."""
        body = encode_body(NewMeasurement, measurement)
        return self._session.call(CREATE, MeasurementResponse, body=body).measurement
