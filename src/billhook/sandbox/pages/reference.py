"""The reference of the API: the OpenAPI document as a page, with a link to the form of each operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flask import Response

from billhook.sandbox.http.openapi import document
from billhook.sandbox.pages.context import RouteTable, page_context, render
from billhook.sandbox.pages.operation_views import is_offered
from billhook.sandbox.pages.texts import first_sentence

ROUTES = RouteTable()
Schema = Mapping[str, Any]


@ROUTES.get("/api")
def reference() -> Response:
    """Show all operations with their parameters, the webhooks, and the models of their bodies."""
    runner = page_context().runner
    described = document(runner.groups, tuple(runner.service.options.scheme.headers))
    groups: dict[str, list[dict[str, Any]]] = {tag["name"]: [] for tag in described["tags"]}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            key = f"{method.upper()} {path}"
            shown = {**operation, "key": key, "takes": _body(operation.get("requestBody", {}))}
            shown["gives"] = _body(operation["responses"]["200"])
            shown["rows"] = [
                {**one, "text": one.get("description", "")} for one in operation.get("parameters", ())
            ]
            shown["has_form"] = is_offered(runner.operations[key])
            groups[operation["tags"][0]].append(shown)
    models = described["components"]["schemas"]
    return render(
        "reference.html",
        groups=groups,
        webhooks={name: one["post"] for name, one in described["webhooks"].items()},
        models={name: list(_rows(models[name])) for name in sorted(models)},
        descriptions={name: first_sentence(one.get("description", "")) for name, one in models.items()},
        type_of=_type_of,
    )


def _body(part: Schema) -> str | None:
    """Return the name of the model of a request or response; None without one."""
    schema = part.get("content", {}).get("application/json", {}).get("schema", {})
    return schema["$ref"].rpartition("/")[2] if "$ref" in schema else None


def _rows(schema: Schema) -> Iterator[dict[str, Any]]:
    """Yield the fields of a model; one without any is an enumeration, whose values are its only row."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield {
            "name": name,
            "required": name in required,
            "text": field.get("description", ""),
            "schema": field,
        }
    if "enum" in schema:
        yield {"name": "", "required": False, "text": "One of these words.", "schema": schema}


def _type_of(schema: Schema) -> list[tuple[str, str | None]]:
    """Return the type of a field as words, each with the name of the model that it links to, if any."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return [(name, name)]
    if choices := schema.get("anyOf") or schema.get("allOf"):
        found = [_type_of(one) for one in choices]
        return [word for n, words in enumerate(found) for word in ([(" or ", None)] * bool(n) + words)]
    if "enum" in schema:
        return [(", ".join(map(str, schema["enum"])), None)]
    if schema.get("type") == "array":
        return [("list of ", None), *_type_of(schema.get("items", {}))]
    return [(str(schema.get("format") or schema.get("const") or schema.get("type", "any value")), None)]
