"""The Flask blueprints: which path belongs to which source, and the health checks.

`GET /healthz`: the process answers; `GET /readyz`: a delivery could be stored now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Response

from billhook.errors import ConfigError, InboxUnavailable, SchemaMismatch
from billhook.receiver.exemptions import Exemptions
from billhook.receiver.wsgi import EveryMethod, WsgiReceiver, make_view
from billhook.signing.source import DEFAULT_SOURCE, Source

Making = Callable[[Flask, str], AbstractContextManager[Blueprint]]
"""Makes the blueprint for an app and a complete URL prefix; it is registered within the context."""


class DeferredBlueprint(Blueprint):
    """A blueprint built when it is registered, since only then the app and its config are known.

    It may be registered several times, in an app or in another blueprint.
    """

    def __init__(self, name: str, url_prefix: str, making: Making) -> None:
        super().__init__(name, __name__, url_prefix=url_prefix)
        self._making = making

    def register(self, app: Flask, options: dict[str, Any]) -> None:  # type: ignore[override]
        """Build the blueprint for `app` and register that instead. Called by Flask."""
        url_prefix = options.get("url_prefix")
        if url_prefix is None:
            url_prefix = self.url_prefix or ""
        with self._making(app, url_prefix) as made:
            made.register(app, {**options, "url_prefix": None})
        # Flask takes a list of known methods only.
        for rule in app.url_map.iter_rules():
            if hasattr(app.view_functions.get(rule.endpoint), SOURCE):
                rule.methods = EveryMethod(rule.methods or ())


SOURCE = "billhook_source"
"""The attribute of a view function that names its source."""


class WebhookRoute(NamedTuple):
    """The path that accepts the deliveries of a source; and the host, where an app tells hosts apart."""

    path: str
    source: Source
    host: str | None = None
    subdomain: str | None = None


# Every method is routed here, so that the app's own handlers for 405 and OPTIONS do not answer for us.
_METHODS = ("POST", "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT")


def webhook_routes(app: Flask) -> list[WebhookRoute]:
    """Return the app's webhook routes in the order of registration.

    They are read from the URL map, so nested blueprints and prefixes are included.
    """
    views = ((rule, app.view_functions.get(rule.endpoint)) for rule in app.url_map.iter_rules())
    return [
        WebhookRoute(rule.rule, getattr(view, SOURCE), rule.host, rule.subdomain)
        for rule, view in views
        if hasattr(view, SOURCE)
    ]


def host_of(app: Flask, route: WebhookRoute) -> str:
    """Return a host name by which the app can be reached at a route."""
    trusted = app.config["TRUSTED_HOSTS"] or ["localhost"]
    host = str(app.config["SERVER_NAME"] or trusted[0].removeprefix("."))
    if app.url_map.host_matching:
        return route.host or host
    return f"{route.subdomain}.{host}" if route.subdomain and app.subdomain_matching else host


def find_route(
    app: Flask, source: str | None, url: str | None = None, *, option: str = "--source"
) -> WebhookRoute:
    """Return the app's receiver of `source`; without one, that at the URL's path, the default's or the only.

    Raises ConfigError if there is none of these; `option` is what names a source.
    """
    routes = webhook_routes(app)
    # The path decides before the default does: --to a receiver must be signed as that receiver's source.
    if source is None and url is not None:
        for route in routes:
            if urlsplit(url).path.rstrip("/") == route.path.rstrip("/"):
                return route
    named = [route for route in routes if route.source.name == (source or DEFAULT_SOURCE)]
    if named or (source is None and len(routes) == 1):
        return (named or routes)[0]
    if not routes:
        raise ConfigError("this Flask app has no billhook: call Billhook(...).init_app(app)")
    known = ", ".join(sorted({route.source.name for route in routes}))
    wrong = "has several sources" if source is None else f"has no source {source!r}"
    raise ConfigError(f"the app {wrong}: give {option} one of {known}")


def make_blueprint(
    name: str,
    receiver: WsgiReceiver,
    sources: Sequence[Source],
    url_prefix: str,
    exemptions: Exemptions,
    host: str | None = None,
) -> Blueprint:
    """Create the routes `POST <url_prefix>` of the default source and `POST <url_prefix>/<name>` of others.

    Its `exemptions` are extended to extensions that the app has by its first delivery. `host` is for an app
    that matches hosts.

    Raises ConfigError for a prefix with a variable part, or that is no path.
    """
    if re.search(r"://|[?#\s]", url_prefix):
        raise ConfigError(f"url_prefix {url_prefix!r} is no path: give the path alone, as /webhooks/billing")
    if "<" in url_prefix:
        raise ConfigError(f"url_prefix {url_prefix!r} has a variable part: use named sources instead")
    blueprint = Blueprint(name, __name__)
    exemptions.extend_before_first_request(blueprint)
    blueprint.url_value_preprocessor(receiver.take_body)
    prefix = "/" + url_prefix.strip("/") if url_prefix.strip("/") else ""
    for source in sources:
        view = make_view(receiver, source)
        setattr(view, SOURCE, source)
        blueprint.add_url_rule(
            (prefix or "/") if source.name == DEFAULT_SOURCE else f"{prefix}/{source.name}",
            endpoint=source.name,
            view_func=view,
            methods=_METHODS,
            host=host,
            provide_automatic_options=False,
            strict_slashes=False,
            merge_slashes=False,  # else //webhooks/billing would be answered with a redirect
        )
    return blueprint


def make_health_blueprint(check_writable: Callable[[], None]) -> Blueprint:
    """Return the blueprint; `check_writable` raises InboxUnavailable or SchemaMismatch."""
    health = Blueprint("billhook_health", __name__)

    @health.get("/healthz")
    def healthz() -> Response:
        return Response('{"status": "up"}', content_type="application/json")

    @health.get("/readyz")
    def readyz() -> Response:
        try:
            check_writable()
        except (InboxUnavailable, SchemaMismatch, MemoryError, OSError, RuntimeError) as error:  # no thread
            if isinstance(error, SchemaMismatch) and error.stores:
                waits = '{"status": "ready", "handling": "waits for an upgrade of this process"}'
                return Response(waits, content_type="application/json")
            return Response('{"status": "unavailable"}', 503, content_type="application/json")
        return Response('{"status": "ready"}', content_type="application/json")

    return health
