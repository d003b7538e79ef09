"""The page of what `billhook doctor` finds, and of what was examined and is well."""

from __future__ import annotations

from flask import Response, current_app

from billhook.dashboard.context import DashboardContext
from billhook.doctor.checks import examine
from billhook.doctor.examined import Setup

SAMPLE = 300
"""How many of the newest deliveries the page examines: fewer than the command, to be quick."""


def show_health(context: DashboardContext) -> Response:
    """Return the page of findings, the worst first, and of what was examined."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    found, well = examine(Setup.of_app(app, sample_size=SAMPLE), "page")
    return context.render(
        "health.html",
        findings=found,
        well=well,
        errors=any(one.level == "error" for one in found),
        serious=sum(one.level in ("error", "warning") for one in found),
    )
