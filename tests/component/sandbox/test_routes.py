"""Which operation an address leads to, and what it takes where nothing is sent."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from billhook.sandbox.sandbox import GROUPS
from support.sandbox import API_TOKEN, INVALID, NOT_FOUND, NOT_JSON, Running

PARAMETER = re.compile(r"\{[A-Za-z]+\}")


def test_every_address_leads_to_its_own_operation_and_to_no_other(sandbox: Running) -> None:
    """A name of another system may hold slashes: it could look like another address."""
    operations = [operation for group in GROUPS for operation in group.operations]
    routes = sandbox.sandbox.app().url_map.bind("sandbox")
    found = [
        routes.match(PARAMETER.sub("x", one.path), one.method, return_rule=True)[0].rule for one in operations
    ]

    assert [re.sub(r"<(?:[a-z]+:)?([A-Za-z]+)>", r"{\1}", rule) for rule in found] == [
        one.path for one in operations
    ]


def test_an_address_with_a_slash_too_many_is_not_sent_on_to_another(sandbox: Running) -> None:
    """Who deletes "/a" means no contract named "a". Source: spec, "Errors", resource_not_found."""
    answers = [
        sandbox.call(method, path).error()
        for method, path in (
            ("DELETE", "/contracts//a"),
            ("POST", "/_sandbox//contracts/a/activate"),
            ("POST", "/_sandbox/contracts//a/activate"),
        )
    ]

    assert set(answers) == {NOT_FOUND}


def test_no_body_is_an_empty_one_where_an_operation_of_the_sandboxs_own_needs_no_field(
    sandbox: Running,
) -> None:
    bare = sandbox.call("POST", "/_sandbox/trigger/PingTest")
    form = "application/x-www-form-urlencoded"  # as curl names it with -d ""
    empty = sandbox.call("POST", "/_sandbox/trigger/PingTest", b"", Content_Type=form)
    flushed = sandbox.call("POST", "/_sandbox/flush")
    ruled = sandbox.call("POST", "/_sandbox/clock")
    raised = sandbox.raised("PingTest")

    assert [answer.status for answer in (bare, empty, flushed)] == [200, 200, 200]
    assert raised == [("PingTest", {})] * 2
    assert (ruled.error(), ruled.json["param"]) == (
        INVALID,
        "advance",
    )


def test_a_body_that_is_sent_is_json_and_one_that_is_needed_is_sent(sandbox: Running) -> None:
    """The specification's own interface is strict, whatever its models require."""
    customer = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme"})["customer"]["id"]
    answers = {
        "no JSON": sandbox.call("POST", "/_sandbox/trigger/PingTest", b"{}", Content_Type="text/plain"),
        "a field is required": sandbox.call("POST", "/_sandbox/faults"),
        "the specification's": sandbox.call("PUT", f"/customers/{customer}"),
    }

    assert {what: answer.error() for what, answer in answers.items()} == dict.fromkeys(answers, NOT_JSON)


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "deflate", "gzip, identity", "x"])
def test_a_compressed_body_is_refused_by_its_name_and_never_read_as_json(
    sandbox: Running, encoding: str
) -> None:
    bodies = {
        ("POST", "/login"): {"refreshToken": API_TOKEN},
        ("POST", "/catalogProducts"): {"name": "API calls"},
        ("PUT", "/events"): {"events": []},
        ("POST", "/v2/events"): {"events": []},
        ("POST", "/_sandbox/flush"): {},
    }

    for (method, path), body in bodies.items():
        for raw in (gzip.compress(json.dumps(body).encode()), json.dumps(body).encode()):
            answer = sandbox.call(method, path, raw, Content_Encoding=encoding)
            assert answer.error() == (415, "invalid_request_error", "unsupported_content_encoding"), path
            assert "Content-Encoding" in answer.json["message"]
    assert sandbox.ok("GET", "/catalogProducts")["total"] == 0


@pytest.mark.parametrize("encoding", ["identity", " Identity ", ""])
def test_identity_is_no_encoding(sandbox: Running, encoding: str) -> None:
    answer = sandbox.call("POST", "/catalogProducts", {"name": "API calls"}, Content_Encoding=encoding)

    assert answer.status == 200
