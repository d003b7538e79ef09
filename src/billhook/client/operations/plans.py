"""Plans. Source: spec, "Endpoints", Plans."""

from __future__ import annotations

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup
from billhook.resources import Plan, PlanResponse

__all__ = ["GET", "Plans"]

GET = ApiOperation("GET", "/plans/{planId}", repeatable=True)


class Plans(ApiGroup):
    """Plans that contracts may use."""

    def get(self, plan_id: str) -> Plan:
        """Get a plan. Calls GET /plans/{planId}. Raises ResourceNotFound."""
        return self._session.call(GET, PlanResponse, plan_id).plan
