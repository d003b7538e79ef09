"""Trying again: when, how often, how long, and never what would be done twice."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug import Response

from billhook.client import OPERATIONS, RetryPolicy
from billhook.client.ingestion import ingest
from billhook.client.retries import retry_after_seconds
from billhook.errors import (
    ApiError,
    ConfigError,
    InternalError,
    InvalidRequest,
    RateLimitExceeded,
    RequestTooLarge,
    ServiceUnavailable,
    UnexpectedResponse,
)
from billhook.resources import IngestionResult
from support.billing_service import (
    A_PLAN,
    BROKEN,
    CLIENT_ID,
    LIMITED,
    REFRESH_TOKEN,
    a_server,
    cut,
    error,
    service_on,
)
from support.processes import run_command

NOW = datetime(2026, 1, 15, 12, tzinfo=UTC)
GATEWAY = Response("<h1>Bad Gateway</h1>", 502, content_type="text/html")


def limited(value: str) -> Response:
    return error(429, "rate_limit_error", "rate_limit_exceeded", Retry_After=value)


# --- what is safe to repeat -----------------------------------------------------------------------


def test_a_read_is_tried_again_until_it_succeeds(service, client, moving):
    service.answer("GET /plans/p", LIMITED, BROKEN, GATEWAY, cut, A_PLAN)

    assert client.plans.get("p").id == "p"

    assert service.lines() == ["GET /plans/p"] * 5
    assert len(moving.slept) == 4


def test_a_creation_and_a_deletion_are_not_repeated(service, client, moving):
    answers = {
        InternalError: BROKEN,
        UnexpectedResponse: GATEWAY,
        ServiceUnavailable: cut,
    }
    for kind, answer in answers.items():
        service.answer("POST /catalogProducts", answer)
        with pytest.raises(kind):
            client.catalog_products.create({"name": "API calls"})
    service.answer("DELETE /contracts/c", BROKEN)
    with pytest.raises(InternalError):
        client.contracts.delete("c")  # the next attempt would find nothing

    assert service.lines() == ["POST /catalogProducts"] * 3 + ["DELETE /contracts/c"]
    assert moving.slept == []


PAGE_OF_429 = Response("<h1>Slow down</h1>", 429, {"Retry-After": "7"}, content_type="text/html")
NEW = {"name": "API calls"}


@pytest.mark.parametrize(
    ("answer", "least"),
    [(limited("7"), 7), (PAGE_OF_429, 7), (LIMITED, 0.25)],
    ids=["429", "HTML", "no time"],
)
def test_a_request_that_was_refused_for_its_rate_had_no_effect_and_is_repeated(
    service, client, moving, answer, least
):
    calls = {
        "POST /catalogProducts": lambda: client.catalog_products.create(NEW),
        "DELETE /contracts/c": lambda: client.contracts.delete("c"),
        "POST /credits/deduct": lambda: client.credits.deduct("cus_1", 1),
        "PATCH /own": lambda: client.request("PATCH", "/own", {}),
    }
    for line, call in calls.items():
        service.answer(line, answer, error(400, "invalid_request_error", "read"))
        with pytest.raises(InvalidRequest, match="read"):
            call()

    assert service.lines() == [line for line in calls for _ in range(2)]
    assert len(moving.slept) == 4
    assert all(least <= seconds <= least + 1 for seconds in moving.slept)


def test_a_creation_waits_for_its_rate_within_the_time_for_all_and_no_longer(service, client, client_of):
    service.answer("POST /catalogProducts", limited("60"))
    with pytest.raises(RateLimitExceeded):
        client.catalog_products.create(NEW)
    service.answer("POST /catalogProducts", *[limited("1")] * 3)
    with pytest.raises(RateLimitExceeded):
        client_of(service.url, retries=RetryPolicy(attempts=3)).catalog_products.create(NEW)

    assert service.lines() == ["POST /catalogProducts"] * 4


def test_a_creation_whose_answer_is_lost_after_a_429_is_not_repeated(service, client):
    service.answer("POST /catalogProducts", limited("1"), cut)

    with pytest.raises(ServiceUnavailable, match="it is not known whether it was done"):
        client.catalog_products.create(NEW)

    assert service.lines() == ["POST /catalogProducts"] * 2


# --- what an earlier attempt leaves in doubt --------------------------------------------------------


EVENT = {"name": "call", "timestamp": NOW, "customerAlias": "acme", "ref": "r-1"}
CLOSED = "this BillingClient is closed: make a new one"


@pytest.mark.parametrize("lost", [cut, BROKEN, GATEWAY], ids=["cut", "500", "502"])
def test_a_client_that_is_closed_between_attempts_raises_the_error_of_the_attempt(service, client_of, lost):
    clients = []
    client = client_of(service.url, sleep=lambda _: clients[0].close())
    clients.append(client)
    service.answer("PUT /customers/c", lost)

    with pytest.raises(ApiError) as caught:
        client.customers.update("c", {"name": "Acme"})

    assert service.lines() == ["PUT /customers/c"]
    assert "PUT /customers/{customerId}: " in str(caught.value)
    with pytest.raises(ConfigError, match=CLOSED):  # the control: nothing is in doubt now
        client.customers.update("c", {"name": "Acme"})


def test_a_client_that_is_closed_during_a_batch_leaves_its_events_unconfirmed(service, client_of):
    clients = []
    client = client_of(service.url, sleep=lambda _: clients[0].close())
    clients.append(client)
    service.answer("POST /v2/events", cut)
    results = []

    with pytest.raises(ServiceUnavailable, match="it is not known whether it was done"):
        iter_into(results, client.events.ingest([EVENT]))

    assert [(result.state, result.event) for result in results] == [("unconfirmed", EVENT)]


def test_a_client_that_is_closed_between_the_halves_of_a_batch_keeps_the_results_of_the_first():
    def send(body, on_retry):
        events = json.loads(body)["events"]
        if len(events) > 2:
            fields = {"type": "invalid_request_error", "code": "request_too_large", "message": "too large"}
            raise RequestTooLarge("POST /v2/events", status=413, **fields)
        if events[0]["ref"] == "2":
            raise ConfigError(CLOSED)
        return IngestionResult.model_validate({"validEvents": events, "invalidEvents": []})

    results = []
    with pytest.raises(ConfigError, match=CLOSED):
        iter_into(results, ingest([{**EVENT, "ref": str(n)} for n in range(4)], send, clean=str))

    assert [str(result.state) for result in results] == ["accepted"] * 2 + ["unconfirmed"] * 2
    assert results[3].error == CLOSED


def iter_into(results, given):
    """Append each of `given` as it comes; what was appended stays where an error ends it."""
    for each in given:
        results.append(each)


def test_no_error_says_that_nothing_was_sent_after_an_attempt_that_was(moving, client_of):
    with a_server() as running:
        service = service_on(running, moving.clock)
        service.answer("PUT /customers/c", cut)
        client = client_of(service.url, retries=RetryPolicy(attempts=2), sleep=lambda _: running.stop())

        with pytest.raises(ServiceUnavailable) as caught:
            client.customers.update("c", {"name": "Acme"})

    assert caught.value.sent is True
    assert str(caught.value).endswith(
        "Connection refused, after an attempt that was sent; it is not known whether it was done"
    )


def test_a_login_that_fails_after_a_lost_attempt_does_not_hide_it(service, client_of, moving):
    def sleep(seconds):
        moving.clock.advance(seconds=4000)  # the token is over
        service.always("POST /login", error(401, "authentication_error", "authentication_failed"))

    client = client_of(service.url, sleep=sleep, retries=RetryPolicy(total_seconds=20_000))
    service.answer("PUT /customers/c", cut)

    with pytest.raises(ServiceUnavailable, match=r"PUT /customers/.*it is not known whether it was done"):
        client.customers.update("c", {"name": "Acme"})


def test_a_failing_call_is_attempted_as_often_as_the_policy_allows(service, client_of, moving):
    client = client_of(service.url, retries=RetryPolicy(attempts=3))
    service.always("GET /plans/p", BROKEN)

    with pytest.raises(InternalError, match="the service answered 500 internal_error: it is us"):
        client.plans.get("p")

    assert len(service.lines()) == 3
    assert len(moving.slept) == 2


def test_permanent_errors_are_not_retried(service, client):
    for status in (400, 404, 409):
        service.answer("GET /plans/p", error(status, "invalid_request_error", f"wrong_{status}"))
        with pytest.raises(InvalidRequest, match=f"wrong_{status}"):
            client.plans.get("p")

    assert len(service.lines()) == 3


def test_events_are_sent_again_under_the_same_refs(service, client):
    event = {"name": "call", "timestamp": NOW, "customerAlias": "acme", "ref": "r-1"}
    service.answer("POST /v2/events", BROKEN)
    service.answer("PUT /events", BROKEN)

    first = client.events.submit([event])
    second = client.events.submit_v1([event])

    assert [each.ref for each in first.valid_events] == ["r-1"]
    assert [each.error for each in second.invalid_events] == ["ref already exists"]
    assert service.lines() == ["POST /v2/events"] * 2 + ["PUT /events"] * 2
    bodies = {taken.body for taken in service.taken[1:]}
    assert len(bodies) == 1


def test_the_repeatable_operations_are_those_safe_by_the_specification():
    repeatable = {operation.name for operation in OPERATIONS.values() if operation.repeatable}
    reads = {operation.name for operation in OPERATIONS.values() if operation.method == "GET"}

    assert repeatable == reads | {
        "POST /login", "PUT /events", "POST /v2/events", "POST /events/dry-run",
        "POST /v2/events/aggregation", "PUT /customers/{customerId}",
        "PUT /catalogProducts/{catalogProductId}",
    }  # fmt: skip


def test_a_creation_is_repeated_where_the_connection_was_never_made(client_of, moving):
    with a_server() as running:
        client = client_of(service_on(running, moving.clock).url, retries=RetryPolicy(attempts=4))
        client.auth.login()  # or this would be what is repeated

    with pytest.raises(ServiceUnavailable, match=r"POST /catalogProducts: .*nothing was sent") as caught:
        client.catalog_products.create({"name": "API calls"})

    assert caught.value.sent is False
    assert len(moving.slept) == 3


# --- how long -------------------------------------------------------------------------------------


def test_the_waits_double_up_to_the_longest_and_less_by_chance():
    policy = RetryPolicy(first_wait_seconds=1, longest_wait_seconds=6)

    for attempt, longest in enumerate([1, 2, 4, 6, 6], start=1):
        waits = [policy.wait_seconds(attempt, None) for _ in range(200)]
        assert longest / 2 <= min(waits) < max(waits) <= longest
        assert max(waits) - min(waits) > longest / 4


@given(st.integers(1, 100), st.none() | st.floats(0, 10**9))
def test_a_wait_is_at_least_retry_after_and_at_most_a_second_longer(attempt, asked):
    wait = RetryPolicy().wait_seconds(attempt, asked)

    if asked is None:
        assert 0.25 <= wait <= 10
    else:
        assert asked <= wait <= asked + 1


def test_the_time_that_the_service_names_is_waited(service, client, moving):
    for value in ("20", format_datetime(NOW + timedelta(seconds=20 + 21), usegmt=True)):
        service.answer("GET /plans/p", limited(value), A_PLAN)
        client.plans.get("p")

    assert 20 <= moving.slept[0] <= 21
    assert 20 <= moving.slept[1] <= 22


def test_a_retry_after_beyond_the_time_limit_is_not_waited_for(service, client, moving):
    values = ["60", "86400", "9" * 40, "Fri, 31 Dec 9999 23:59:59 GMT"]
    for value in values:
        service.answer("GET /plans/p", limited(value))
        with pytest.raises(RateLimitExceeded) as caught:
            client.plans.get("p")
        assert caught.value.retry_after_seconds >= 60

    assert moving.slept == []
    assert len(service.lines()) == len(values)


@given(st.text())
def test_no_retry_after_is_too_odd(value):
    seconds = retry_after_seconds(value, NOW)

    assert seconds is None or seconds >= 0


def test_retry_after_holds_seconds_or_a_date():
    unreadable = ["soon", "-5", "1e3", "٣", "1, 2", "Thu, 32 Jan 2026 12:00:00 GMT", "", None]
    waits = {
        **dict.fromkeys(unreadable),
        "0": 0.0,
        " 7 ": 7.0,
        "Thu, 15 Jan 2026 11:00:00 GMT": 0.0,
        "Thu, 15 Jan 2026 12:00:05 -0000": 5.0,
        "Thu, 15 Jan 2026 13:00:05 +0100": 5.0,
    }

    assert {value: retry_after_seconds(value, NOW) for value in waits} == waits


@pytest.mark.parametrize(
    ("policy", "is_bounded"),
    [
        (RetryPolicy(attempts=100, total_seconds=30), True),
        (RetryPolicy(attempts=12, total_seconds=10_000), False),
    ],
    ids=["bounded", "control: not bounded"],
)
def test_all_attempts_and_waits_together_are_bounded(service, client_of, moving, policy, is_bounded):
    client = client_of(service.url, retries=policy)
    service.always("GET /plans/p", BROKEN)
    started = moving.clock.now()

    with pytest.raises(InternalError):
        client.plans.get("p")

    assert moving.clock.now() - started > timedelta(seconds=15)
    assert (sum(moving.slept) < 30) is is_bounded


def test_a_retry_is_logged_with_its_reason(service, client, caplog):
    service.answer("GET /plans/p", BROKEN, A_PLAN)

    with caplog.at_level(logging.INFO, "billhook.client"):
        client.plans.get("p")

    (record,) = [record for record in caplog.records if record.name == "billhook.client"]
    assert "GET /plans/{planId}: the service answered 500 internal_error: it is us; attempt 2 in 0." in (
        record.getMessage()
    )


@pytest.mark.slow
def test_a_retry_prints_nothing_where_no_logging_is_set_up(service):
    service.answer("GET /plans/p", BROKEN, A_PLAN)
    program = f"""
from billhook.client import BillingClient, RetryPolicy
retries = RetryPolicy(first_wait_seconds=0.01)
with BillingClient({service.url!r}, {CLIENT_ID!r}, {REFRESH_TOKEN!r}, retries=retries) as client:
    print(client.plans.get("p").id)
"""

    ran = run_command([sys.executable, "-c", program])

    assert (ran.stdout, ran.stderr) == ("p\n", "")
    assert service.lines() == ["GET /plans/p"] * 2


def test_an_error_that_is_not_the_clients_is_not_tried_again(client_of):
    sent = []

    def fail(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        raise KeyboardInterrupt

    client = client_of("https://billing.example", transport=httpx2.MockTransport(fail))
    with pytest.raises(KeyboardInterrupt):
        client.plans.get("p")

    assert len(sent) == 1


# --- the policy -----------------------------------------------------------------------------------


def test_a_policy_has_attempts_and_times():
    for attempts in (0, -1, 101):
        with pytest.raises(ConfigError, match=rf"attempts is {attempts}: it must be from 1 to 100"):
            RetryPolicy(attempts=attempts)
    for name in ("total_seconds", "first_wait_seconds", "longest_wait_seconds"):
        for seconds in (0, -1, 86_401, float("nan"), float("inf")):
            told = rf"{name} is {seconds!r}: it must be above 0 and at most 86400"
            with pytest.raises(ConfigError, match=told):
                RetryPolicy(**{name: seconds})
