"""The door: a Flask blueprint with one view per source. All it does is hand over to the intake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from flask import Blueprint, Response, request
from flask.typing import RouteCallable

from billhook.errors import ConfigError
from billhook.receiver.answers import Answer, method_not_allowed
from billhook.receiver.doors import SOURCE
from billhook.receiver.intake import Intake
from billhook.receiver.probe import probe_of
from billhook.signing.source import DEFAULT_SOURCE, Source

__all__ = ["make_blueprint"]

# Every method is routed here, so that the app's own handlers for 405 and OPTIONS do not answer for us.
_METHODS = ("POST", "GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT")


def make_blueprint(name: str, intake: Intake, sources: Sequence[Source], url_prefix: str) -> Blueprint:
    """`POST <url_prefix>` for the default source, `POST <url_prefix>/<name>` for each other one."""
    if "<" in url_prefix:
        raise ConfigError(f"url_prefix {url_prefix!r} has a variable part: use named sources instead")
    blueprint = Blueprint(name, __name__)
    prefix = "/" + url_prefix.strip("/") if url_prefix.strip("/") else ""
    for source in sources:
        blueprint.add_url_rule(
            (prefix or "/") if source.name == DEFAULT_SOURCE else f"{prefix}/{source.name}",
            endpoint=source.name,
            view_func=_view(intake, source),
            methods=_METHODS,
            provide_automatic_options=False,
            strict_slashes=False,
            merge_slashes=False,  # else //webhooks/billing would be answered with a redirect
        )
    return blueprint


def _view(intake: Intake, source: Source) -> RouteCallable:
    def receive() -> Response:
        try:
            return take()
        except MemoryError:  # the frames that held the body are gone by now
            return _response(intake.exhausted(source))

    def take() -> Response:
        if request.method != "POST":
            response = _response(method_not_allowed())
        else:
            headers = cast("Mapping[str, str]", request.headers)  # all of it that is read is get()
            response = _response(intake.accept(request.environ, headers, source, _read_before))
            response.call_on_close(intake.answered)
        if response.status_code in (405, 413):  # refused before the body was read
            response.call_on_close(partial(intake.drain, request.environ))
        probe = probe_of(request.environ)
        if probe is not None:
            probe.status = response.status_code
        return response

    setattr(receive, SOURCE, source)
    return receive


def _read_before() -> bytes:
    """The body, if a `before_request` of the app has read it; nothing if not."""
    try:
        return request.get_data()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the stream is at its end; whatever reading on says adds nothing
        return b""


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status, content_type="application/json")
    response.headers.extend(answer.headers)
    return response
