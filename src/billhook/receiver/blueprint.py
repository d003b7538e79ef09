"""The Flask blueprint: one view per source, which hands each request to the WSGI receiver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from flask import Blueprint, Flask, Response, request
from flask.typing import RouteCallable

from billhook.errors import ConfigError
from billhook.receiver.probe import find_probe
from billhook.receiver.responses import WebhookResponse, method_not_allowed
from billhook.receiver.wsgi import WsgiReceiver
from billhook.signing.source import DEFAULT_SOURCE, Source

__all__ = ["SOURCE", "DeferredBlueprint", "WebhookRoute", "make_blueprint", "webhook_routes"]


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


SOURCE = "billhook_source"
"""The attribute of a view function that names its source."""


class WebhookRoute(NamedTuple):
    """The path that accepts the deliveries of a source."""

    path: str
    source: Source


def webhook_routes(app: Flask) -> list[WebhookRoute]:
    """Return the app's webhook routes in the order of registration.

    They are read from the URL map, so nested blueprints and prefixes are included.
    """
    rules = app.url_map.iter_rules()
    views = ((rule.rule, app.view_functions.get(rule.endpoint)) for rule in rules)
    return [WebhookRoute(path, getattr(view, SOURCE)) for path, view in views if hasattr(view, SOURCE)]


# Every method is routed here, so that the app's own handlers for 405 and OPTIONS do not answer for us.
_METHODS = ("POST", "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT")


def make_blueprint(
    name: str, receiver: WsgiReceiver, sources: Sequence[Source], url_prefix: str
) -> Blueprint:
    """`POST <url_prefix>` for the default source, `POST <url_prefix>/<name>` for each other one."""
    if "<" in url_prefix:
        raise ConfigError(f"url_prefix {url_prefix!r} has a variable part: use named sources instead")
    blueprint = Blueprint(name, __name__)
    prefix = "/" + url_prefix.strip("/") if url_prefix.strip("/") else ""
    for source in sources:
        blueprint.add_url_rule(
            (prefix or "/") if source.name == DEFAULT_SOURCE else f"{prefix}/{source.name}",
            endpoint=source.name,
            view_func=_view(receiver, source),
            methods=_METHODS,
            provide_automatic_options=False,
            strict_slashes=False,
            merge_slashes=False,  # else //webhooks/billing would be answered with a redirect
        )
    return blueprint


def _view(receiver: WsgiReceiver, source: Source) -> RouteCallable:
    def receive() -> Response:
        try:
            return answer()
        except MemoryError:  # handled here, because the frames that held the body are released
            return _response(receiver.intake.out_of_memory(source))

    def answer() -> Response:
        if request.method != "POST":
            response = _response(method_not_allowed())
        else:
            response = _response(receiver.accept(request.environ, source, _cached_body))
            response.call_on_close(receiver.response_sent)
        if response.status_code in (405, 413):  # refused before the body was read
            response.call_on_close(partial(receiver.drain, request.environ))
        probe = find_probe(request.environ)
        if probe is not None:
            probe.status = response.status_code
        return response

    setattr(receive, SOURCE, source)
    return receive


def _cached_body() -> bytes:
    """Return the body if a `before_request` hook of the app has read it, else b""."""
    try:
        return request.get_data()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the stream is exhausted; the error adds nothing
        return b""


def _response(answer: WebhookResponse) -> Response:
    response = Response(answer.body, answer.status, content_type="application/json")
    response.headers.extend(answer.headers)
    return response
