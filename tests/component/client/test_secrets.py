"""The client id and the tokens are in no log, no repr, no exception and no traceback."""

from __future__ import annotations

import html
import io
import json
import logging
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import httpx2
import pytest
from pydantic import SecretStr
from werkzeug import Response

from billhook.client import BillingClient, RetryPolicy
from billhook.client.responses import Redactor
from billhook.errors import BillhookError
from support.billing_service import (
    BROKEN,
    CLIENT_ID,
    LIMITED,
    REFRESH_TOKEN,
    REFUSED,
    Service,
    a_token,
    answered,
    cut,
    error,
    granted,
)
from support.timeouts import scaled

OPAQUE = "opaque-access-token-of-nobody"
HOUR = timedelta(hours=1)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """All that any logger says, with all that its records carry."""
    text = io.StringIO()

    class Everything(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"{super().format(record)} {vars(record)!r}"

    handler = logging.StreamHandler(text)
    handler.setFormatter(Everything())
    root, before = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(1)
    yield text
    root.setLevel(before)
    root.removeHandler(handler)


def shown(raised: BaseException) -> str:
    """All that a careless program prints of an exception: with its chain, its facts and every variable."""
    whole = traceback.TracebackException.from_exception(raised, capture_locals=True)
    parts = ["".join(whole.format()), repr(raised), repr(vars(raised))]
    chained = [each for each in (raised.__cause__, raised.__context__) if each is not None]
    return "\n".join([*parts, *(shown(each) for each in chained)])


def secrets(service: Service) -> list[str]:
    return [CLIENT_ID, REFRESH_TOKEN, OPAQUE, *service.tokens]


def leaked(service: Service, *texts: str) -> list[str]:
    return [secret for secret in secrets(service) for text in texts if secret in text]


def echo(status: int) -> Callable:
    """An error each field of which repeats the headers and the body of the request."""

    def answer(taken):
        sent = f"{taken.headers.get('Authorization')} {taken.headers['X-Api-Key']} {taken.body!r}"
        params = [{"param": sent, "message": sent}]
        return error(
            status, "invalid_request_error", sent, f"you sent {taken.headers}", param=sent, params=params
        )

    return answer


def echo_in_a_page(taken) -> Response:
    return Response(f"<pre>{taken.headers} {taken.body!r}", 500, content_type="text/html")


LOGIN = "POST /login"
PLAN = "GET /plans/p"
FAILURES = {
    "refused": (PLAN, REFUSED),
    "broken": (PLAN, BROKEN),
    "limited": (PLAN, LIMITED),
    "cut": (PLAN, cut),
    "a page": (PLAN, Response("<h1>", content_type="text/html")),
    "echoed": (PLAN, echo(400)),
    "echoed in a page": (PLAN, echo_in_a_page),
    "redirected": (PLAN, Response("", 302, {"Location": "http://127.0.0.1:1"})),
    "login refused": (LOGIN, REFUSED),
    "login cut": (LOGIN, cut),
    "login echoed": (LOGIN, echo(400)),
    "login echoed in a page": (LOGIN, echo_in_a_page),
    "login redirected": (LOGIN, Response("", 307, {"Location": "http://127.0.0.1:1"})),
    "login of another shape": (LOGIN, answered(200, {"accessToken": [OPAQUE], "expiresIn": OPAQUE})),
    "login without the rest": (LOGIN, answered(200, {"accessToken": OPAQUE})),
    "login by another name": (LOGIN, answered(200, {"access_token": OPAQUE})),
    "login as text": (LOGIN, Response(OPAQUE, content_type="text/plain")),
    "login with a bad token": (LOGIN, answered(200, granted(OPAQUE + "\n", HOUR, datetime.now(UTC)))),
}


def test_no_failure_shows_a_secret(service, client_of, log):
    for name, (line, answer) in FAILURES.items():
        client = client_of(service.url, retries=RetryPolicy(attempts=2))
        service.answer(line, answer, answer, answer)

        with pytest.raises(BillhookError) as caught:
            client.plans.get("p")

        assert log.getvalue()
        assert leaked(service, shown(caught.value), log.getvalue()) == [], name
        service.forget_answers()


def test_no_connection_that_fails_shows_a_secret(service, client_of, log):
    for url in ("http://127.0.0.1:1", "https://billing.invalid"):
        client = client_of(url, retries=RetryPolicy(attempts=2))

        with pytest.raises(BillhookError) as caught:
            client.plans.get("p")

        assert leaked(service, shown(caught.value), log.getvalue()) == []


def test_no_mistake_of_the_user_shows_a_secret(service, client_of, log):
    client = client_of(service.url)
    client.auth.login()

    for call in (
        lambda: client.plans.get("p" * 70_000),
        lambda: client.plans.get(".."),
        lambda: next(client.contracts.list(customer_id="\ud800")),
        lambda: client.contracts.create({}),
    ):
        with pytest.raises((ValueError, BillhookError)) as caught:
            call()
        assert leaked(service, shown(caught.value), log.getvalue()) == []
    client.close()
    with pytest.raises(BillhookError) as caught:
        client.plans.get("p")
    assert leaked(service, shown(caught.value)) == []


def test_an_error_of_the_client_constructor_shows_no_secret():
    given = {"id": SecretStr(CLIENT_ID), "token": SecretStr(REFRESH_TOKEN)}

    for url, options in (("ftp://x", {}), ("https://x", {"timeout_seconds": 0})):
        with pytest.raises(BillhookError) as caught:
            BillingClient(url, given["id"], given["token"], **options)
        text = shown(caught.value)
        assert CLIENT_ID not in text
        assert REFRESH_TOKEN not in text


def test_successful_calls_are_logged_without_secrets(service, client, log):
    service.always(PLAN, answered(200, {}))
    with pytest.raises(BillhookError):
        client.plans.get("p")
    client.auth.login()

    assert "POST" in log.getvalue()
    assert "httpcore2" in log.getvalue()  # the library's own debugging is on
    assert leaked(service, log.getvalue()) == []


def test_the_client_and_its_parts_show_no_secret(service, client):
    client.auth.login()
    parts: list[object] = [client]
    seen: set[int] = set()
    text = ""
    while parts:
        part = parts.pop()
        if id(part) not in seen and type(part).__module__.startswith("billhook"):
            seen.add(id(part))
            text += repr(part)
            inner = getattr(part, "__dict__", {})
            text += repr(inner)
            parts.extend(inner.values())

    assert len(seen) > 15
    assert leaked(service, text, str(client), repr(client)) == []


def test_control_the_http_library_alone_shows_the_secrets(service):
    def careless() -> None:
        token = OPAQUE
        headers = {"x-api-key": CLIENT_ID, "Authorization": f"Bearer {token}"}
        httpx2.get("http://127.0.0.1:1", headers=headers)

    with pytest.raises(httpx2.ConnectError) as caught:
        careless()

    assert set(leaked(service, shown(caught.value))) == {CLIENT_ID, OPAQUE}


def test_control_the_search_of_the_log_would_have_found_one(log):
    logging.getLogger("anybody").debug("with %s", CLIENT_ID)

    assert CLIENT_ID in log.getvalue()


# --- hiding -------------------------------------------------------------------------------------------


def test_secrets_are_redacted_anywhere_and_the_longest_first():
    redactor = Redactor(SecretStr("token-1"), SecretStr("token-1-and-more"))
    redactor.learn(SecretStr("passing-1"))

    assert redactor.clean("a token-1-and-more b token-1 passing-1", 100) == "a [hidden] b [hidden] [hidden]"


ODD = "to/ken+with&odd\"letters'\\=="
SPELLINGS = [
    ODD,
    json.dumps(ODD)[1:-1],
    json.dumps(ODD)[1:-1].replace("/", "\\/").replace("&", "\\u0026").replace("+", "\\u002B"),
    html.escape(ODD),
    "".join(each if each.isalnum() else f"&#{ord(each)};" for each in ODD),
    quote(ODD, safe=""),
    quote(ODD, safe="").replace("%2F", "%2f"),
]
"""As it is, in JSON, in JSON for pages, in a page, in a page by numbers, and in an address."""


def test_a_secret_is_redacted_in_every_encoding():
    pages = [f"<p>{spelling}</p>" for spelling in SPELLINGS]

    assert [Redactor(SecretStr(ODD)).clean(page, 200) for page in pages] == ["<p>[hidden]</p>"] * 7
    assert all("ken" in Redactor(SecretStr("another")).clean(page, 200) for page in pages)


def test_text_like_a_jwt_is_redacted_also_in_part():
    token = a_token(None)

    for part in (token, token[:-3], token.rpartition(".")[0]):
        assert Redactor().clean(f"Bearer {part}!", 100) == "Bearer [hidden]!"


def test_a_text_is_cut_after_its_secrets_are_hidden():
    redactor = Redactor(SecretStr("s" * 500))

    assert redactor.clean("s" * 500 + "abc", 10) == "[hidden]a…"


@pytest.mark.slow
def test_a_large_text_is_truncated_before_it_is_cleaned():
    page = "<p> \0" * 2_000_000

    started = time.process_time()
    text = Redactor().clean(page, 200)
    took = time.process_time() - started

    assert len(text) == 200
    assert took < scaled(0.5)  # letter by letter it takes a second and more


def test_a_short_secret_is_redacted_unless_it_may_be_a_word():
    is_hidden = {"a": False, "abc": False, "ab1": False, "ab12": True}
    is_hidden |= {"wrong": False, "letters": False, "eightlet": True}

    for secret, hidden in is_hidden.items():
        told = Redactor(SecretStr(secret)).clean(f"it: {secret}!", 100)
        assert told == ("it: [hidden]!" if hidden else f"it: {secret}!")


def test_a_login_that_is_not_read_shows_nothing_of_itself(service, client):
    body = granted(OPAQUE, HOUR, service.clock.now())
    service.answer(LOGIN, answered(200, {**body, "expiresAt": 7}))

    with pytest.raises(BillhookError, match=r"expiresAt: Input should be a valid string\)$"):
        client.auth.login()
