"""The client's table of operations against the spec's text, and the spec's words about them.

Source: spec, "Endpoints". The file itself is not part of this repository: BILLHOOK_SPEC names it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

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

ENDPOINT = re.compile(r"\b(GET|PUT|POST|DELETE|PATCH) (/[A-Za-z0-9/{}-]+)")
RAISED = {
    "a string code": InvalidRequest,
    "resource_not_found": ResourceNotFound,
    "request_too_large": RequestTooLarge,
    "authentication_failed": AuthenticationFailed,
    "rate_limit_exceeded": RateLimitExceeded,
    "internal_error": InternalError,
}


@pytest.fixture
def spec() -> str:
    path = os.environ.get("BILLHOOK_SPEC")
    if not path:
        pytest.skip("BILLHOOK_SPEC does not name the spec's file")
    return Path(path).read_text(encoding="utf-8")


def chapter(spec: str, title: str) -> str:
    return spec.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def endpoints(spec: str) -> set[str]:
    """`METHOD /path` for each operation that the spec's chapter on endpoints names."""
    return {" ".join(found) for found in ENDPOINT.findall(chapter(spec, "Endpoints"))}


def codes(spec: str) -> list[str]:
    """The codes of the spec's table of errors."""
    rows = re.findall(r"^\| (\w+_error) \| ([\w ]+) \|", chapter(spec, "Errors"), re.MULTILINE)
    return [code for _, code in rows]


def test_the_table_of_operations_equals_the_specs(spec: str):
    assert endpoints(spec) == {operation.name for operation in OPERATIONS.values()}
    assert len(endpoints(spec)) == 28


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("**POST /measurements**", "**PUT /measurements**"),
        ("**GET /plans/{planId}**", "**GET /plans/{id}**"),
        ("| Update | PUT /catalogProducts/{catalogProductId} |", "| Update | none |"),
        ("**POST /webhook** subscribes", "**POST /webhook** and **GET /webhook** subscribe"),
    ],
)
def test_control_an_altered_spec_is_noticed(spec: str, old: str, new: str):
    assert spec.count(old) == 1

    altered = spec.replace(old, new)

    assert endpoints(altered) != {operation.name for operation in OPERATIONS.values()}


def test_every_row_of_the_errors_has_an_exception(spec: str):
    assert codes(spec) == list(RAISED)
    assert len(set(RAISED.values())) == len(RAISED)


def test_the_tokens_lifetime_is_that_of_the_spec(spec: str):
    assert "The access token expires after one hour." in spec
    assert LIFETIME.total_seconds() == 3_600
