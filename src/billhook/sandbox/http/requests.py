"""Requests before they reach an operation: authentication, rate limits, and strict parsing into a model.

Errors name fields as they are written on the wire. Source: spec, "Authentication"; "Limits".
"""

from __future__ import annotations

import hmac
import math
import re
import time
from collections.abc import Mapping
from datetime import datetime, timedelta

import jwt
from flask import Request
from limits import RateLimitItem
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from billhook.errors import InvalidJSON, InvalidResource, RuleBroken
from billhook.fields import strict_json
from billhook.resources import READ_ONLY, EventBatch, Resource
from billhook.sandbox.errors import (
    invalid_request,
    invalid_resource,
    not_authenticated,
    rate_limited,
    too_large,
)
from billhook.sandbox.tokens import ACCESS_SECONDS, JWT_ALGORITHM

_REFUSED = "the client id or the access token is missing, wrong or expired: log in again"
# In JSON a NUL is always escaped, after an even number of backslashes: strict JSON refuses the byte itself.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


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
            raise rate_limited(max(1, math.ceil(reset - time.time())))

    def check_access_token(self, request: Request, now: datetime) -> None:
        """Check the access token in `Authorization` at `now`, the sandbox clock's time; 401."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise not_authenticated(_REFUSED)
        try:
            # PyJWT would check the times by the machine's clock, so they are checked below.
            claims = jwt.decode(
                token.strip(),
                self._key,
                algorithms=[JWT_ALGORITHM],
                options={"require": ["exp", "sub"], "verify_exp": False, "verify_iat": False},
            )
            ends_at = float(claims["exp"])
        except (
            jwt.InvalidTokenError,
            TypeError,
            ValueError,
            OverflowError,
        ):  # such as an exp of 4,000 digits
            raise not_authenticated(_REFUSED) from None
        if claims["sub"] != self._client_id.decode():
            raise not_authenticated(_REFUSED)
        if not now.timestamp() < ends_at <= (now + timedelta(seconds=ACCESS_SECONDS)).timestamp():
            raise not_authenticated(_REFUSED)


def read_body(request: Request, *, required: bool, max_bytes: int) -> bytes:
    """Return the body; {} if there is none and none is `required`.

    Refuses a body that is longer than `max_bytes` (without reading the rest of it), incomplete, or not
    declared as JSON.
    """
    body = _read_limited(request, max_bytes)
    if not body and not required:
        return b"{}"
    if request.mimetype != "application/json":
        raise invalid_request("the body must be sent as Content-Type: application/json", code="not_json")
    return body


def _read_limited(request: Request, max_bytes: int) -> bytes:
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
    return body


def parse_body(model: type[Resource], body: bytes) -> Resource:
    """Return `body` as a `model`; 400 if it is not a valid one."""
    try:
        if issubclass(model, EventBatch):
            return model.from_json(body)  # its events are validated one by one, NUL included
        parsed = model.from_wire(_without_read_only(model, strict_json.loads(body)))
    except InvalidJSON as error:
        raise invalid_request(str(error)) from None
    except (InvalidResource, RuleBroken) as error:
        raise invalid_resource(error) from None
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
    except RuleBroken as error:
        raise invalid_resource(error) from None
    except InvalidResource as error:
        raise invalid_resource(error, "the parameters of the URL are not valid, because of") from None


def _without_read_only(model: type[Resource], data: object) -> object:
    """Drop read-only fields: they are ignored, even with an invalid value.

    Source: spec, Customer, customFieldValues.
    """
    if not isinstance(data, dict):
        return data
    read_only = {field.alias for field in model.model_fields.values() if READ_ONLY in field.metadata}
    return {name: value for name, value in data.items() if name not in read_only}
