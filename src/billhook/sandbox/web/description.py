"""What OpenAPI says of the sandbox beyond its operations: how to come in, and the 23 webhooks.

Source: spec, "Authentication"; "Events".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from flask_openapi.models.info import Info
from flask_openapi.models.schema import Schema
from pydantic.json_schema import models_json_schema

from billhook.events import EVENT_TYPES
from billhook.signing import Scheme

__all__ = ["INFO", "OPENAPI_VERSION", "SECURITY_SCHEMES", "SWAGGER_CONFIG", "event_schemas", "webhooks"]

OPENAPI_VERSION = "3.1.1"
"""The first with webhooks; not yet everybody's tools read a later one."""

INFO = Info(
    title="Usage billing service: billhook's sandbox",
    version="1.0.0",
    description="The usage-billing service, running locally. What is under /_sandbox is the sandbox's own; "
    "all else is the service's interface.",
)

SECURITY_SCHEMES: dict[str, Any] = {
    "clientId": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The client id."},
    "accessToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "From POST /login; good for one hour.",
    },
}

SWAGGER_CONFIG = {"validatorUrl": "none"}
"""Without its badge: else the page, where it is not on localhost, tells an outside host its address."""

_REF = "#/components/schemas/{model}"


@cache
def event_schemas() -> Mapping[str, Schema]:
    """The bodies of all webhooks, and the parts that they share, for `components`."""
    models = [(model, "serialization") for _, model in sorted(EVENT_TYPES.items())]
    _, shared = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    return {name: Schema(**schema) for name, schema in shared["$defs"].items()}


def webhooks(scheme: Scheme) -> dict[str, Any]:
    """The webhooks section: one for each event type, signed by `scheme`."""
    return {name: {"post": _webhook(name, scheme)} for name in sorted(EVENT_TYPES)}


def _webhook(name: str, scheme: Scheme) -> dict[str, Any]:
    summary, _, _ = (EVENT_TYPES[name].__doc__ or name).partition("\n")
    kind = {"type": "string", "const": name}
    signed = [_header(header, {"type": "string"}) for header in scheme.headers]
    return {
        "operationId": f"webhook_{name}",
        "summary": summary,
        "tags": ["webhooks"],
        "parameters": [_header("X-Webhook-Type", kind), *signed],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": _REF.format(model=name)}}},
        },
        "responses": {"2XX": {"description": "Taken. Anything else is tried again later."}},
    }


def _header(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": True, "schema": schema}
