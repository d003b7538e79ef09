"""Operations as Flask routes, and their OpenAPI description, with the 23 webhooks.

Source: spec, "Authentication"; "Events".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from flask import Response
from flask_openapi.blueprint import APIBlueprint
from flask_openapi.models.info import Info
from flask_openapi.models.schema import Schema
from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import models_json_schema
from werkzeug.routing import BaseConverter

from billhook.events import EVENT_TYPES
from billhook.resources import ErrorBody
from billhook.sandbox.operations import Operation, OperationGroup
from billhook.signing import Scheme

__all__ = [
    "INFO",
    "OPENAPI_VERSION",
    "SECURITY_SCHEMES",
    "SWAGGER_CONFIG",
    "ForeignIdConverter",
    "HandleRequest",
    "create_blueprint",
    "event_schemas",
    "webhooks",
]


OPENAPI_VERSION = "3.1.1"
"""3.1 added webhooks; many tools do not read later versions yet."""

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
"""No validator badge: it would send the page's address to an outside host."""

_REF = "#/components/schemas/{model}"


@cache
def event_schemas() -> Mapping[str, Schema]:
    """Return the schemas of all webhook bodies and their shared parts, for `components`."""
    models = [(model, "serialization") for _, model in sorted(EVENT_TYPES.items())]
    _, shared = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    return {name: Schema(**schema) for name, schema in shared["$defs"].items()}


def webhooks(scheme: Scheme) -> dict[str, Any]:
    """Return the webhooks section: one entry for each event type, with the headers of `scheme`."""
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
        "responses": {"2XX": {"description": "Accepted. Any other response is retried later."}},
    }


def _header(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": True, "schema": schema}


HandleRequest = Callable[[Operation, dict[str, str]], Response]
"""Handles a request for an operation, with the parameters of its path."""

_PARAMETER = re.compile(r"\{([A-Za-z]+)\}")
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
_ALWAYS = (400, 401, 429, 500)


class ForeignIdConverter(BaseConverter):
    """Any text, with slashes and line breaks; Flask's `path` refuses a slash as the first character."""

    part_isolating = False
    regex = "(?s:.+?)"
    weight = 200  # as `path` has: rules with plain ids are tried first


class Nothing(BaseModel):
    """An empty object."""


@cache  # describing the models takes most of a second, and all sandboxes of a process share it
def create_blueprint(group: OperationGroup, handle: HandleRequest) -> APIBlueprint:
    """Return the routes of a group; `handle` handles their requests."""
    name = (group.name or group.tag).replace(".", "-")
    made = APIBlueprint(name, __name__, abp_tags=[{"name": group.tag}])
    for operation in group.operations:
        _register(made, operation, handle)
    return made


def _register(made: APIBlueprint, operation: Operation, handle: HandleRequest) -> None:
    names = _PARAMETER.findall(operation.path)
    rule = operation.path
    for name in names:
        kind = "foreign:" if (operation.method, operation.path) in _FOREIGN and name == names[-1] else ""
        rule = rule.replace(f"{{{name}}}", f"<{kind}{name}>")

    def view(**path: str) -> Response:
        return handle(operation, path)

    view.__name__ = operation.name
    view.__doc__ = operation.function.__doc__
    view.__annotations__ = _described(operation, names)
    # http.parsing validates requests, more strictly; the annotations serve the description only.
    view.__delay_validate_request__ = True  # type: ignore[attr-defined]
    statuses = dict.fromkeys((*_ALWAYS, *operation.errors, *((404,) if names else ())), ErrorBody)
    responses: dict[int, Any] = {200: operation.gives or Nothing, **statuses}
    # POST /login needs the client id only: it is where a token comes from.
    needed = ["clientId"] if operation.open else list(SECURITY_SCHEMES)
    security: list[dict[str, list[Any]]] = [{name: [] for name in needed}]
    method = operation.method.lower()
    operation_id = f"{made.name}_{view.__name__}"
    getattr(made, method)(rule, responses=responses, security=security, operation_id=operation_id)(view)
    if operation.has_body:  # flask-openapi declares every body required
        getattr(made.paths[operation.path], method).requestBody.required = operation.needs_body


def _described(operation: Operation, names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if names:
        fields: dict[str, Any] = {name: (str, Field(min_length=1)) for name in names}
        found["path"] = create_model("Path", **fields)
    if operation.takes is not None:
        found["body" if operation.has_body else "query"] = operation.takes
    return found
