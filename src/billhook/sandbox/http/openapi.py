"""The OpenAPI document of the operations, with the 23 webhooks.

Source: spec, "Authentication"; "Events".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from flask_openapi.blueprint import APIBlueprint
from flask_openapi.models.info import Info
from flask_openapi.models.schema import Schema
from flask_openapi.openapi import OpenAPI
from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import models_json_schema
from werkzeug.exceptions import NotFound

from billhook.events import EVENT_TYPES
from billhook.resources import ErrorBody
from billhook.sandbox.operations import Operation, OperationGroup

_OPENAPI_VERSION = "3.1.1"
"""3.1 added webhooks; many tools do not read later versions yet."""

_INFO = Info(
    title="Usage billing service: billhook's sandbox",
    version="1.0.0",
    description="The usage-billing service, running locally. What is under /_sandbox is the sandbox's own; "
    "all else is the service's interface.",
)

_SECURITY_SCHEMES: dict[str, Any] = {
    "clientId": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The client id."},
    "accessToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "From POST /login; good for one hour.",
    },
}

_REF = "#/components/schemas/{model}"


@cache
def _event_schemas() -> Mapping[str, Schema]:
    """Return the schemas of all webhook bodies and their shared parts, for `components`."""
    models = [(model, "serialization") for _, model in sorted(EVENT_TYPES.items())]
    _, shared = models_json_schema(models, ref_template=_REF)  # type: ignore[arg-type]
    return {name: Schema(**schema) for name, schema in shared["$defs"].items()}


def _webhooks(headers: Iterable[str]) -> dict[str, Any]:
    """Return the webhooks section: one entry for each event type, with the headers that sign it."""
    return {name: {"post": _webhook(name, headers)} for name in sorted(EVENT_TYPES)}


def _webhook(name: str, headers: Iterable[str]) -> dict[str, Any]:
    summary, _, _ = (EVENT_TYPES[name].__doc__ or name).partition("\n")
    kind = {"type": "string", "const": name}
    signed = [_header(header, {"type": "string"}) for header in headers]
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


_ALWAYS = (400, 401, 429, 500)


class Nothing(BaseModel):
    """An empty object."""


@cache  # describing the models takes most of a second, and all sandboxes of a process share it
def _blueprint(group: OperationGroup) -> APIBlueprint:
    name = (group.name or group.tag).replace(".", "-")
    made = APIBlueprint(name, __name__, abp_tags=[{"name": group.tag}])
    for operation in group.operations:
        _describe(made, operation)
    return made


def _describe(made: APIBlueprint, operation: Operation) -> None:
    names = operation.path_names

    def view(**_: str) -> None:
        raise NotFound  # described here and served elsewhere: only addresses of the description get here

    view.__name__ = operation.name
    view.__doc__ = operation.function.__doc__
    view.__annotations__ = _annotations(operation, names)
    view.__delay_validate_request__ = True  # type: ignore[attr-defined]
    statuses = dict.fromkeys((*_ALWAYS, *operation.errors, *((404,) if names else ())), ErrorBody)
    responses: dict[int, Any] = {200: operation.gives or Nothing, **statuses}
    # POST /login needs the client id only: it is where a token comes from.
    needed = ["clientId"] if operation.open else list(_SECURITY_SCHEMES)
    security: list[dict[str, list[Any]]] = [{name: [] for name in needed}]
    method = operation.method.lower()
    operation_id = f"{made.name}_{view.__name__}"
    rule = operation.path.replace("{", "<").replace("}", ">")
    getattr(made, method)(rule, responses=responses, security=security, operation_id=operation_id)(view)
    if operation.has_body:  # flask-openapi declares every body required
        getattr(made.paths[operation.path], method).requestBody.required = operation.needs_body


def _annotations(operation: Operation, names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if names:
        fields: dict[str, Any] = {name: (str, Field(min_length=1)) for name in names}
        found["path"] = create_model("Path", **fields)
    if operation.takes is not None:
        found["body" if operation.has_body else "query"] = operation.takes
    return found


@cache  # it is made when it is first asked for: most sandboxes are never asked
def document(groups: tuple[OperationGroup, ...], headers: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the OpenAPI document of the operations of `groups`, with webhooks signed in these `headers`."""
    app = OpenAPI(
        "billhook.sandbox",
        info=_INFO,
        security_schemes=_SECURITY_SCHEMES,
        validation_error_status=400,
        validation_error_model=ErrorBody,
        openapi_extensions={"webhooks": _webhooks(headers)},
        doc_ui=False,
    )
    app.openapi_version = _OPENAPI_VERSION
    app.url_map.merge_slashes = False
    for group in groups:
        app.register_api(_blueprint(group))
    app.components_schemas.update(_event_schemas())
    made: Mapping[str, Any] = app.api_doc
    return made
