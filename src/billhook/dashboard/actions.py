"""The page of actions: what operators did, here and with the command line."""

from __future__ import annotations

from flask import Response, request, url_for

from billhook.dashboard.context import DashboardContext
from billhook.dashboard.deliveries import parse_id
from billhook.inbox.actions import list_actions

__all__ = ["show_list"]

PAGE = 50


def show_list(context: DashboardContext) -> Response:
    """Return a page of actions, newest first; the last id of the page before is in the address."""
    before = parse_id(request.args.get("before"))
    found = list_actions(context.inbox, PAGE + 1, before)
    shown = found[:PAGE]
    return context.pages.render(
        "actions.html",
        actions=shown,
        first=url_for(".actions") if before is not None else None,
        next=url_for(".actions", before=shown[-1].id) if len(found) > PAGE else None,
        command=f"{context.command} actions",
        now=context.now,
    )
