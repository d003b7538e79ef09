"""Usage told to the clouds' marketplaces. Source: spec, "Endpoints", Cloud usage submission."""

from __future__ import annotations

from billhook.resources import CloudUsageSubmission
from billhook.sandbox.billing import cloud_usage
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("meters", prefix="/cloudUsageSubmission", name="cloudUsage")


@GROUP.operation("POST", "", takes=CloudUsageSubmission)
def submit(call: Call[CloudUsageSubmission]) -> None:
    """Keep what became of usage that was told to a marketplace; an idempotencyKey is taken once."""
    cloud_usage.keep(call.tx, call.given)
