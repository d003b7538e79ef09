"""The page of what `billhook doctor` finds, and of what was examined and is well."""

from __future__ import annotations

from flask import Response, current_app

from billhook.dashboard.context import DashboardContext, banner_tone
from billhook.doctor.checks import examine
from billhook.doctor.examined import Setup
from billhook.errors import BillhookError
from billhook.inbox.operating.subscriptions import list_subscriptions

SAMPLE = 300
"""How many of the newest deliveries the page examines: fewer than the command, to be quick."""


def show_health(context: DashboardContext) -> Response:
    """Return the page of findings, the worst first, what was examined, and what billhook has subscribed."""
    app = current_app._get_current_object()  # type: ignore[attr-defined]
    setup = Setup.of_app(app, sample_size=SAMPLE)
    found, well = examine(setup, "page")
    try:
        judgement = setup.judgement
    except BillhookError:  # the inbox cannot be read: a finding says why
        judgement = None
    # The findings are of the set-up: what becomes of deliveries is judged as on all other pages.
    tones = {"error": "bad", "warning": "warn"}
    levels = [tones[one.level] for one in found if one.level in tones]
    if judgement is not None and (told := banner_tone(judgement)) in tones.values():
        levels.append(told)
    return context.render(
        "health.html",
        findings=found,
        well=well,
        subscriptions=() if setup.unusable else list_subscriptions(setup.inbox),
        state=judgement,
        tone_of_all=min(levels, key=("bad", "warn").index, default="good"),
        serious=sum(one.level in ("error", "warning") for one in found),
    )
