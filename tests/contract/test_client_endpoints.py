"""The client's table of operations against the spec's text, and the spec's words about them.

Source: spec, "Endpoints". The file itself is not part of this repository: BILLHOOK_SPEC names it.
"""

from __future__ import annotations

import re

from billhook.client import OPERATIONS
from billhook.client.session import LIFETIME
from billhook.errors import (
    AuthenticationFailed,
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    RequestTooLarge,
    ResourceNotFound,
)
from support.specification import read_specification, unnoticed

ENDPOINT = re.compile(r"\b(GET|PUT|POST|DELETE|PATCH) (/[A-Za-z0-9/{}-]+)")
RAISED = {
    "a string code": InvalidRequest,
    "resource_not_found": ResourceNotFound,
    "request_too_large": RequestTooLarge,
    "authentication_failed": AuthenticationFailed,
    "rate_limit_exceeded": RateLimitExceeded,
    "internal_error": InternalError,
}


def chapter(spec: str, title: str) -> str:
    return spec.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def endpoints(spec: str) -> set[str]:
    """`METHOD /path` for each operation that the spec's chapter on endpoints names."""
    return {" ".join(found) for found in ENDPOINT.findall(chapter(spec, "Endpoints"))}


def codes(spec: str) -> list[str]:
    """The codes of the spec's table of errors."""
    rows = re.findall(r"^\| (\w+_error) \| ([\w ]+) \|", chapter(spec, "Errors"), re.MULTILINE)
    return [code for _, code in rows]


def test_the_operations_errors_and_the_tokens_lifetime_equal_the_specs():
    spec = read_specification()

    assert endpoints(spec) == {operation.name for operation in OPERATIONS.values()}
    assert len(endpoints(spec)) == 28
    assert codes(spec) == list(RAISED)
    assert len(set(RAISED.values())) == len(RAISED)
    assert "The access token expires after one hour." in spec
    assert LIFETIME.total_seconds() == 3_600
    # The control: an altered specification would be noticed.
    altered = [
        ("**POST /measurements**", "**PUT /measurements**"),
        ("**GET /plans/{planId}**", "**GET /plans/{id}**"),
        ("| Update | PUT /catalogProducts/{catalogProductId} |", "| Update | none |"),
        ("**POST /webhook** subscribes", "**POST /webhook** and **GET /webhook** subscribe"),
    ]
    assert unnoticed(spec, altered, endpoints) == []
