"""What is in the reports that webhooks tell of."""

from __future__ import annotations

from billhook.sandbox.billing import reports
from billhook.sandbox.billing.reports import ReportResponse
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("_sandbox/reports", prefix="/_sandbox/reports")


@GROUP.operation("GET", "/{reportId}", gives=ReportResponse)
def get(call: Call[None]) -> ReportResponse:
    """Get the report of a month's end."""
    return ReportResponse(report=reports.find(call.tx, call.path["reportId"]))
