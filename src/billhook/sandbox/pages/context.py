"""What every view of the pages uses: the sandbox, rendering, and actions that end on a page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from flask import Response, current_app, request, url_for
from werkzeug.exceptions import NotFound

from billhook.errors import SandboxError
from billhook.pages import Pages
from billhook.resources import ErrorBody
from billhook.sandbox.http.auth import Authenticator
from billhook.sandbox.pages.runner import OperationRunner

__all__ = [
    "EXTENSION_KEY",
    "PAGE_ROWS",
    "PageContext",
    "act",
    "choice",
    "context",
    "cursor",
    "go",
    "pager",
    "refusal",
    "show",
]

EXTENSION_KEY = "billhook.sandbox.pages"
PAGE_ROWS = 25
"""Rows of a table on one page."""
_MESSAGE_CHARACTERS = 500
"""Messages travel in a cookie, which has 4 KB."""


@dataclass(frozen=True, slots=True)
class PageContext:
    """What `app.extensions` holds for the views."""

    runner: OperationRunner
    authenticator: Authenticator
    pages: Pages


def context() -> PageContext:
    """Return the sandbox of the current request."""
    found: PageContext = current_app.extensions[EXTENSION_KEY]
    return found


def show(template: str, status: int = 200, **values: Any) -> Response:
    """Return a page, with the sandbox's time."""
    found = context()
    return found.pages.render(template, status, sandbox_now=found.runner.service.clock.now(), **values)


def go(view: str, message: str, *, good: bool = True, **values: Any) -> Response:
    """Return a redirect to a view, which shows the message."""
    tone = "good" if good else "bad"
    return context().pages.redirect(url_for(f".{view}", **values), message[:_MESSAGE_CHARACTERS], tone)


def act(back: tuple[str, Mapping[str, Any]], done: str, key: str, body: Any = None, **path: str) -> Response:
    """Run an operation, and go to the view `back` with the message `done`, or with what was wrong."""
    view, values = back
    try:
        context().runner.run(key, body, **path)
    except SandboxError as error:
        return go(view, refusal(error), good=False, **values)
    return go(view, done, **values)


def refusal(error: SandboxError) -> str:
    """Return why the sandbox refused, as a sentence."""
    message = ErrorBody.from_json(error.body).message
    return f"Refused: {message}"


def cursor() -> str | None:
    """Return where the page that was asked for begins; None for the first one."""
    return request.args.get("cursor") or None


def pager(next_cursor: str | None) -> dict[str, str | None]:
    """Return the addresses of the first and the next page of the list that is shown; None for no link."""
    # url_for has arguments of its own: with `_scheme` of an address, a link would run a script.
    asked = {name: value for name, value in request.args.items() if not name.startswith("_")}
    place = {**asked, **(request.view_args or {})}
    for name in ("cursor", "endpoint"):
        place.pop(name, None)
    view = request.endpoint or ""
    return {
        "first": url_for(view, **place) if cursor() else None,
        "next": url_for(view, **place, cursor=next_cursor) if next_cursor else None,
    }


def choice(name: str, allowed: Collection[str]) -> str | None:
    """Return a parameter of the address that is one of `allowed`, or None; 404 for any other value."""
    value = request.args.get(name) or None
    if value is not None and value not in allowed:
        raise NotFound(f"The address asks for a {name} that does not exist.")
    return value
