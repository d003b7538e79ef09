"""Meters; the specification shows no endpoints of theirs. Source: spec, "Endpoints", Meters."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import CountedPage, PageQuery, Resource
from billhook.sandbox.billing import meters
from billhook.sandbox.billing.meter_fields import Meter, NewMeter
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import ListOf

__all__ = ["GROUP"]

GROUP = Group("_sandbox/meters", prefix="/_sandbox/meters")


class MeterResponse(Resource, register=False):
    """One meter."""

    meter: Annotated[Meter, Field(description="The meter.")]


class MeterPage(CountedPage, register=False):
    """One page of the meters."""

    meters: Annotated[ListOf[Meter], Field(description="The meters of this page.")]


@GROUP.operation("POST", "", takes=NewMeter, gives=MeterResponse)
def create(call: Call[NewMeter]) -> MeterResponse:
    """Create a meter. It counts the events that come from now on."""
    return MeterResponse(meter=meters.create(call.tx, call.given))


@GROUP.operation("GET", "", takes=PageQuery, gives=MeterPage)
def list_all(call: Call[PageQuery]) -> MeterPage:
    """List the meters, oldest first."""
    page = meters.METERS.page(call.tx, limit_of(call.given), call.given.cursor)
    return MeterPage(meters=page.items, **page.fields())


@GROUP.operation("GET", "/{meterId}", gives=MeterResponse)
def get(call: Call[None]) -> MeterResponse:
    """Get a meter."""
    return MeterResponse(meter=meters.METERS.get(call.tx, call.path["meterId"]))
