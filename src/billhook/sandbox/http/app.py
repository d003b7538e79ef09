"""The Flask app: authenticates a request, parses it, runs its operation in one transaction, responds."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Flask, Response, current_app, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, Map

from billhook.errors import SandboxError
from billhook.fields import strict_json
from billhook.resources import ErrorBody, Resource
from billhook.sandbox.errors import invalid_request, too_large
from billhook.sandbox.http.openapi import document
from billhook.sandbox.http.requests import Authenticator, parse_body, parse_query, read_body
from billhook.sandbox.operations import Call, Operation, OperationGroup, Services
from billhook.sandbox.service import Service

if TYPE_CHECKING:
    from flask.typing import RouteCallable

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Limit for the body of any request; most operations have a lower one."""
_EXTENSION_KEY = "billhook.sandbox"

logger = logging.getLogger("billhook.sandbox")


class _State(NamedTuple):
    """What `app.extensions` holds for the views, which are shared by all apps of a process."""

    service: Service
    services: Services
    authenticator: Authenticator


class _ForeignIdConverter(BaseConverter):
    """Any text, with slashes and line breaks; Flask's `path` refuses a slash as the first character."""

    part_isolating = False
    regex = "(?s:.+?)"
    weight = 200  # as `path` has: rules with plain ids are tried first


# The last parameter of these is an external id, which may hold slashes. Ids of the sandbox hold none, so no
# other path of the same method matches.
_FOREIGN = (
    ("GET", "/contracts/{contractId}"),
    ("DELETE", "/contracts/{contractId}"),
    ("GET", "/_sandbox/contracts/{contractId}"),
    ("POST", "/_sandbox/contracts/{contractId}/activate"),
    ("GET", "/customers/integration/{integrationType}/{integrationId}"),
    ("GET", "/customers/products-consumptions/alias/{alias}"),
)


def create_app(
    service: Service, services: Services, authenticator: Authenticator, groups: Sequence[OperationGroup]
) -> Flask:
    """Return an app with the operations of `groups`; its description is at /openapi/openapi.json."""
    app = Flask("billhook.sandbox", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    app.extensions[_EXTENSION_KEY] = _State(service, services, authenticator)
    app.url_map, views = _routes(tuple(groups))
    app.view_functions.update(views)
    app.register_error_handler(SandboxError, _error_response)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _internal_error)
    return app


@cache  # compiling the rules takes longer than all else, and all sandboxes of a process share them
def _routes(groups: tuple[OperationGroup, ...]) -> tuple[Map, dict[str, RouteCallable]]:
    """Return the addresses of the operations of `groups`, and their views."""
    app = Flask("billhook.sandbox", static_folder=None)
    app.url_map.converters["foreign"] = _ForeignIdConverter
    # Merging would redirect /contracts//a to the contract "a"; an externalId may begin with a slash.
    app.url_map.merge_slashes = False
    for group in groups:
        for operation in group.operations:
            _add_route(app, operation)
    app.add_url_rule("/openapi/openapi.json", "openapi", lambda: _describe(groups))
    return app.url_map, app.view_functions


def _add_route(app: Flask, operation: Operation) -> None:
    names = operation.path_names
    rule = operation.path
    for name in names:
        kind = "foreign:" if (operation.method, operation.path) in _FOREIGN and name == names[-1] else ""
        rule = rule.replace(f"{{{name}}}", f"<{kind}{name}>")

    def view(**path: str) -> Response:
        return _handle(operation, path)

    endpoint = f"{operation.method} {operation.path}"
    app.add_url_rule(rule, endpoint, view, methods=[operation.method])


def _describe(groups: tuple[OperationGroup, ...]) -> Response:
    state: _State = current_app.extensions[_EXTENSION_KEY]
    described = strict_json.dumps(document(groups, tuple(state.service.options.scheme.headers)))
    return Response(described, mimetype="application/json")


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
        tx.cause = operation.key
        result = operation.function(Call(tx, parsed, path, services))
    # An empty object for None.
    body = result.to_response() if isinstance(result, Resource) else result or b"{}"
    return Response(body, mimetype="application/json")


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
