"""The Flask app: authenticates a request, parses it, runs its operation in one transaction, responds."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from flask import Response, current_app, request
from flask_openapi.openapi import OpenAPI
from werkzeug.exceptions import HTTPException

from billhook.errors import SandboxError
from billhook.resources import ErrorBody, Resource
from billhook.sandbox.errors import invalid_request, too_large
from billhook.sandbox.http.auth import Authenticator
from billhook.sandbox.http.invoice_page import serve_invoice_pages
from billhook.sandbox.http.openapi import (
    INFO,
    OPENAPI_VERSION,
    SECURITY_SCHEMES,
    SWAGGER_CONFIG,
    ForeignIdConverter,
    create_blueprint,
    event_schemas,
    webhooks,
)
from billhook.sandbox.http.parsing import parse_body, parse_query, read_body
from billhook.sandbox.operations import Call, Operation, OperationGroup, Services
from billhook.sandbox.service import Service

__all__ = ["MAX_BODY_BYTES", "create_app"]

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Limit for the body of any request; most operations have a lower one."""
_EXTENSION_KEY = "billhook.sandbox"

logger = logging.getLogger("billhook.sandbox")


class _State(NamedTuple):
    """What `app.extensions` holds for the views, which are shared by all apps of a process."""

    service: Service
    services: Services
    authenticator: Authenticator


def create_app(
    service: Service, services: Services, authenticator: Authenticator, groups: Iterable[OperationGroup]
) -> OpenAPI:
    """Return an app with the operations of `groups`; its description is at /openapi/openapi.json."""
    app = OpenAPI(
        "billhook.sandbox",
        info=INFO,
        security_schemes=SECURITY_SCHEMES,
        validation_error_status=400,
        validation_error_model=ErrorBody,
        openapi_extensions={"webhooks": webhooks(service.options.scheme)},
    )
    app.openapi_version = OPENAPI_VERSION
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.config["SWAGGER_CONFIG"] = SWAGGER_CONFIG
    app.extensions[_EXTENSION_KEY] = _State(service, services, authenticator)
    app.url_map.converters["foreign"] = ForeignIdConverter
    # Merging would redirect /contracts//a to the contract "a"; an externalId may begin with a slash.
    app.url_map.merge_slashes = False
    for group in groups:
        app.register_api(create_blueprint(group, _handle))
    serve_invoice_pages(app, service)
    app.components_schemas.update(event_schemas())
    app.register_error_handler(SandboxError, _error_response)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _internal_error)
    return app


def _handle(operation: Operation, path: dict[str, str]) -> Response:
    service, services, authenticator = current_app.extensions[_EXTENSION_KEY]
    # Credentials first: an unknown client must not make the sandbox read a body or query the database.
    authenticator.check_client(request)
    if not operation.open:
        authenticator.check_access_token(request, service.clock.now())
    # Before the transaction: a client that sends slowly must not hold the write lock.
    parsed = _parse(operation)
    if any("\0" in part for part in path.values()):
        raise invalid_request("the address holds a NUL character: no id has one")
    with service.transaction(writes=operation.writes) as tx:
        result = operation.function(Call(tx, parsed, path, services))
    return _response(result)


def _parse(operation: Operation) -> Any:
    if operation.takes is None:
        return None
    if not operation.has_body:
        return parse_query(operation.takes, request.args)
    limit = current_app.config["MAX_CONTENT_LENGTH"]
    if operation.reads_bytes is not None:
        limit = min(limit, operation.reads_bytes)
    body = read_body(request, required=operation.needs_body, max_bytes=limit)
    if operation.max_bytes is not None and len(body) > operation.max_bytes:
        raise too_large(f"the body has at most {operation.max_bytes} bytes: split it")
    return parse_body(operation.takes, body)


def _response(result: Resource | bytes | None) -> Response:
    """Return 200 with the operation's result as JSON; an empty object for None."""
    if result is None:
        result = b"{}"
    body = result if isinstance(result, bytes) else result.to_response()
    return Response(body, mimetype="application/json")


def _error_response(error: SandboxError) -> Response:
    response = Response(error.body, status=error.status, mimetype="application/json")
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _http_error(error: HTTPException) -> Response:
    response = _plain_error(error.code or 500, error.name)
    # Only `Allow`: the other headers describe the HTML page that is replaced here.
    for name, value in error.get_headers():
        if name == "Allow":
            response.headers[name] = value
    return response


def _internal_error(error: Exception) -> Response:
    # The response does not say what failed: the text of an exception may hold data of another request.
    logger.error("request failed with an unexpected error", exc_info=error)
    return _plain_error(500, "the sandbox failed: see its log")


def _plain_error(status: int, message: str) -> Response:
    """Return an error that no operation raised: an unknown path or method, or a bug of the sandbox."""
    is_internal = status >= 500
    body = ErrorBody(
        type="api_error" if is_internal else "invalid_request_error",
        code="internal_error" if is_internal else {404: "resource_not_found"}.get(status, "invalid_request"),
        message=message,
    )
    return Response(body.to_response(), status=status, mimetype="application/json")
