"""What every view of the pages uses: route tables, the sandbox, rendering, and actions that end on a page."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flask import Response, current_app, request, url_for
from werkzeug.exceptions import NotFound

from billhook.errors import SandboxError
from billhook.pages import Pages
from billhook.resources import ErrorBody
from billhook.sandbox.http.requests import Authenticator, parse_body, parse_query
from billhook.sandbox.operations import Call, Operation, OperationGroup, Services
from billhook.sandbox.service import Service
from billhook.sandbox.storage.transaction import Transaction
from billhook.wire import strict_json

if TYPE_CHECKING:
    from flask import Blueprint

__all__ = [
    "EXTENSION_KEY",
    "PAGE_ROWS",
    "OperationRunner",
    "PageContext",
    "RouteTable",
    "act",
    "choice",
    "context",
    "cursor",
    "go",
    "pager",
    "refusal",
    "show",
]

View = Callable[..., Any]
EXTENSION_KEY = "billhook.sandbox.pages"
PAGE_ROWS = 25
"""Rows of a table on one page."""
_MESSAGE_CHARACTERS = 500
"""Messages travel in a cookie, which has 4 KB."""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Rules with their methods and views; an endpoint is called as its view is."""

    routes: list[tuple[str, str, View]] = field(default_factory=list)

    def get(self, rule: str) -> Callable[[View], View]:
        """Decorate the view of a page: it changes nothing."""
        return self._route("GET", rule)

    def post(self, rule: str) -> Callable[[View], View]:
        """Decorate the view of an action."""
        return self._route("POST", rule)

    def register(self, blueprint: Blueprint) -> None:
        """Add the routes to a blueprint."""
        for rule, method, view in self.routes:
            blueprint.add_url_rule(rule, view.__name__, view, methods=[method])

    def _route(self, method: str, rule: str) -> Callable[[View], View]:
        def add(view: View) -> View:
            self.routes.append((rule, method, view))
            return view

        return add


class OperationRunner:
    """Runs operations as the API does: the same models, the same transaction, the same function."""

    def __init__(self, service: Service, services: Services, groups: Sequence[OperationGroup]) -> None:
        self.service = service
        self._services = services
        self._operations = {operation.key: operation for group in groups for operation in group.operations}

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Run a transaction that only reads."""
        with self.service.transaction(writes=False) as tx:
            yield tx

    def run(self, key: str, body: Mapping[str, Any] | bytes | None = None, **path: str) -> Any:
        """Run the operation `key`, such as `POST /_sandbox/clock`, and return its result; SandboxError.

        `body` is the request as JSON, or as what is to be written so; or the query where there is no body.
        """
        operation = self._operations[key]
        request = self._request(operation, body)
        with self.service.transaction(writes=operation.writes) as tx:
            tx.cause = key
            return operation.function(Call(tx, request, path, self._services))

    def deliver(self, seconds: float = 1) -> None:
        """Wait for deliveries that are due: usually the next page shows their answers then."""
        self._services.flush(seconds)

    def summary(self, key: str) -> str | None:
        """Return what an operation does, in words; None for what is none."""
        operation = self._operations.get(key)
        described = None if operation is None else inspect.getdoc(operation.function)
        return None if described is None else described.partition("\n")[0].rstrip(".")

    def _request(self, operation: Operation, body: Mapping[str, Any] | bytes | None) -> Any:
        if operation.takes is None:
            return None
        if not operation.has_body:
            assert not isinstance(body, bytes), operation.key  # noqa: S101 - only operations with a body
            return parse_query(operation.takes, body or {})
        raw = body if isinstance(body, bytes) else strict_json.dumps(body or {})
        return parse_body(operation.takes, raw)


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
