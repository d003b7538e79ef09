"""Tables of routes: each module of views has one, which the blueprint takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flask import Blueprint

__all__ = ["RouteTable"]

View = Callable[..., Any]


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
