"""The sandbox over HTTP: the way of a request, and what is answered when it goes wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Response, current_app, request
from flask_openapi.openapi import OpenAPI
from werkzeug.exceptions import HTTPException

from billhook.errors import Refusal
from billhook.resources import ErrorBody
from billhook.sandbox.refusals import invalid_request, too_large
from billhook.sandbox.web.answers import answer, failure, refused
from billhook.sandbox.web.description import (
    INFO,
    OPENAPI_VERSION,
    SECURITY_SCHEMES,
    SWAGGER_CONFIG,
    event_schemas,
    webhooks,
)
from billhook.sandbox.web.gate import Gate
from billhook.sandbox.web.invoice_page import serve_pages
from billhook.sandbox.web.operation import Call, Group, Operation
from billhook.sandbox.web.reading import body_bytes, read_body, read_query
from billhook.sandbox.web.routes import ForeignName, blueprint

if TYPE_CHECKING:
    from billhook.sandbox.sandbox import Sandbox

__all__ = ["MAX_BODY_BYTES", "create_app"]

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Of any request; most operations take less."""
_KEY = "billhook.sandbox"

logger = logging.getLogger("billhook.sandbox")


class _Parts(NamedTuple):
    """What an app of this package holds under `_KEY`."""

    sandbox: Sandbox
    gate: Gate


def create_app(sandbox: Sandbox, gate: Gate, groups: Iterable[Group]) -> OpenAPI:
    """An app with the operations of `groups`; its description is at /openapi/openapi.json."""
    app = OpenAPI(
        "billhook.sandbox",
        info=INFO,
        security_schemes=SECURITY_SCHEMES,
        validation_error_status=400,
        validation_error_model=ErrorBody,
        openapi_extensions={"webhooks": webhooks(sandbox.options.scheme)},
    )
    app.openapi_version = OPENAPI_VERSION
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.config["SWAGGER_CONFIG"] = SWAGGER_CONFIG
    app.extensions[_KEY] = _Parts(sandbox, gate)
    app.url_map.converters["foreign"] = ForeignName
    app.url_map.merge_slashes = False  # else /contracts//a would be sent on to the contract "a"
    for group in groups:
        app.register_api(blueprint(group, _answer))
    serve_pages(app, sandbox)
    app.components_schemas.update(event_schemas())
    app.register_error_handler(Refusal, refused)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _fault)
    return app


def _answer(operation: Operation, path: dict[str, str]) -> Response:
    """The way of a request: through the gate, read, done in one transaction, answered."""
    sandbox, gate = current_app.extensions[_KEY]
    gate.admit_client(request)
    if not operation.open:
        gate.admit_bearer(request, sandbox.clock.now())
    given = _given(operation)
    if any("\0" in part for part in path.values()):
        raise invalid_request("the address holds a NUL character: no id has one")
    with sandbox.transaction(writes=operation.writes) as tx:
        result = operation.function(Call(tx, given, path, sandbox))
    return answer(result)


def _given(operation: Operation) -> Any:
    if operation.takes is None:
        return None
    if not operation.has_body:
        return read_query(operation.takes, request.args)
    most = current_app.config["MAX_CONTENT_LENGTH"]
    if operation.reads_bytes is not None:
        most = min(most, operation.reads_bytes)
    body = body_bytes(request, needed=operation.needs_body, most=most)
    if operation.max_bytes is not None and len(body) > operation.max_bytes:
        raise too_large(f"the body has at most {operation.max_bytes} bytes: split it")
    return read_body(operation.takes, body)


def _http_error(error: HTTPException) -> Response:
    response = failure(error.code or 500, error.name)
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _fault(error: Exception) -> Response:
    logger.error("the sandbox failed", exc_info=error)
    return failure(500, "the sandbox failed: see its log")
