"""What all views of the pages share: their routes, the operations that they run, rendering, redirects."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast
from urllib.parse import parse_qsl

from flask import Response, current_app, request, url_for
from werkzeug.exceptions import NotFound
from werkzeug.local import LocalProxy

from billhook.errors import SandboxError
from billhook.fields import strict_json
from billhook.pages.pages import Pages
from billhook.resources import ErrorBody
from billhook.sandbox.app import Authenticator, parse_body, parse_query
from billhook.sandbox.operations import Operation, OperationGroup, Services
from billhook.sandbox.storage.database import Service, Transaction
from billhook.sandbox.storage.repository import ListPage

View = Callable[..., Any]
SITE = "billhook.sandbox.pages"
PAGE_ROWS = 25
"""Rows of a table on one page."""
_MESSAGE_CHARACTERS = 500
"""Messages travel in a cookie, which has 4 KB."""


ROUTES: list[tuple[str, str, View]] = []
"""Rule, method and view of each page and action: a module of views adds its own when it is imported."""


def route(rule: str, method: str = "GET") -> Callable[[View], View]:
    """Decorate the view of a page, which changes nothing; with POST that of an action."""

    def add(view: View) -> View:
        ROUTES.append((rule, method, view))
        return view

    return add


class Site:
    """The pages of one sandbox. They run operations as the API does: with the same models and transaction."""

    def __init__(
        self,
        service: Service,
        services: Services,
        groups: Sequence[OperationGroup],
        authenticator: Authenticator,
        pages: Pages,
    ) -> None:
        self.service = service
        self.groups = groups
        self.authenticator = authenticator
        self.pages = pages
        self.operations = {operation.key: operation for group in groups for operation in group.operations}
        self._services = services

    def reading(self) -> AbstractContextManager[Transaction]:
        """Run a transaction that only reads."""
        return self.service.transaction(writes=False)

    def render(
        self, template: str, status: int = 200, *, page: ListPage[Any] | None = None, **values: Any
    ) -> Response:
        """Render a page, with the sandbox's time; that of a list with links to its other pages."""
        if page is not None:
            values |= {"page": page, "pager": _page_links(page.next_cursor)}
        return self.pages.render(template, status, sandbox_now=self.service.clock.now(), **values)

    def redirect_to(self, address: str, message: str, *, good: bool = True) -> Response:
        """Redirect to an address, whose page shows the message."""
        return self.pages.redirect(address, message[:_MESSAGE_CHARACTERS], "good" if good else "bad")

    def run(self, key: str, body: Mapping[str, Any] | bytes | None = None, **path: str) -> Any:
        """Run the operation `key`, such as `POST /_sandbox/clock`, and return its result; SandboxError.

        `body` is the request as JSON bytes or a mapping to encode; the query, for operations without a body.
        """
        operation = self.operations[key]
        request = self._request(operation, body)
        return operation.run(self.service, self._services, request, path)

    def send(self, method: str, path: str, body: Any) -> Any:
        """Run the operation at an address without parameters, and return its decoded answer; SandboxError."""
        address, _, query = path.partition("?")
        result = self.run(f"{method} {address}", body if body is not None else dict(parse_qsl(query)))
        return strict_json.loads(result if isinstance(result, bytes) else result.to_response())

    def deliver(self, seconds: float = 1) -> None:
        """Wait for due deliveries, so that the next page usually shows their answers."""
        self._services.flush(seconds)

    def summary(self, key: str) -> str | None:
        """Return what an operation does, without details; None for an unknown key."""
        operation = self.operations.get(key)
        described = None if operation is None else inspect.getdoc(operation.function)
        # What follows a colon or a semicolon are details.
        return None if described is None else re.split("[:;\n]", described)[0].rstrip(".")

    def _request(self, operation: Operation, body: Mapping[str, Any] | bytes | None) -> Any:
        if operation.takes is None:
            return None
        if not operation.has_body:
            assert not isinstance(body, bytes), operation.key  # noqa: S101 - only operations with a body
            return parse_query(operation.takes, body or {})
        raw = body if isinstance(body, bytes) else strict_json.dumps(body or {})
        return parse_body(operation.takes, raw)


site = cast("Site", LocalProxy(lambda: current_app.extensions[SITE]))
"""The pages that the current request is for."""


def own_address(address: str) -> str:
    """Return an address of these pages; the overview's instead of any other, which may be another site."""
    overview = url_for(".overview")
    path = address.partition("?")[0]
    is_own = path.startswith(overview) and "\\" not in path and "//" not in path
    return address if is_own and address.isprintable() else overview


def error_sentence(error: SandboxError) -> str:
    """Return why the sandbox refused, as a sentence."""
    return f"Refused: {ErrorBody.from_json(error.body).message}"


def page_cursor() -> str | None:
    """Return the cursor of the requested page; None for the first page."""
    return request.args.get("cursor") or None


def _page_links(next_cursor: str | None) -> dict[str, str | None]:
    """Return the URLs of the first and the next page of the list; None for no link."""
    # url_for has arguments of its own: with `_scheme` of an address, a link would run a script.
    asked = {name: value for name, value in request.args.items() if not name.startswith("_")}
    place = {**asked, **(request.view_args or {})}
    for name in ("cursor", "endpoint"):
        place.pop(name, None)
    view = request.endpoint or ""
    return {
        "first": url_for(view, **place) if page_cursor() else None,
        "next": url_for(view, **place, cursor=next_cursor) if next_cursor else None,
    }


def query_choice(name: str, allowed: Collection[str]) -> str | None:
    """Return a query parameter that is one of `allowed`, or None; 404 for any other value."""
    value = request.args.get(name) or None
    if value is not None and value not in allowed:
        raise NotFound(f"The address asks for a {name} that does not exist.")
    return value
