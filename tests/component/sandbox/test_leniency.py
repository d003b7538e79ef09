"""What the specification says in passing: read-only fields, borders, dates that are texts, tags, sizes."""

from __future__ import annotations

import json
from typing import Any

from support.sandbox import Running, check_refused


def test_read_only_fields_are_ignored_with_any_content(sandbox: Running) -> None:
    """Source: spec, Customer, customFieldValues: "ignored on create and update"."""
    for name in ("customFieldValues", "totalOutstandingAmount", "openAmount", "paidAmount"):
        made = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme", name: "x"})["customer"]
        changed = sandbox.ok("PUT", f"/customers/{made['id']}", {"name": "Acme Ltd", name: {"x": 1}})
        wrong = sandbox.call("PUT", f"/customers/{made['id']}", {"name": 5, name: "x"})

        assert changed["customer"]["name"] == "Acme Ltd"
        assert changed["customer"][name] == made[name], name
        assert (wrong.status, wrong.json["param"]) == (400, "name")


def padded(body: dict[str, Any], size: int) -> bytes:
    """`body` as JSON, with so much space that it has `size` bytes."""
    text = json.dumps(body).encode()
    return text + b" " * (size - len(text))


def test_a_body_beyond_what_an_operation_needs_is_refused_unread(sandbox: Running) -> None:
    for path, body, most in (
        ("/login", {"refreshToken": "wrong-token"}, 16 * 1024),
        ("/catalogProducts", {"name": "API calls"}, 1024 * 1024),
        ("/_sandbox/customers", {"name": "Acme"}, 1024 * 1024),
    ):
        fits = sandbox.call("POST", path, padded(body, most))
        beyond = sandbox.call("POST", path, padded(body, most + 1))

        assert fits.status in (200, 401), path
        assert beyond.error() == (413, "invalid_request_error", "request_too_large"), path
        assert beyond.json["message"] == f"the body is longer than the limit of {most} bytes"


EXISTS = {"property": "a", "operator": "exists"}
METER = {"name": "m", "eventName": "m", "aggregationMethod": "count"}
TOO_MANY: list[tuple[str, dict[str, Any], str]] = [
    ("customers", {"aliases": [f"a{n}" for n in range(101)]}, "aliases"),
    (
        "customers",
        {"externalIntegration": [{"type": "T", "id": f"{n}"} for n in range(101)]},
        "externalIntegration",
    ),
    ("meters", {**METER, "filters": [EXISTS] * 101}, "filters"),
    (
        "meters",
        {**METER, "filters": [{**EXISTS, "operator": "in", "value": [*range(101)]}]},
        "filters.0.value",
    ),
    ("plans", {"products": [{}] * 1001}, "products"),
]


def test_a_list_beyond_its_limit_is_refused(sandbox: Running) -> None:
    answers = [sandbox.call("POST", f"/_sandbox/{kind}", {"name": "A", **body}) for kind, body, _ in TOO_MANY]

    check_refused(answers, [param for *_, param in TOO_MANY])
