"""The page of health: what `billhook doctor` finds, asked when the page is loaded."""

from __future__ import annotations

import os

from flask import Response, current_app

from billhook.dashboard.context import DashboardContext
from billhook.doctor import examine
from billhook.extension import ENVIRON
from billhook.receiver import webhook_routes

__all__ = ["show"]

SAMPLE = 300
"""How many of the newest deliveries are looked at: fewer than by the command, to be quick."""


def show(context: DashboardContext) -> Response:
    """Return the page of findings, the worst first."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    state = context.state
    sources = list({route.source.name: route.source for route in webhook_routes(app)}.values())
    findings = examine(
        state.settings,
        app.extensions.get(ENVIRON, os.environ),
        sources,
        state.inbox,
        state.handlers,
        own_app=ENVIRON not in app.extensions,
        now=context.now,
        sample_size=SAMPLE,
    )
    return context.pages.render(
        "health.html", findings=findings, command=f"{context.command} doctor", sample=SAMPLE
    )
