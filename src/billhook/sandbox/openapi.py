"""The OpenAPI document of the operations, with the webhooks.

Source: spec, "Authentication"; "Events".
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

from billhook.events import EVENT_TYPES, sample
from billhook.events.inspection import event_summary
from billhook.fields import strict_json
from billhook.resources import ErrorBody
from billhook.sandbox.links import LINKS
from billhook.sandbox.operations import Operation, OperationGroup
from billhook.sandbox.request_rules import body_rules, parameter_rules
from billhook.signing import Scheme

_OPENAPI_VERSION = "3.1.1"
"""3.1 added webhooks; many tools do not read later versions yet."""

_INFO = {
    "title": "Usage billing service: billhook's sandbox",
    "version": "1.0.0",
    "description": "The usage-billing service, running locally. What is under /_sandbox is the sandbox's "
    "own; all else is the service's interface.",
    "license": {"name": "MIT", "identifier": "MIT"},
}

_SERVERS = [{"url": "/", "description": "The sandbox that this document comes from."}]

_SECURITY_SCHEMES: dict[str, Any] = {
    "clientId": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "The client id."},
    "accessToken": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "From POST /login; valid for one hour.",
    },
}

_PARAGRAPH = "\n\n"
_REF = "#/components/schemas/{model}"

_ALWAYS = (400, 401, 429, 500)


class Nothing(BaseModel):
    """An empty object."""


def document(groups: tuple[OperationGroup, ...], scheme: Scheme) -> Mapping[str, Any]:
    """Return the OpenAPI document of the operations of `groups`, with webhooks signed by `scheme`."""
    return _document(groups, type(scheme), scheme.headers)


@cache  # describing the models takes most of a second, and all sandboxes of a process share it
def _document(
    groups: tuple[OperationGroup, ...], scheme: type[Scheme], headers: tuple[str, ...]
) -> Mapping[str, Any]:
    ids = {
        operation.key: _operation_id(group, operation) for group in groups for operation in group.operations
    }
    models: set[type[BaseModel]] = {ErrorBody, *EVENT_TYPES.values()}
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for group in groups:
        for operation in group.operations:
            models.add(operation.gives or Nothing)
            if operation.takes is not None and operation.has_body:
                models.add(operation.takes)
            described = _operation(group, operation)
            links = {
                link.name: link.described(ids[link.to])
                for link in LINKS.get(operation.key, ())
                if link.to in ids
            }
            described["responses"]["200"] |= {"links": links} if links else {}
            paths[operation.path][operation.method.lower()] = described
    about = {group.tag: group.about for group in groups if group.about}
    signature = _signature(scheme, headers)
    # As they are read, for webhooks as well: to write one, pydantic says that every field is required.
    _, shared = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    return {
        "openapi": _OPENAPI_VERSION,
        "info": _INFO,
        "servers": _SERVERS,
        "paths": paths,
        # By title: the sandbox reads some models of the specification by a class of its own.
        "components": {
            "schemas": {schema["title"]: schema for schema in shared["$defs"].values()},
            "securitySchemes": {**_SECURITY_SCHEMES, **signature},
        },
        "tags": [
            {"name": tag, "description": about.get(tag, "")}
            for tag in dict.fromkeys(group.tag for group in groups)
        ],
        "webhooks": {name: {"post": _webhook(name, signature)} for name in sorted(EVENT_TYPES)},
    }


def _signature(scheme: type[Scheme], headers: Iterable[str]) -> Mapping[str, Any]:
    """Return a security scheme for each header of the signature: a receiver verifies them together."""
    how = f"Of the signature ({scheme.name}): {(inspect.getdoc(scheme) or '').partition(_PARAGRAPH)[0]}"
    return {
        # A header may have characters that the name of a component must not have.
        re.sub(r"[^A-Za-z0-9._-]", "_", header): {
            "type": "apiKey",
            "in": "header",
            "name": header,
            "description": how,
        }
        for header in headers
    }


def _operation_id(group: OperationGroup, operation: Operation) -> str:
    return f"{(group.name or group.tag).replace('.', '-')}_{operation.name}"


def _operation(group: OperationGroup, operation: Operation) -> dict[str, Any]:
    names = operation.path_names
    summary, _, description = (inspect.getdoc(operation.function) or "").partition(_PARAGRAPH)
    of_body = (415,) if operation.has_body else ()
    errors = (*_ALWAYS, *operation.errors, *of_body, *((404,) if names else ()))
    models = {200: operation.gives or Nothing, **dict.fromkeys(errors, ErrorBody)}
    described: dict[str, Any] = {
        "tags": [group.tag],
        "summary": summary,
        "operationId": _operation_id(group, operation),
        "parameters": [
            _parameter(name, "path", {"type": "string", "minLength": 1, **parameter_rules(operation, name)})
            for name in names
        ],
        "responses": {
            str(status): {"description": HTTPStatus(status).phrase, "content": _content(model)}
            for status, model in models.items()
        },
        # POST /login needs the client id only: it is where a token comes from.
        "security": [{name: [] for name in _SECURITY_SCHEMES if name == "clientId" or not operation.open}],
    }
    if description:
        described["description"] = description
    takes = operation.takes
    if takes is not None and operation.has_body:
        content, rules = _content(takes), body_rules(operation)
        if rules:
            (media,) = content.values()
            media["schema"] = {"allOf": [media["schema"], rules]}
        # No body is read as {}, which does not fit rules that need a field.
        required = operation.needs_body or bool({"required", "oneOf"} & rules.keys())
        described["requestBody"] = {"required": required, "content": content}
    elif takes is not None:
        schema = takes.model_json_schema(ref_template=_REF)
        for name, field in schema["properties"].items():
            if rules := parameter_rules(operation, name):
                field = {**field, **rules}
                field.pop("default", None)  # null, which no parameter can be
            parameter = _parameter(name, "query", field, required=name in schema.get("required", ()))
            described["parameters"].append(parameter)
    return described


def _parameter(name: str, place: str, schema: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    more = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": place, "required": required, "schema": schema, **more}


def _content(model: type[BaseModel]) -> dict[str, Any]:
    name = model.model_config.get("title") or model.__name__
    return {"application/json": {"schema": {"$ref": _REF.format(model=name)}}}


def _webhook(name: str, signature: Iterable[str]) -> dict[str, Any]:
    event = EVENT_TYPES[name]
    example: dict[str, Any] = {}
    with suppress(ValidationError):  # a type of the user's own, whose fields need examples for a sample
        example["example"] = strict_json.loads(sample(event).to_json())
    content = {media: {**one, **example} for media, one in _content(event).items()}
    return {
        "operationId": f"webhook_{name}",
        "summary": event_summary(event),
        "tags": ["webhooks"],
        "parameters": [_parameter("X-Webhook-Type", "header", {"type": "string", "const": name})],
        "requestBody": {"required": True, "content": content},
        "responses": {"2XX": {"description": "Accepted. Any other response is retried later."}},
        "security": [{header: [] for header in signature}],
    }
