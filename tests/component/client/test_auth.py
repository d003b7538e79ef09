"""Logging in: when it is needed, once for all threads, again before the token ends and when it is refused."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pydantic import SecretStr
from werkzeug import Response

from billhook.client import BillingClient, RetryPolicy
from billhook.client.retries import CallDeadline
from billhook.client.session import TokenProvider, access_token
from billhook.errors import AuthenticationFailed, InternalError, ServiceUnavailable, UnexpectedResponse
from support.billing_service import (
    A_PLAN,
    BROKEN,
    CLIENT_ID,
    LIMITED,
    REFRESH_TOKEN,
    REFUSED,
    a_token,
    answered,
    error,
    granted,
    threads_in,
    when,
)
from support.processes import together

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _plan(service):
    service.always("GET /plans/p", A_PLAN)


def test_every_request_has_the_client_id_and_all_but_the_login_have_the_token(service, client):
    client.plans.get("p")

    login, call = service.taken
    (token,) = service.tokens
    assert [taken.headers["X-Api-Key"] for taken in (login, call)] == [CLIENT_ID, CLIENT_ID]
    assert "Authorization" not in login.headers
    assert call.headers["Authorization"] == f"Bearer {token}"
    assert login.json == {"refreshToken": REFRESH_TOKEN}


def test_the_token_is_renewed_before_it_ends(service, client, moving):
    client.plans.get("p")

    moving.clock.advance(seconds=3_600 - 61)
    client.plans.get("p")
    before = service.logins
    moving.clock.advance(seconds=2)
    client.plans.get("p")

    assert (before, service.logins) == (1, 2)
    assert len(service.lines()) == 3  # and not one of them was refused


def test_a_short_token_is_renewed_in_time_and_not_at_every_call(service, client, moving):
    service.lifetime = timedelta(seconds=30)

    for _ in range(10):
        client.plans.get("p")
        moving.clock.advance(seconds=6)

    assert len(service.lines()) == 10
    assert service.logins == 2


def test_a_refused_token_is_renewed_once_and_any_call_made_again(service, client):
    client.plans.get("p")
    service.answer("POST /credits/deduct", answered(200, {}))

    service.revoke()
    client.plans.get("p")
    service.revoke()
    client.credits.deduct("cus_1", 5)  # a creation too: nothing was done

    assert service.logins == 3
    assert service.lines()[1:] == ["GET /plans/p"] * 2 + ["POST /credits/deduct"] * 2


def test_a_token_that_is_refused_even_when_new_is_not_renewed_for_ever(service, client):
    service.answer("GET /plans/p", REFUSED, REFUSED)

    with pytest.raises(AuthenticationFailed, match=r"^GET /plans/\{planId\}: the service answered 401"):
        client.plans.get("p")

    assert (service.logins, len(service.lines())) == (2, 2)


def test_a_gateways_own_401_and_an_authentication_error_with_any_status_log_in_again(service, client):
    page = Response("<h1>Unauthorized</h1>", 401, content_type="text/html")
    for answer in (page, error(403, "authentication_error", "authentication_failed")):
        service.answer("GET /plans/p", answer)
        assert client.plans.get("p").id == "p"

    assert service.logins == 3


def test_a_wrong_refresh_token_raises_after_one_attempt(service):
    with (
        BillingClient(service.url, CLIENT_ID, "not-the-one") as client,
        pytest.raises(AuthenticationFailed, match=r"^POST /login: the service answered 401") as caught,
    ):
        client.plans.get("p")

    assert (caught.value.status, caught.value.operation) == (401, "POST /login")
    assert service.lines(logins=True) == ["POST /login"]


def test_a_login_is_retried_by_its_own_policy_only(service, client_of):
    client = client_of(service.url, retries=RetryPolicy(attempts=3))
    service.answer("POST /login", LIMITED, BROKEN)
    client.plans.get("p")
    first = service.logins

    service.revoke()
    service.answer("POST /login", *[BROKEN] * 10)
    with pytest.raises(InternalError, match=r"^POST /login"):
        client.plans.get("p")

    assert (first, service.logins) == (3, 6)


# --- threads --------------------------------------------------------------------------------------


def test_any_number_of_threads_log_in_once_and_renew_a_refused_token_once(service, client):
    for _ in range(2):
        service.answer("POST /login", when(lambda: threads_in("renew") == 24, service.log_in))
        assert together(24, lambda _: client.plans.get("p").id) == ["p"] * 24
        service.revoke()

    assert service.logins == 2


def test_threads_that_wait_for_a_login_share_its_failure(service, client):
    service.answer("POST /login", when(lambda: threads_in("renew") == 12, REFUSED))

    results = together(12, lambda _: client.plans.get("p").id)

    assert {type(result) for result in results} == {AuthenticationFailed}
    assert service.lines(logins=True) == ["POST /login"]
    assert client.plans.get("p").id == "p"  # the next call tries again


def test_a_thread_does_not_wait_for_anothers_login_for_ever(moving):
    begun, done = threading.Event(), threading.Event()

    def fetch(budget: CallDeadline):
        begun.set()
        done.wait(30)
        return access_token(SecretStr("the-token"), None, moving.clock.now())

    login = TokenProvider(fetch, moving.clock)
    first = threading.Thread(target=login.valid_token, args=(CallDeadline(moving.clock, 60),))
    first.start()
    begun.wait(30)
    try:
        with pytest.raises(ServiceUnavailable, match="the login of another thread takes too long"):
            login.valid_token(CallDeadline(moving.clock, 0.05))
    finally:
        done.set()
        first.join(30)


def test_a_login_that_is_interrupted_in_one_thread_is_made_by_a_waiting_one(service, client_of):
    def sleep(seconds: float) -> None:
        raise KeyboardInterrupt

    client = client_of(service.url, sleep=sleep)
    service.answer("POST /login", when(lambda: threads_in("renew") == 4, LIMITED))

    def fetch(_: int) -> str:
        try:
            return client.plans.get("p").id
        except KeyboardInterrupt:
            return "interrupted"

    assert sorted(together(4, fetch)) == ["interrupted", "p", "p", "p"]
    assert service.logins == 2


# --- when a token ends ----------------------------------------------------------------------------


def ends_after(token: str, told: Decimal | None = None) -> float:
    grant = access_token(SecretStr(token), told, NOW)
    assert NOW < grant.renew_at <= grant.ends_at
    return (grant.ends_at - NOW).total_seconds()


def test_a_token_expires_after_an_hour_or_as_the_login_says():
    expiries = [
        ("opaque", None, 3_600),
        ("opaque", Decimal(60), 60),
        ("opaque", Decimal(3_600_000), 3_600),  # milliseconds, it seems
        ("opaque", Decimal(-1), 3_600),
        (a_token(NOW + timedelta(seconds=90)), None, 3_600),  # what a token says is for the service alone
    ]

    assert [(token, told, ends_after(token, told)) for token, told, _ in expiries] == expiries


def test_a_token_that_cannot_be_sent_is_not_sent(service, client):
    for token in ("with space", "line\nbreak", "é", ""):
        service.answer("POST /login", answered(200, granted(token, timedelta(hours=1), NOW)))

        with pytest.raises(UnexpectedResponse, match="its access token cannot be sent in a header"):
            client.plans.get("p")

    assert service.lines() == []


def test_the_expiry_of_a_token_is_read_in_any_form(service, client):
    body = granted("opaque", timedelta(hours=1), service.clock.now())
    forms = ["1795302151", "Sat, 21 Nov 2026 23:02:31 GMT", "", "never"]
    service.answer("POST /login", *[answered(200, {**body, "expiresAt": form}) for form in forms])

    assert [client.auth.login() for _ in forms] == [service.clock.now() + timedelta(hours=1)] * 4
