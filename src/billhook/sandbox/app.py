"""The Flask app: authenticates a request, parses it, runs its operation in one transaction, responds.

Errors name fields as they are written on the wire. Source: spec, "Authentication"; "Limits".
"""

from __future__ import annotations

import hmac
import logging
import math
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jwt
from flask import Flask, Request, Response, current_app, request
from limits import RateLimitItem
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from werkzeug.exceptions import ClientDisconnected, HTTPException, RequestEntityTooLarge
from werkzeug.routing import BaseConverter, Map

from billhook.errors import InvalidJSON, InvalidResource, RuleBroken, SandboxError
from billhook.fields import strict_json
from billhook.resources import READ_ONLY, EventBatch, Resource
from billhook.sandbox.errors import error, invalid_request, invalid_resource, not_authenticated, too_large
from billhook.sandbox.openapi import document
from billhook.sandbox.operations import Operation, OperationGroup, Services
from billhook.sandbox.storage.database import Service
from billhook.sandbox.tokens import ACCESS_SECONDS, JWT_ALGORITHM

if TYPE_CHECKING:
    from flask.typing import RouteCallable


_REFUSED = "the client id or the access token is missing, wrong or expired: log in again"

# In JSON a NUL is always escaped, after an even number of backslashes: strict JSON refuses the byte itself.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Limit for the body of any request; most operations have a lower one."""
_EXTENSION_KEY = "billhook.sandbox"
logger = logging.getLogger("billhook.sandbox")
# These may be external ids, which may hold slashes. Ids of the sandbox hold none, so no other path of the
# same method matches.
_FOREIGN = ("contractId", "integrationId", "alias")


class Authenticator:
    """Checks client id, rate limit and access token. Its errors do not tell which of them was wrong."""

    def __init__(self, client_id: str, key: bytes, limit: RateLimitItem) -> None:
        self._client_id = client_id.encode()
        self._key = key
        self._limit = limit
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def check_client(self, request: Request) -> None:
        """Check the header `x-api-key` and the rate of requests; 401 or 429."""
        # WSGI decodes a header's bytes as Latin-1 and joins repeated headers with a comma.
        client_id = request.headers.get("x-api-key", "").encode("latin-1", "replace")
        self._check_id(client_id)
        # One limit for all requests, since there is one client id.
        self._count("requests")

    def check_login(self, client_id: str) -> None:
        """Check the rate of attempts to log in to the pages, and the client id; 429 or 401."""
        self._count("logins")
        self._check_id(client_id.encode("utf-8", "replace"))

    def _check_id(self, client_id: bytes) -> None:
        # In constant time, and as bytes: compare_digest refuses texts that are not ASCII.
        if not hmac.compare_digest(client_id, self._client_id):
            raise not_authenticated(_REFUSED)

    def _count(self, what: str) -> None:
        if not self._limiter.hit(self._limit, what):
            reset = self._limiter.get_window_stats(self._limit, what).reset_time
            seconds = max(1, math.ceil(reset - time.time()))
            text = f"too many requests: retry in {seconds} s"
            raise error(429, "rate_limit_exceeded", text, seconds)

    def check_access_token(self, request: Request, now: datetime) -> None:
        """Check the access token in `Authorization` at `now`, the sandbox clock's time; 401."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            # PyJWT would check the times by the machine's clock, so they are checked below.
            claims = jwt.decode(
                token.strip(),
                self._key,
                algorithms=[JWT_ALGORITHM],
                options={"require": ["exp", "sub"], "verify_exp": False, "verify_iat": False},
            )
            left_seconds = float(claims["exp"]) - now.timestamp()
        # OverflowError for an exp of 4,000 digits.
        except (jwt.InvalidTokenError, TypeError, ValueError, OverflowError):
            raise not_authenticated(_REFUSED) from None
        is_own = scheme.lower() == "bearer" and claims["sub"] == self._client_id.decode()
        if not is_own or not 0 < left_seconds <= ACCESS_SECONDS:
            raise not_authenticated(_REFUSED)


def read_body(request: Request, *, required: bool, max_bytes: int) -> bytes:
    """Return the body; {} if there is none and none is `required`.

    Refuses a body that is longer than `max_bytes` (without reading the rest of it), incomplete, compressed,
    or not declared as JSON.
    """
    # Parsed as it is, a compressed body would be "not JSON", which is no help to a client.
    if request.headers.get("Content-Encoding", "").strip().lower() not in ("", "identity"):
        text = "send the body as it is: the sandbox reads no Content-Encoding but identity"
        raise error(415, "unsupported_content_encoding", text)
    # One byte more than allowed: Werkzeug truncates a chunked body at the limit instead of refusing it.
    request.max_content_length = max_bytes + 1
    too_long = too_large(f"the body is longer than the limit of {max_bytes} bytes")
    try:
        body = request.get_data(cache=False)
    except RequestEntityTooLarge:
        raise too_long from None
    except ClientDisconnected:
        raise invalid_request("the body is shorter than its Content-Length", code="not_json") from None
    except Exception:  # noqa: BLE001 - servers raise exceptions of their own for broken chunks
        raise invalid_request("the body cannot be read: its chunks are broken", code="not_json") from None
    if len(body) > max_bytes:
        raise too_long
    if not body and not required:
        return b"{}"
    if request.mimetype != "application/json":
        raise invalid_request("the body must be sent as Content-Type: application/json", code="not_json")
    return body


def parse_body(model: type[Resource], body: bytes) -> Resource:
    """Return `body` as a `model`; 400 if it is not a valid one.

    Read-only fields are ignored, even with an invalid value. Source: spec, Customer, customFieldValues.
    """
    try:
        if issubclass(model, EventBatch):
            return model.from_json(body)  # its events are validated one by one, NUL included
        data = strict_json.loads(body)
        if isinstance(data, dict):
            read_only = {field.alias for field in model.model_fields.values() if READ_ONLY in field.metadata}
            data = {name: value for name, value in data.items() if name not in read_only}
        parsed = model.from_wire(data)
    except InvalidJSON as broken:
        raise invalid_request(str(broken)) from None
    except (InvalidResource, RuleBroken) as broken:
        raise invalid_resource(broken) from None
    # SQLite's functions end a text there.
    if _NUL.search(body):
        raise invalid_request("a text in the body holds a NUL character: it cannot be stored")
    return parsed


def parse_query(model: type[Resource], query: Mapping[str, str]) -> Resource:
    """Return the parameters of the URL as a `model`; 400 if they are not valid."""
    if nul := [name for name, value in query.items() if "\0" in value]:
        raise invalid_request("a parameter of the URL holds a NUL character", *nul)
    try:
        return model.from_wire(dict(query))
    except RuleBroken as broken:
        raise invalid_resource(broken) from None
    except InvalidResource as broken:
        raise invalid_resource(broken, "the parameters of the URL are not valid, because of") from None


class _ForeignIdConverter(BaseConverter):
    """Any text, with slashes and line breaks; Flask's `path` refuses a slash as the first character."""

    part_isolating = False
    regex = "(?s:.+?)"
    weight = 200  # as `path` has: rules with plain ids are tried first


def create_app(
    service: Service, services: Services, authenticator: Authenticator, groups: Sequence[OperationGroup]
) -> Flask:
    """Return an app with the operations of `groups`; its description is at /openapi/openapi.json."""
    app = Flask("billhook.sandbox", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    # For the views, which all apps of a process share.
    app.extensions[_EXTENSION_KEY] = service, services, authenticator
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
            rule = operation.path
            for name in operation.path_names:
                kind = "foreign:" if name in _FOREIGN else ""
                rule = rule.replace(f"{{{name}}}", f"<{kind}{name}>")
            app.add_url_rule(rule, operation.key, partial(_handle, operation), methods=[operation.method])
    app.add_url_rule("/openapi/openapi.json", "openapi", lambda: _describe(groups))
    return app.url_map, app.view_functions


def _describe(groups: tuple[OperationGroup, ...]) -> Response:
    service, *_ = current_app.extensions[_EXTENSION_KEY]
    described = strict_json.dumps(document(groups, service.options.scheme))
    return Response(described, mimetype="application/json")


def _handle(operation: Operation, **path: str) -> Response:
    service, services, authenticator = current_app.extensions[_EXTENSION_KEY]
    # Credentials first: an unknown client must not make the sandbox read a body or query the database.
    authenticator.check_client(request)
    if not operation.open:
        authenticator.check_access_token(request, service.clock.now())
    # Before the transaction: a client that sends slowly must not hold the write lock.
    parsed = _parse(operation)
    if any("\0" in part for part in path.values()):
        raise invalid_request("the address holds a NUL character: no id has one")
    result = operation.run(service, services, parsed, path)
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


def _error_response(refused: SandboxError) -> Response:
    response = Response(refused.body, status=refused.status, mimetype="application/json")
    if refused.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(refused.retry_after_seconds)
    if refused.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _http_error(found: HTTPException) -> Response:
    """Return an error that no operation raised: for an unknown path or method."""
    status = found.code or 500
    code = "internal_error" if status >= 500 else {404: "resource_not_found"}.get(status, "invalid_request")
    response = _error_response(error(status, code, found.name))
    # Only `Allow`: the other headers describe the HTML page that is replaced here.
    response.headers.extend(header for header in found.get_headers() if header[0] == "Allow")
    return response


def _internal_error(found: Exception) -> Response:
    # The response does not say what failed: the text of an exception may hold data of another request.
    logger.error("request failed with an unexpected error", exc_info=found)
    return _error_response(error(500, "internal_error", "the sandbox failed: see its log"))
