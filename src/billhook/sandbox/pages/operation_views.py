"""Every operation as a form that is made from its models, beside the API call that does the same.

The buttons of other pages run operations as well: their forms have the fields hidden.


The reference of the API: the OpenAPI document as a page, with a link to the form of each operation."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from flask import Response, request, url_for
from werkzeug.exceptions import NotFound

from billhook.errors import SandboxError
from billhook.fields import strict_json
from billhook.printable import printable
from billhook.resources import READ_ONLY
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.openapi import document
from billhook.sandbox.operations import Operation
from billhook.sandbox.pages import forms
from billhook.sandbox.pages.context import (
    ROUTES,
    error_sentence,
    own_address,
    page_context,
    query_choice,
    redirect_to,
    render,
)
from billhook.sandbox.pages.forms import OTHER, FormField, as_text, make_fields, nest, read_fields, texts_of
from billhook.sandbox.pages.texts import first_sentence, options_for
from billhook.sandbox.storage.repository import to_document

OWN_FIELDS = frozenset({"add", "back", "csrf_token", "operation", "shape", "show"})
"""Fields of the form that are no part of the request. No operation has a field of these names."""
_DONE: Mapping[str, str] = {
    "DELETE /_sandbox/faults": "The fault is off.",
    "DELETE /_sandbox/subscriptions/{subscriptionId}": "The subscription is ended.",
    "POST /_sandbox/clock": "The clock is at {now}; jobs run: {steps}.",
    "POST /_sandbox/contracts/{contractId}/activate": "The contract is active.",
    "POST /_sandbox/credits/grant": "The credits are granted.",
    "POST /_sandbox/deliveries/{deliveryId}/resend": "The delivery is sent again, under the same id.",
    "POST /_sandbox/faults": "The fault {fault} is on.",
    "POST /_sandbox/flush": "Attempts that were due have been made.",
    "POST /_sandbox/invoices/{invoiceId}/approve": "The invoice is approved and sent.",
    "POST /_sandbox/invoices/{invoiceId}/payments": "Recorded: the invoice is {invoice[billingStatus]}.",
    "POST /_sandbox/invoices/{invoiceId}/send": "The invoice is sent once more.",
    "POST /_sandbox/subscriptions/{subscriptionId}/ping": "A PingTest is sent.",
    "POST /credits/top-up": "The invoice is issued: approve it, and the credits are granted.",
    "POST /_sandbox/trigger/{eventType}": "{eventType} is raised, and sent to its subscribers.",
    "POST /v2/events": "Events stored: {validEvents}.",
}
"""What to say once an operation is done, with fields of its answer; for others, its summary is said."""


@ROUTES.get("/call")
def call() -> Response:
    """Show the form of an operation: with the values of the address, of the resource, and of a shape."""
    operation = _asked()
    shape = query_choice("shape", forms.shapes_of(operation.key))
    given = [(name, text) for name, text in request.args.items() if name not in OWN_FIELDS]
    stored = _stored(operation, nest(given))
    with page_context().runner.reading() as tx:
        begun = forms.begin(tx, operation.key, shape, request.args.get("eventType", ""))
        texts = texts_of(make_fields(operation, {**begun, **stored}, lambda _: ()))
        fields = make_fields(operation, nest([*texts, *given]), options_for(tx))
    return _page(operation, fields, shape=shape)


@ROUTES.post("/call")
def run_call() -> Response:
    """Run an operation with the form's fields, and lead to what it made; or show the form again."""
    operation, runner = _asked(), page_context().runner
    given = [(name, text) for name, text in request.form.items() if name not in OWN_FIELDS]
    added: list[tuple[str, Any]] = [(f"{place}.new", {}) for place in request.form.getlist("add")]
    with runner.reading() as tx:
        fields = make_fields(operation, nest([*given, *added]), options_for(tx))
    if added or "show" in request.form:
        return _page(operation, fields)
    try:
        path, body = _request(operation, fields)
        if OTHER in body:
            raise invalid_request("the other fields are not a JSON object", OTHER)
        result = runner.run(operation.key, body, **path)
    except SandboxError as error:
        if "back" in request.form:
            return redirect_to(_back(), error_sentence(error), good=False)
        # Not a redirect: what was typed is shown again.
        return _page(operation, fields, error.status, problem=error_sentence(error))
    raw = b"{}" if result is None else result if isinstance(result, bytes) else result.to_response()
    document: Any = strict_json.loads(raw)
    if not (operation.writes or "back" in request.form) or document.get("invalidEvents"):
        return _page(operation, fields, result=as_text(document))
    # A moment for the deliveries, so that the next page usually shows their answers.
    runner.deliver()
    # Lists are told by their length.
    words = {name: len(value) if isinstance(value, list) else value for name, value in document.items()}
    done = _DONE.get(operation.key, "Done: {summary}.")
    told = done.format_map({"summary": _summary(operation), **path, **words})
    return redirect_to(_page_of(document) or _back(), told)


def _asked() -> Operation:
    """Return the operation that the address names; 404 without one, or if it deals with secrets."""
    operation = page_context().runner.operations.get(request.args.get("operation", ""))
    if operation is None or not is_offered(operation):
        raise NotFound("There is no form for such an operation.")
    return operation


def is_offered(operation: Operation) -> bool:
    """Return whether an operation has a form: none whose models hold a secret, kept out of `repr`."""
    models = [model for model in (operation.takes, operation.gives) if model is not None]
    return all(field.repr for model in models for field in model.model_fields.values())


def _stored(operation: Operation, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the present values of what a PUT changes, by the fields of its request; else nothing."""
    operations = page_context().runner.operations
    reads = [f"GET {prefix}{operation.path}" for prefix in ("", "/_sandbox")]
    key = next((one for one in reads if one in operations), None)
    path = {name: str(given.get(name, "")) for name in operation.path_names}
    if operation.method != "PUT" or operation.takes is None or key is None or not path:
        return {}
    [document] = to_document(page_context().runner.run(key, None, **path)).values()
    fields = operation.takes.model_fields.values()
    changeable = {field.alias for field in fields if READ_ONLY not in field.metadata}
    return {name: value for name, value in document.items() if name in changeable}


def _request(operation: Operation, fields: Sequence[FormField]) -> tuple[dict[str, str], Mapping[str, Any]]:
    """Return path and body of the request that a form makes.

    The body of a PUT has what its form changed, and null for what was emptied there.
    """
    path, body = _split(operation, read_fields(fields))
    stored = _stored(operation, path)
    if not stored:
        return path, body
    names = {name.partition(".")[0] for name in request.form or stored} & stored.keys()
    # Compared as shown: an invisible character in a text comes back from the browser as its escape.
    before = texts_of(make_fields(operation, stored, lambda _: ()))
    shown = {(place, printable(text, "\n\t")) for place, text in before if text}
    changed = {place.partition(".")[0] for place, _ in shown ^ {one for one in texts_of(fields) if one[1]}}
    kept = {name: value for name, value in body.items() if name in changed or name not in names}
    return path, {**dict.fromkeys(names & changed), **kept}


def _split(operation: Operation, values: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the parameters of the path, and the body or the query, whose values are texts."""
    path = {name: str(values.get(name, "")) for name in operation.path_names}
    body = {name: value for name, value in values.items() if name not in path}
    if isinstance(body.get(OTHER), dict):
        body = {**body.pop(OTHER), **body}
    return path, body if operation.has_body else {name: as_text(value) for name, value in body.items()}


def _page(
    operation: Operation,
    fields: Sequence[FormField],
    status: int = 200,
    *,
    shape: str | None = None,
    problem: str | None = None,
    result: str | None = None,
) -> Response:
    return render(
        "call.html",
        status,
        key=operation.key,
        summary=_summary(operation),
        back={"back": request.args["back"]} if "back" in request.args else {},
        fields=fields,
        shapes=forms.shapes_of(operation.key),
        shape=shape,
        problem=problem,
        result=result,
        command=_command(operation, *_request(operation, fields)),
        place={name: text for name, text in request.args.items() if name not in OWN_FIELDS},
    )


def _summary(operation: Operation) -> str:
    # What follows a colon or a semicolon are details.
    return re.split("[:;]", page_context().runner.summary(operation.key) or operation.key)[0]


def _page_of(document: Mapping[str, Any]) -> str | None:
    """Return the address of the page of what an operation has made or changed; None for others."""
    for view in ("customer", "contract", "invoice"):
        if made := document.get(view):
            return url_for(f".{view}", **{f"{view}_id": made["id"]})
    if raised := document.get("raisedId"):
        return url_for(".event", event_id=raised)
    return url_for(".invoice", invoice_id=document["invoiceId"]) if "invoiceId" in document else None


def _back() -> str:
    return own_address(request.form.get("back") or request.args.get("back", ""))


def commands(calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """Return the commands that run operations as buttons do: pairs of an operation's key and its values."""
    operations = page_context().runner.operations
    read = [
        (operations[key], read_fields(make_fields(operations[key], values, lambda _: ())))
        for key, values in calls
    ]
    return "\n".join(_command(operation, *_split(operation, values)) for operation, values in read)


def _command(operation: Operation, path: Mapping[str, str], body: Mapping[str, Any]) -> str:
    address = operation.path
    for name in operation.path_names:
        address = address.replace(f"{{{name}}}", quote(path[name] or name.upper(), safe=""))
    if body and not operation.has_body:
        address += f"?{urlencode(body)}"
    lines = [
        f"curl -X {operation.method} {shlex.quote(request.host_url.rstrip('/') + address)}",
        '-H "x-api-key: $BILLHOOK_API_CLIENT_ID" -H "Authorization: Bearer $ACCESS_TOKEN"',
    ]
    if operation.has_body:
        lines.append(
            f"-H 'Content-Type: application/json' -d {shlex.quote(strict_json.dumps(body).decode())}"
        )
    return " \\\n  ".join(lines)


Schema = Mapping[str, Any]


@ROUTES.get("/api")
def reference() -> Response:
    """Show all operations with their parameters, the webhooks, and the models of their bodies."""
    runner = page_context().runner
    described = document(runner.groups, runner.service.options.scheme)
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
        about={tag["name"]: tag["description"] for tag in described["tags"]},
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
