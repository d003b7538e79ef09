"""Every operation as a form that is made from its models, beside the API call that does the same; their list.

The buttons of other pages run operations as well: their forms have the fields hidden.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from flask import Response, request, url_for
from werkzeug.exceptions import NotFound

from billhook.errors import SandboxError
from billhook.fields import strict_json
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.operations import Operation
from billhook.sandbox.pages import forms
from billhook.sandbox.pages.context import error_sentence, own_address, route, site
from billhook.sandbox.pages.forms import OTHER, FormField, as_text, make_fields, nest, read_fields
from billhook.sandbox.pages.texts import options_for

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


@route("/call")
def call() -> Response:
    """Show the form of an operation, with an example and the values of the address."""
    operation = _asked()
    given = [(name, text) for name, text in request.args.items() if name not in OWN_FIELDS]
    with site.reading() as tx:
        begun = forms.begin(tx, operation.key, request.args.get("eventType", ""))
        fields = make_fields(operation, nest(given, begun), options_for(tx))
    return _page(operation, fields)


@route("/call", "POST")
def run_call() -> Response:
    """Run an operation with the form's fields, and lead to what it made; or show the form again."""
    operation = _asked()
    given = [(name, text) for name, text in request.form.items() if name not in OWN_FIELDS]
    added: list[tuple[str, Any]] = [(f"{place}.new", {}) for place in request.form.getlist("add")]
    with site.reading() as tx:
        fields = make_fields(operation, nest([*given, *added]), options_for(tx))
    if added or "show" in request.form:
        return _page(operation, fields)
    try:
        path, body = _split(operation, read_fields(fields))
        if OTHER in body:
            raise invalid_request("the other fields are not a JSON object", OTHER)
        result = site.run(operation.key, body, **path)
    except SandboxError as error:
        if "back" in request.form:
            return site.redirect_to(_back(), error_sentence(error), good=False)
        # Not a redirect: what was typed is shown again.
        return _page(operation, fields, error.status, problem=error_sentence(error))
    raw = b"{}" if result is None else result if isinstance(result, bytes) else result.to_response()
    document: Any = strict_json.loads(raw)
    if not (operation.writes or "back" in request.form) or document.get("invalidEvents"):
        return _page(operation, fields, result=as_text(document))
    # A moment for the deliveries, so that the next page usually shows their answers.
    site.deliver()
    # Lists are told by their length.
    words = {name: len(value) if isinstance(value, list) else value for name, value in document.items()}
    done = _DONE.get(operation.key, "Done: {summary}.")
    told = done.format_map({"summary": _summary(operation), **path, **words})
    return site.redirect_to(_page_of(document) or _back(), told)


def _asked() -> Operation:
    """Return the operation that the address names; 404 without one, or if it deals with secrets."""
    operation = site.operations.get(request.args.get("operation", ""))
    if operation is None or not is_offered(operation):
        raise NotFound("There is no form for such an operation.")
    return operation


def is_offered(operation: Operation) -> bool:
    """Return whether an operation has a form: none whose models hold a secret, kept out of `repr`."""
    models = [model for model in (operation.takes, operation.gives) if model is not None]
    return all(field.repr for model in models for field in model.model_fields.values())


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
    problem: str | None = None,
    result: str | None = None,
) -> Response:
    return site.render(
        "call.html",
        status,
        key=operation.key,
        summary=_summary(operation),
        back={"back": request.args["back"]} if "back" in request.args else {},
        fields=fields,
        problem=problem,
        result=result,
        command=_command(operation, *_split(operation, read_fields(fields))),
        place={name: text for name, text in request.args.items() if name not in OWN_FIELDS},
    )


def _summary(operation: Operation) -> str:
    return site.summary(operation.key) or operation.key


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
    operations = site.operations
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


@route("/api")
def reference() -> Response:
    """List the operations that have the words in the URL, or all, each with a link to its form."""
    find = request.args.get("find", "").strip()[:100]
    words = find.lower().split()
    shown = []
    for group in site.groups:
        every = [(one, _summary(one), is_offered(one)) for one in group.operations]
        found = [
            each
            for each in every
            if all(word in f"{each[0].key} {each[1]} {group.tag}".lower() for word in words)
        ]
        if found:
            shown.append((group, found))
    return site.render("reference.html", groups=shown, find=find)
