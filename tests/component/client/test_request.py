"""`BillingClient.request`: any path of the service, with the client's login, errors and retries."""

from __future__ import annotations

from decimal import Decimal

import pytest
from werkzeug import Response

from billhook.errors import (
    InternalError,
    InvalidRequest,
    UnexpectedResponse,
)
from support.billing_service import BROKEN, CLIENT_ID, LIMITED, answered, error


def test_a_request_is_authenticated_and_amounts_are_unchanged_both_ways(service, client):
    service.answer("POST /refunds", Response(b'{"amount": 0.10}', 200, content_type="application/json"))

    found = client.request("POST", "/refunds", {"amount": Decimal("12.50")})

    taken = service.taken[-1]
    assert str(found["amount"]) == "0.10"
    assert (taken.line, taken.body) == ("POST /refunds", b'{"amount":12.50}')
    assert taken.headers["X-Api-Key"] == CLIENT_ID
    assert taken.headers["Content-Type"] == "application/json"
    assert service.logins == 1


def test_a_request_without_a_body_has_no_content_type(service, client):
    service.answer("DELETE /refunds/ref_1", Response(b"", 204))

    assert client.request("DELETE", "/refunds/ref_1") is None

    assert service.taken[-1].body == b""
    assert "Content-Type" not in service.taken[-1].headers


def test_path_and_query_arrive_as_they_were_given(service, client):
    service.instead = answered(200, [])

    for path, query, target in (
        ("/refunds", {"of": "a b&c"}, "/refunds?of=a%20b%26c"),
        ("/refunds?of=a%20b&state=failed", None, "/refunds?of=a%20b&state=failed"),
        ("/refunds/a%2Fb", None, "/refunds/a%2Fb"),
        ("/", None, "/"),
    ):
        assert client.request("GET", path, query=query) == []
        assert service.taken[-1].target.replace("+", "%20") == target


REFUSED_PATHS = {
    "must begin with one slash": ["https://evil.example/refunds", "//evil.example/refunds", "refunds", ""],
    "percent-encoded": [
        "/a b", "/a\r\nX-Api-Key: other", "/a#b", "/a\\b", "/ä", "/refunds/{id}", "/100%", "/a?b#c",
    ],
    r"\. or \.\.": ["/refunds/../login", "/refunds/%2e%2E/login", "/./login"],
}  # fmt: skip


def test_what_cannot_be_a_request_is_refused_before_anything_is_sent(service, client):
    for wrong, paths in REFUSED_PATHS.items():
        for path in paths:
            with pytest.raises(ValueError, match=wrong):
                client.request("GET", path)
    for method in ("get", "HEAD", "TRACE", "CONNECT", "GET /x HTTP/1.1\r\n", ""):
        with pytest.raises(ValueError, match="must be one of DELETE, GET, PATCH, POST, PUT"):
            client.request(method, "/refunds")
    for body in ({"when": object()}, float("nan"), "\ud800"):
        with pytest.raises((TypeError, ValueError)):
            client.request("POST", "/refunds", body)
    with pytest.raises(ValueError, match="twice"):
        client.request("GET", "/refunds?a=1", query={"b": "2"})

    assert service.taken == []


def test_a_get_is_repeated_and_another_method_is_sent_once(service, client):
    service.answer("GET /refunds", BROKEN, LIMITED, answered(200, []))
    assert client.request("GET", "/refunds") == []
    service.instead = BROKEN
    methods = ["POST", "PUT", "PATCH", "DELETE"]
    for method in methods:
        with pytest.raises(InternalError):
            client.request(method, "/refunds", {})

    assert service.lines() == ["GET /refunds"] * 3 + [f"{method} /refunds" for method in methods]


def test_an_error_names_the_path_without_its_query(service, client):
    service.instead = error(400, "invalid_request_error", "invalid", "no such state", param="state")

    with pytest.raises(InvalidRequest) as caught:
        client.request("GET", "/refunds?state=lost&customer=cus_1")

    assert caught.value.operation == "GET /refunds"
    assert (caught.value.status, caught.value.param) == (400, "state")


def test_an_answer_that_is_not_json_is_unexpected(service, client):
    service.instead = Response('{"a":1,"a":2}', 200, content_type="application/json")

    with pytest.raises(UnexpectedResponse, match="same key twice"):
        client.request("GET", "/page")
