"""`BillingClient.request`: any path of the service, with the client's login, errors and retries."""

from __future__ import annotations

from decimal import Decimal

import pytest
from werkzeug import Response

from billhook.errors import (
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    ServiceUnavailable,
    UnexpectedResponse,
)
from support.billing_service import BROKEN, CLIENT_ID, LIMITED, answered, error


def test_a_request_is_authenticated_and_its_answer_decoded(service, client):
    service.answer("POST /refunds", answered(200, {"id": "ref_1"}))

    found = client.request("POST", "/refunds", {"invoiceId": "inv_1"})

    (taken,) = [each for each in service.taken if each.line == "POST /refunds"]
    assert found == {"id": "ref_1"}
    assert taken.json == {"invoiceId": "inv_1"}
    assert taken.headers["X-Api-Key"] == CLIENT_ID
    assert taken.headers["Content-Type"] == "application/json"
    assert service.logins == 1


def test_amounts_are_unchanged_in_request_and_response(service, client):
    service.answer("POST /refunds", Response(b'{"amount": 0.10}', 200, content_type="application/json"))

    found = client.request("POST", "/refunds", {"amount": Decimal("12.50")})

    assert service.taken[-1].body == b'{"amount":12.50}'
    assert str(found["amount"]) == "0.10"


def test_a_request_without_a_body_has_no_content_type(service, client):
    service.answer("DELETE /refunds/ref_1", Response(b"", 204))

    assert client.request("DELETE", "/refunds/ref_1") is None

    assert service.taken[-1].body == b""
    assert "Content-Type" not in service.taken[-1].headers


@pytest.mark.parametrize(
    ("path", "query", "target"),
    [
        ("/refunds", {"of": "a b&c"}, "/refunds?of=a%20b%26c"),
        ("/refunds?of=a%20b&state=failed", None, "/refunds?of=a%20b&state=failed"),
        ("/refunds/a%2Fb", None, "/refunds/a%2Fb"),
        ("/", None, "/"),
    ],
)
def test_path_and_query_arrive_as_they_were_given(service, client, path, query, target):
    service.instead = answered(200, [])

    assert client.request("GET", path, query=query) == []

    assert service.taken[-1].target.replace("+", "%20") == target


def test_the_path_is_below_the_base_address(service, client_of):
    service.answer("POST /api/login", service.log_in)
    service.answer("GET /api/refunds", answered(200, []))

    client_of(f"{service.url}/api/").request("GET", "/refunds")

    assert service.taken[-1].line == "GET /api/refunds"


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("https://evil.example/refunds", "must begin with one slash"),
        ("//evil.example/refunds", "must begin with one slash"),
        ("refunds", "must begin with one slash"),
        ("", "must begin with one slash"),
        ("/a b", "percent-encoded"),
        ("/a\r\nX-Api-Key: other", "percent-encoded"),
        ("/a#b", "percent-encoded"),
        ("/a\\b", "percent-encoded"),
        ("/ä", "percent-encoded"),
        ("/refunds/{id}", "percent-encoded"),
        ("/100%", "percent-encoded"),
        ("/a?b#c", "percent-encoded"),
        ("/refunds/../login", r"\. or \.\."),
        ("/refunds/%2e%2E/login", r"\. or \.\."),
        ("/./login", r"\. or \.\."),
    ],
)
def test_a_path_outside_the_base_address_is_refused_before_sending(service, client, path, wrong):
    with pytest.raises(ValueError, match=wrong):
        client.request("GET", path)

    assert service.taken == []


@pytest.mark.parametrize("method", ["get", "HEAD", "TRACE", "CONNECT", "GET /x HTTP/1.1\r\n", ""])
def test_an_unknown_method_is_refused_before_sending(service, client, method):
    with pytest.raises(ValueError, match="must be one of DELETE, GET, PATCH, POST, PUT"):
        client.request(method, "/refunds")

    assert service.taken == []


@pytest.mark.parametrize(
    ("body", "kind"), [({"when": object()}, TypeError), (float("nan"), ValueError), ("\ud800", ValueError)]
)
def test_a_body_without_a_json_form_is_refused_before_anything_is_sent(service, client, body, kind):
    with pytest.raises(kind):
        client.request("POST", "/refunds", body)

    assert service.taken == []


def test_a_query_is_given_once(service, client):
    with pytest.raises(ValueError, match="twice"):
        client.request("GET", "/refunds?a=1", query={"b": "2"})

    assert service.taken == []


def test_a_get_is_repeated(service, client):
    service.answer("GET /refunds", BROKEN, LIMITED, answered(200, []))

    assert client.request("GET", "/refunds") == []

    assert service.lines() == ["GET /refunds"] * 3


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(("answer", "raised"), [(BROKEN, InternalError), (LIMITED, RateLimitExceeded)])
def test_another_method_is_sent_once(service, client, method, answer, raised):
    service.instead = answer

    with pytest.raises(raised):
        client.request(method, "/refunds", {})

    assert service.lines() == [f"{method} /refunds"]


def test_an_access_token_that_is_refused_is_renewed_once(service, client):
    service.instead = answered(200, [])
    client.request("POST", "/refunds")
    service.revoke()

    client.request("POST", "/refunds")

    assert service.logins == 2
    assert service.lines() == ["POST /refunds"] * 3


def test_an_error_names_the_path_without_its_query(service, client):
    service.instead = error(400, "invalid_request_error", "invalid", "no such state", param="state")

    with pytest.raises(InvalidRequest) as caught:
        client.request("GET", "/refunds?state=lost&customer=cus_1")

    assert caught.value.operation == "GET /refunds"
    assert (caught.value.status, caught.value.param) == (400, "state")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Response("<title>a page</title>", 200, content_type="text/html"), "content type"),
        (Response('{"a":1,"a":2}', 200, content_type="application/json"), "same key twice"),
    ],
)
def test_an_answer_that_is_not_json_is_unexpected(service, client, answer, problem):
    service.instead = answer

    with pytest.raises(UnexpectedResponse, match=problem):
        client.request("GET", "/page")


def test_a_service_that_cannot_be_reached_raises_as_in_other_calls(client_of):
    with pytest.raises(ServiceUnavailable, match="POST /login"):
        client_of("http://127.0.0.1:1").request("GET", "/refunds")
