"""The page of actions of operators, newest first."""

from __future__ import annotations

from flask import Response, request, url_for

from billhook.dashboard.context import DashboardContext
from billhook.dashboard.deliveries import parse_id
from billhook.inbox.operating.actions import issues_acted_on, list_actions

PAGE = 50


def show_actions(context: DashboardContext) -> Response:
    """Return a page of actions, newest first; the URL has the last id of the previous page."""
    before = parse_id(request.args.get("before"))
    found = list_actions(context.inbox, PAGE + 1, before)
    shown = found[:PAGE]
    return context.render(
        "actions.html",
        actions=shown,
        issues=issues_acted_on(context.inbox, shown),
        first=url_for(".actions") if before is not None else None,
        next=url_for(".actions", before=shown[-1].id) if len(found) > PAGE else None,
    )
