"""RequestHeaders: a WSGI environ and an ASGI scope give the same headers."""

import json

import pytest

from billhook.receiver.delivery_rules import RequestHeaders

ENVIRON = {
    "REQUEST_METHOD": "POST",
    "CONTENT_TYPE": "application/json",
    "CONTENT_LENGTH": "2",
    "HTTP_X_WEBHOOK_TYPE": "PingTest",
    "HTTP_X_SIGNATURE": "caf\xe9",
    "HTTP_AUTHORIZATION": "Bearer canary",
    "wsgi.url_scheme": "http",
}
SCOPE_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"2"),
    (b"X-Webhook-Type", b"PingTest"),
    (b"x-signature", b"caf\xe9"),
    (b"authorization", b"Bearer canary"),
]
SOURCES = {
    "environ": lambda: RequestHeaders.from_environ(ENVIRON),
    "scope": lambda: RequestHeaders.from_asgi(SCOPE_HEADERS),
}


@pytest.fixture(params=SOURCES, name="headers")
def fixture_headers(request):
    return SOURCES[request.param]()


@pytest.mark.parametrize("name", ["X-Signature", "x-signature", "X_Signature", "x_signature"])
def test_a_header_is_found_by_any_spelling_of_its_name(headers, name):
    assert headers.get(name) == "caf\xe9"


def test_a_missing_header_gives_the_default(headers):
    assert headers.get("X-Other") is None
    assert headers.get("X_Other", "absent") == "absent"


def test_what_is_no_header_is_not_found(headers):
    assert headers.get("wsgi.url_scheme") is None
    assert headers.get("request-method") is None


def test_stored_headers_are_in_cgi_spelling_and_hold_no_credential(headers):
    assert json.loads(headers.stored()) == {
        "CONTENT_TYPE": "application/json",
        "X_WEBHOOK_TYPE": "PingTest",
        "X_SIGNATURE": "caf\xe9",
    }


def test_lines_of_one_name_are_joined_as_a_wsgi_server_joins_them():
    headers = RequestHeaders.from_asgi([(b"x-signature", b"a"), (b"X-Signature", b"b")])
    assert headers.get("X-Signature") == "a,b"


@pytest.mark.parametrize("first", ["x-webhook-type", "x_webhook_type"])
def test_an_underscore_does_not_take_the_place_of_a_dash(first):
    second = {"x-webhook-type": "x_webhook_type", "x_webhook_type": "x-webhook-type"}[first]
    headers = RequestHeaders.from_asgi([(name.encode(), name.encode()) for name in (first, second)])
    assert headers.get("X-Webhook-Type") == "x-webhook-type"
    assert headers.get("x_webhook_type") == "x_webhook_type"
    assert json.loads(headers.stored()) == {"X_WEBHOOK_TYPE": "x-webhook-type"}


def test_no_header_with_a_credentials_name_is_stored():
    credentials = [
        "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-API-Key", "APIKey",
        "X-Amz-Security-Token", "X-CSRF-Token", "X-Auth-Request-Email", "X-Shared-Secret", "X-DB-Password",
        "CF-Access-JWT-Assertion", "X-AWS-Access-Key-Id", "X-Session-Id", "X-Credential", "X-Passwd",
        "Ocp-Apim-Subscription-Key", "X-Functions-Key", "X-Master-Key", "X-Signing-Key",
        "X-MS-Client-Principal", "X-Gitlab-Pat", "X-Forwarded-Client-Cert", "X-ARR-ClientCert",
        "X-Amzn-Oidc-Data", "X-Key", "X-DB-Pwd",
    ]  # fmt: skip
    others = ["Webhook-Signature", "X-Webhook-Signature", "X-Key-Id", "X-Webhook-Type", "User-Agent",
              "Idempotency-Key", "X-Pattern", "X-Keyword", "X-Ping"]  # fmt: skip

    headers = RequestHeaders.from_asgi([(name.encode(), b"canary") for name in (*credentials, *others)])

    assert set(json.loads(headers.stored())) == {name.upper().replace("-", "_") for name in others}
