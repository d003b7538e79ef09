"""Meters, and the cloud usage submitted so far. Source: spec, "Endpoints", Meters."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import CountedPage, PageQuery, Resource
from billhook.sandbox.billing.cloud_usage import SUBMISSIONS, CloudUsageRecord
from billhook.sandbox.billing.usage import meters
from billhook.sandbox.billing.usage.meters import Meter, NewMeter
from billhook.sandbox.operations import Call, OperationGroup
from billhook.sandbox.storage.paging import page_limit
from billhook.wire.fields import ListOf

__all__ = ["CLOUD_USAGE_GROUP", "METERS_GROUP"]

METERS_GROUP = OperationGroup("_sandbox/meters", prefix="/_sandbox/meters")
CLOUD_USAGE_GROUP = OperationGroup("_sandbox/cloudUsage", prefix="/_sandbox/cloudUsageSubmissions")


class MeterResponse(Resource, register=False):
    """One meter."""

    meter: Annotated[Meter, Field(description="The meter.")]


class MeterPage(CountedPage, register=False):
    """One page of the meters."""

    meters: Annotated[ListOf[Meter], Field(description="The meters of this page.")]


@METERS_GROUP.operation("POST", "", name="create", takes=NewMeter, gives=MeterResponse)
def create_meter(call: Call[NewMeter]) -> MeterResponse:
    """Create a meter. It counts the events that arrive from now on."""
    return MeterResponse(meter=meters.create(call.tx, call.request))


@METERS_GROUP.operation("GET", "", name="list_all", takes=PageQuery, gives=MeterPage)
def list_meters(call: Call[PageQuery]) -> MeterPage:
    """List the meters, oldest first."""
    page = meters.METERS.page(call.tx, page_limit(call.request), call.request.cursor)
    return MeterPage(meters=page.items, **page.fields())


@METERS_GROUP.operation("GET", "/{meterId}", name="get", gives=MeterResponse)
def get_meter(call: Call[None]) -> MeterResponse:
    """Get a meter."""
    return MeterResponse(meter=meters.METERS.get(call.tx, call.path["meterId"]))


# The specification has no operation that reads what was submitted; tests need one.
class SubmittedUsagePage(CountedPage, register=False):
    """A page of results."""

    results: Annotated[ListOf[CloudUsageRecord], Field(description="The results of this page.")]


@CLOUD_USAGE_GROUP.operation("GET", "", name="list_all", takes=PageQuery, gives=SubmittedUsagePage)
def list_submissions(call: Call[PageQuery]) -> SubmittedUsagePage:
    """List the results that were submitted, oldest first."""
    page = SUBMISSIONS.page(call.tx, page_limit(call.request), call.request.cursor)
    return SubmittedUsagePage(results=page.items, **page.fields())
