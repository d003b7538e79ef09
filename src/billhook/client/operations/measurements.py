"""Measurements. Source: spec, "Endpoints", Measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.resources import Measurement, MeasurementResponse, NewMeasurement

__all__ = ["CREATE", "Measurements"]

CREATE = ApiOperation("POST", "/measurements", repeatable=False)


class Measurements(ApiGroup):
    """The usage of a day, told as one figure."""

    def create(self, measurement: NewMeasurement | Mapping[str, Any]) -> Measurement:
        """POST /measurements."""
        body = encode_body(NewMeasurement, measurement)
        return self._session.call(CREATE, MeasurementResponse, body=body).measurement
