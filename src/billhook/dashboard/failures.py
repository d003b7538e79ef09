"""The page of failures: what fails now, grouped by handler and error."""

from __future__ import annotations

from flask import Response, abort, request, url_for

from billhook.dashboard.context import DashboardContext
from billhook.dashboard.replaying import describe, parse_rate, replay_batches
from billhook.inbox.failing import MOST_FAILING, failing_delivery_ids, failure_groups

__all__ = ["replay_group", "show_list"]


def show_list(context: DashboardContext) -> Response:
    """Return the page of all groups, the largest first."""
    groups = failure_groups(context.inbox)
    return context.pages.render(
        "failures.html",
        groups=groups,
        total=sum(group.count for group in groups),
        most=MOST_FAILING,
        paused={one.name for one in context.inbox.paused_handlers()},
        now=context.now,
    )


def replay_group(context: DashboardContext, group_id: str) -> Response:
    """Replay the runs of a group at a rate, and return to the list."""
    rate = parse_rate(request.form.get("rate", ""))
    group = next((one for one in failure_groups(context.inbox) if one.id == group_id), None)
    if group is None:
        abort(404, "These runs do not fail any more, or with another error.")
    batches = failing_delivery_ids(context.inbox, group.handler, group.line)
    done = replay_batches(context, batches, f"handler {group.handler}", rate=rate, handler=group.handler)
    tone = "good" if done.deliveries else "warn"
    return context.pages.redirect(url_for(".failures"), describe(done), tone)
