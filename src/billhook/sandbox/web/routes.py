"""Operations as routes, with their description for OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from flask import Response
from flask_openapi.blueprint import APIBlueprint
from pydantic import BaseModel, Field, create_model
from werkzeug.routing import BaseConverter

from billhook.resources import ErrorBody
from billhook.sandbox.web.description import SECURITY_SCHEMES
from billhook.sandbox.web.operation import Group, Operation

__all__ = ["Answering", "ForeignName", "blueprint"]

Answering = Callable[[Operation, dict[str, str]], Response]
"""Answers a request for an operation, with the values of its path."""

_PARAMETER = re.compile(r"\{([A-Za-z]+)\}")
# Their last parameter is another system's name for it, which may hold slashes. Ids of ours hold none, so that
# no other address of the same method looks like one.
_FOREIGN = (
    ("GET", "/contracts/{contractId}"),
    ("DELETE", "/contracts/{contractId}"),
    ("GET", "/_sandbox/contracts/{contractId}"),
    ("POST", "/_sandbox/contracts/{contractId}/activate"),
    ("GET", "/customers/integration/{integrationType}/{integrationId}"),
    ("GET", "/customers/products-consumptions/alias/{alias}"),
)
_ALWAYS = (400, 401, 429, 500)


class ForeignName(BaseConverter):
    """Any text, with slashes and line breaks; Flask's own `path` takes no slash as the first character."""

    part_isolating = False
    regex = "(?s:.+?)"
    weight = 200  # as `path` has it: ids of ours, which hold no slash, are tried before it


class Nothing(BaseModel):
    """An empty object."""


@cache  # describing the models takes most of a second, and is the same for every sandbox of a process
def blueprint(group: Group, answering: Answering) -> APIBlueprint:
    """The routes of a group; each request goes to `answering`."""
    name = (group.name or group.tag).replace(".", "-")
    made = APIBlueprint(name, __name__, abp_tags=[{"name": group.tag}])
    for operation in group.operations:
        _register(made, operation, answering)
    return made


def _register(made: APIBlueprint, operation: Operation, answering: Answering) -> None:
    names = _PARAMETER.findall(operation.path)
    rule = operation.path
    for name in names:
        kind = "foreign:" if (operation.method, operation.path) in _FOREIGN and name == names[-1] else ""
        rule = rule.replace(f"{{{name}}}", f"<{kind}{name}>")

    def view(**path: str) -> Response:
        return answering(operation, path)

    view.__name__ = operation.function.__name__
    view.__doc__ = operation.function.__doc__
    view.__annotations__ = _described(operation, names)
    # We read requests ourselves, strictly; the annotations are for the description alone.
    view.__delay_validate_request__ = True  # type: ignore[attr-defined]
    statuses = dict.fromkeys((*_ALWAYS, *operation.errors, *((404,) if names else ())), ErrorBody)
    responses: dict[int, Any] = {200: operation.gives or Nothing, **statuses}
    needed = ["clientId"] if operation.open else list(SECURITY_SCHEMES)
    security: list[dict[str, list[Any]]] = [{name: [] for name in needed}]
    method = operation.method.lower()
    operation_id = f"{made.name}_{view.__name__}"
    getattr(made, method)(rule, responses=responses, security=security, operation_id=operation_id)(view)
    if operation.has_body:  # flask-openapi takes every body for a required one
        getattr(made.paths[operation.path], method).requestBody.required = operation.needs_body


def _described(operation: Operation, names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if names:
        fields: dict[str, Any] = {name: (str, Field(min_length=1)) for name in names}
        found["path"] = create_model("Path", **fields)
    if operation.takes is not None:
        found["body" if operation.has_body else "query"] = operation.takes
    return found
