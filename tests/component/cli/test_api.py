"""`api`: what the service answers, as a table and as JSON, and what is wrong in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from werkzeug import Response

from billhook.resources import Aggregation, Invoice, Plan, sample
from support.billing_service import BROKEN, CLIENT_ID, REFRESH_TOKEN, REFUSED, answered, error


@pytest.fixture
def api(run, service, credentials) -> Callable[..., Result]:
    """Runs `billhook api …` with good credentials."""

    def invoke(*arguments: str, command: tuple[str, ...] = ("api",), **options: str) -> Result:
        result = run(*command, *arguments, **{**credentials, **options})
        assert CLIENT_ID not in result.output
        assert REFRESH_TOKEN not in result.output
        assert not any(token in result.output for token in service.tokens)
        return result

    return invoke


def wire(model) -> Any:
    return json.loads(sample(model).to_json())


def listed(key: str, *items: Any) -> Response:
    return answered(200, {key: list(items), "total": len(items), "hasMore": False, "nextCursor": ""})


INVOICE = wire(Invoice)


def test_list_filters_are_sent_to_the_service(api, service):
    service.always("GET /invoices", listed("invoices"))

    result = api("invoices", "list", "--customer-id", "cus_1", "--status", "Paid", "--until", "2026-02-01")

    assert result.stdout == "nothing found\n"
    assert service.lines() == [
        "GET /invoices?customerId=cus_1&billingStatus=Paid&issuedBefore=2026-02-01T00%3A00%3A00Z"
    ]


def test_a_list_is_followed_over_its_pages_up_to_the_limit(api, service):
    pages = [
        answered(
            200, {"invoices": [INVOICE] * 3, "total": 9, "hasMore": number < 3, "nextCursor": f"c{number}"}
        )
        for number in range(1, 4)
    ]
    service.answer("GET /invoices", listed("invoices", *[INVOICE] * 4), *pages)

    whole, result = (api("invoices", "list", "--limit", "4", "--json") for _ in range(2))

    assert [len(json.loads(each.stdout)) for each in (result, whole)] == [4, 4]
    assert (result.stderr, whole.stderr) == ("More items exist: raise --limit, which is 4\n", "")
    assert service.lines() == ["GET /invoices"] * 2 + ["GET /invoices?cursor=c1"]


def test_usage_is_added_up(api, service):
    service.always("POST /v2/events/aggregation", answered(200, wire(Aggregation)))

    result = api(
        "events", "aggregate", "cus_1", "--since", "2026-01-01", "--until", "2026-02-01",
        "--meter", "calls=api_call", "--group-by", "day", "--fill-dates", "--json",
    )  # fmt: skip

    assert json.loads(result.stdout) == wire(Aggregation)
    assert service.taken[-1].json == {
        "customerId": "cus_1",
        "period": {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-02-01T00:00:00Z"},
        "meters": [{"key": "calls", "eventName": "api_call"}],
        "groupBy": "day",
        "fillDates": True,
    }


def test_amounts_are_printed_with_unchanged_digits(api, service):
    text = json.dumps({"invoice": INVOICE}).replace("1249.9", "1249.900000000000000000001")
    service.always("GET /invoices/1", Response(text, content_type="application/json"))

    assert '"amount": 1249.900000000000000000001' in api("invoices", "get", "1", "--json").stdout
    assert "1249.900000000000000000001" in api("invoices", "get", "1").stdout


def test_text_of_the_service_is_escaped_for_the_terminal(api, service):
    evil = {**INVOICE, "name": "\x1b[31m\u202eevil", "note": '\x00"\x00'}
    service.always("GET /invoices/1", answered(200, {"invoice": evil}))

    table = api("invoices", "get", "1").stdout
    document = api("invoices", "get", "1", "--json").stdout

    assert "\\x1b[31m\\u202eevil" in table
    assert json.loads(document) == evil
    assert document.isascii()


def test_login_accepts_good_credentials_and_rejects_wrong_ones(api, service):
    good = api("login")
    service.answer("POST /login", REFUSED)
    bad = api("login")

    assert good.exit_code == 0
    assert good.stdout.startswith("the credentials are valid; the access token expires at 20")
    assert bad.exit_code == 1
    assert bad.stderr == (
        "Error: POST /login: the service answered 401 authentication_failed: the credentials are not good: "
        "check BILLHOOK_API_CLIENT_ID, and BILLHOOK_API_REFRESH_TOKEN or BILLHOOK_API_REFRESH_TOKEN_FILE\n"
    )


def test_a_retried_call_prints_and_logs_nothing(api, service, caplog):
    service.answer("GET /plans/p", error(500, "api_error", "internal_error"))
    service.answer("GET /plans/p", answered(200, {"plan": wire(Plan)}))

    with caplog.at_level("WARNING"):
        result = api("plans", "get", "p", "--json")

    assert json.loads(result.stdout) == wire(Plan)
    assert (result.stderr, [record.message for record in caplog.records]) == ("", [])


def test_a_validation_error_names_the_field():
    import click

    from billhook.cli.api_calls import as_usage_errors
    from billhook.resources import PageQuery

    with pytest.raises(click.UsageError, match="limit: Input should be a number"), as_usage_errors():
        PageQuery.model_validate({"limit": [1]})


# --- the sandbox: neither a retry nor a proxy hides what it does --------------------------------------

CALL = ("sandbox", "call")


def test_a_fault_that_the_sandbox_injects_is_seen_and_not_repeated(api, service):
    service.instead = BROKEN

    assert api("GET", "/_sandbox/clock", command=CALL).exit_code == 1

    assert service.lines() == ["GET /_sandbox/clock"]


def test_a_proxy_of_the_environment_is_not_used(api, service, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    service.answer("GET /_sandbox/clock", answered(200, {"now": "2026-01-01T00:00:00Z"}))

    result = api("GET", "/_sandbox/clock", command=CALL)

    assert json.loads(result.stdout) == {"now": "2026-01-01T00:00:00Z"}
