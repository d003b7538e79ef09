"""Exempt deliveries from extensions of the app that check every request: a signature is what lets them in.

They are known by the module of their class, and told apart by what they check. No interface of theirs is used
but `exempt`, with which a user does the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from flask import Blueprint, Flask

from billhook.logs import fields

logger = logging.getLogger("billhook.receiver")

Kind = Literal["CSRF tokens", "rate limits"]
CSRF: frozenset[Kind] = frozenset({"CSRF tokens"})
RATE_LIMITS: frozenset[Kind] = frozenset({"rate limits"})
_KNOWN: dict[str, tuple[str, Kind]] = {
    "flask_wtf": ("Flask-WTF", "CSRF tokens"),
    "flask_seasurf": ("Flask-SeaSurf", "CSRF tokens"),
    "flask_limiter": ("Flask-Limiter", "rate limits"),
}


class RequestCheck(NamedTuple):
    """An extension that checks every request of an app, from which views can be exempt."""

    name: str
    kind: Kind
    extension: Any

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


def find_request_checks(app: Flask) -> list[RequestCheck]:
    """Return the extensions that check every request of this app now: others may be initialised later."""
    found = {}
    for extension in _extensions(app):
        for module in packages_of(extension):
            if module in _KNOWN and callable(getattr(extension, "exempt", None)):
                found[id(extension)] = RequestCheck(*_KNOWN[module], extension)
    return list(found.values())


def _extensions(app: Flask) -> Iterator[Any]:
    limiters = app.extensions.get("limiter")  # older ones are their one entry themselves
    yield from limiters if isinstance(limiters, set) else (limiters,)
    yield app.extensions.get("csrf")
    for hook in app.before_request_funcs.get(None, ()):
        yield getattr(hook, "__self__", None)


def packages_of(extension: object) -> list[str]:
    """Return the top-level packages that define the class of an object, and its base classes."""
    return [base.__module__.partition(".")[0] for base in type(extension).__mro__]


def exempt(app: Flask, blueprint: Blueprint, kinds: Collection[Kind]) -> list[RequestCheck]:
    """Exempt the views of a registered blueprint from the extensions that check such; return these.

    By view, for an extension may not find a blueprint that is nested in another one.
    """
    checks = [check for check in find_request_checks(app) if check.kind in kinds]
    names = {name for name, registered in app.blueprints.items() if registered is blueprint}
    for endpoint, view in app.view_functions.items():
        if endpoint.rpartition(".")[0] in names:
            for check in checks:
                check.extension.exempt(view)
    return checks


class Exemptions:
    """What the deliveries of an app are exempt from; each is logged once."""

    def __init__(self, app: Flask, *, rate_limits_apply: bool) -> None:
        self._app = app
        self._kinds = CSRF if rate_limits_apply else CSRF | RATE_LIMITS
        self._logged: set[str] = set()

    def extend_to(self, blueprint: Blueprint) -> None:
        """Exempt a registered blueprint from all extensions that there are by now."""
        for check in map(str, exempt(self._app, blueprint, self._kinds)):
            if check not in self._logged:
                self._logged.add(check)
                text = "deliveries are exempt from %s: they are signed"
                logger.info(text, check, extra=fields(cause="exempt"))

    def extend_before_first_request(self, blueprint: Blueprint) -> None:
        """Exempt it, once registered, from extensions that are initialised later than billhook, too."""

        def extend(endpoint: str | None, values: dict[str, Any] | None) -> None:
            self.extend_to(blueprint)
            for name, hooks in list(self._app.url_value_preprocessors.items()):
                # Another list: Flask is iterating over this one.
                self._app.url_value_preprocessors[name] = [hook for hook in hooks if hook is not extend]

        blueprint.url_value_preprocessor(extend)  # called before the hooks of all extensions

    def exempt_from(self, check: RequestCheck) -> bool:
        """Return whether deliveries are exempt from an extension."""
        return check.kind in self._kinds
