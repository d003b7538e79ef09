"""The WSGI door: a Flask blueprint with one view per source, and the receiver that the views call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from flask import Blueprint, Flask, Response, request
from flask.typing import RouteCallable

from billhook.errors import (
    BodyIncomplete,
    BodyTooLarge,
    ConfigError,
    InboxUnavailable,
    OutOfResources,
    RequestError,
    SignatureError,
)
from billhook.inbox import Inbox
from billhook.receiver.intake import Intake
from billhook.receiver.request import BodyDeadline, RequestHeaders, close_connection, drain, read_body
from billhook.receiver.responses import METHOD_NOT_ALLOWED, PROBE_RESPONSE, WebhookResponse
from billhook.signing.source import DEFAULT_SOURCE, Source

__all__ = [
    "PROBE",
    "SOURCE",
    "DeferredBlueprint",
    "DeliveryProbe",
    "WebhookRoute",
    "WsgiReceiver",
    "find_probe",
    "make_blueprint",
    "webhook_routes",
]

PROBE = "billhook.probe"
"""Key of the probe in the WSGI environ. A client cannot set it: headers arrive as HTTP_… and as text."""


class DeliveryProbe:
    """Put it into the environ of a request made in this process; the receiver sets `status`.

    If `status` is still None afterwards, something else in the app answered the request.
    """

    def __init__(self) -> None:
        self.status: int | None = None


def find_probe(environ: Mapping[str, Any]) -> DeliveryProbe | None:
    """Return the probe of this request; None for a delivery."""
    found = environ.get(PROBE)
    return found if isinstance(found, DeliveryProbe) else None


class WsgiReceiver:
    """Receive deliveries in the thread of each request."""

    def __init__(self, intake: Intake, inbox: Inbox) -> None:
        self.intake = intake
        self._inbox = inbox
        self._body_deadline = BodyDeadline(intake.body_seconds)
        self.response_sent = inbox.response_sent

    def accept(
        self, environ: Mapping[str, Any], source: Source, cached_body: Callable[[], bytes] = bytes
    ) -> WebhookResponse:
        """Accept one POST. `cached_body` returns the body if a hook of the app has consumed it already."""
        deadline = time.monotonic() + self.intake.deadline_seconds
        try:
            # Read before any check: unread body bytes would be parsed as the connection's next request.
            body = self._read_body(environ, cached_body)
            delivery = self.intake.verify(source, RequestHeaders.from_environ(environ), body)
            if PROBE in environ and find_probe(environ) is not None:
                return PROBE_RESPONSE
            receipt = self._inbox.put(delivery, deadline - time.monotonic())
        except (RequestError, SignatureError, InboxUnavailable) as error:
            return self.intake.rejected(source, error)
        return self.intake.stored(delivery, receipt)

    def start(self) -> None:
        """Start the threads that `accept` needs, rather than at its first call. Raises OutOfResources."""
        self._body_deadline.start()
        self._inbox.start()

    def drain(self, environ: Mapping[str, Any]) -> None:
        """Read the rest of a body that was rejected unread; call it after the response is sent."""
        connection = environ.get("gunicorn.socket")
        if connection is None:  # another server's own rules hold for its unread bodies
            return
        try:
            with self._body_deadline.reading(connection):
                drain(environ)
        except OutOfResources:
            close_connection(environ)

    def _read_body(self, environ: Mapping[str, Any], cached_body: Callable[[], bytes]) -> bytes:
        connection = environ.get("gunicorn.socket")
        with nullcontext() if connection is None else self._body_deadline.reading(connection):
            try:
                body = read_body(environ, self.intake.max_body_bytes) or cached_body()
            except BodyIncomplete:
                body = cached_body()  # no longer than Content-Length, which is within the limit
                if str(len(body)) != environ.get("CONTENT_LENGTH", "").lstrip("0"):
                    close_connection(environ)
                    raise
        if len(body) > self.intake.max_body_bytes:  # chunked, and read by something in the app
            raise BodyTooLarge
        return body


# --- the blueprint ------------------------------------------------------------------------------------

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
            response = _response(METHOD_NOT_ALLOWED)
        else:
            response = _response(receiver.accept(request.environ, source, _cached_body))
            response.call_on_close(receiver.response_sent)
        if response.status_code in (405, 413):  # refused before the body was read
            response.call_on_close(partial(receiver.drain, request.environ))
        if PROBE in request.environ and (probe := find_probe(request.environ)) is not None:
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
