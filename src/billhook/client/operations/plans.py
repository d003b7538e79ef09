"""Plans. Source: spec, "Endpoints", Plans."""

from __future__ import annotations

from billhook.client.operation import Operation
from billhook.client.operations.group import Group
from billhook.resources import Plan, PlanResponse

__all__ = ["GET", "Plans"]

GET = Operation("GET", "/plans/{planId}", repeatable=True)


class Plans(Group):
    """Plans that contracts may use."""

    def get(self, plan_id: str) -> Plan:
        """GET /plans/{planId}. Raises ResourceNotFound."""
        return self._calls.read(GET, PlanResponse, plan_id).plan
