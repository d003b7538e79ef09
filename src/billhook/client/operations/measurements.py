"""Measurements. Source: spec, "Endpoints", Measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import Operation
from billhook.client.operations.group import Group, body_of
from billhook.resources import Measurement, MeasurementResponse, NewMeasurement

__all__ = ["CREATE", "Measurements"]

CREATE = Operation("POST", "/measurements", repeatable=False)


class Measurements(Group):
    """The usage of a day, told as one figure."""

    def create(self, measurement: NewMeasurement | Mapping[str, Any]) -> Measurement:
        """POST /measurements."""
        body = body_of(NewMeasurement, measurement)
        return self._calls.read(CREATE, MeasurementResponse, body=body).measurement
