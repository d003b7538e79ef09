"""Plans. Source: spec, "Endpoints", Plans."""

from __future__ import annotations

from billhook.resources import PlanResponse
from billhook.sandbox.billing.plans import PLANS
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("contracts", prefix="/plans", name="plans")


@GROUP.operation("GET", "/{planId}", gives=PlanResponse)
def get(call: Call[None]) -> PlanResponse:
    """Get a plan."""
    return PlanResponse(plan=PLANS.get(call.tx, call.path["planId"]))
