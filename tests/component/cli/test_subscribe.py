"""`subscribe`: the types that are handled, each once, and what became of each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from werkzeug import Response

from billhook.events import EVENT_TYPES
from support.billing_service import (
    BROKEN,
    CLIENT_ID,
    LIMITED,
    REFRESH_TOKEN,
    REFUSED,
    Service,
    answered,
    cut,
    when,
)
from support.processes import until

URL = "https://shop.example/webhooks/billing"
MODULE = """
from billhook import Handlers
from billhook.events import CommitmentUsageCrossed, InvoiceApproved, PaymentFailed

handlers = Handlers()


@handlers.on(PaymentFailed, InvoiceApproved)
def money(event): ...


@handlers.on(InvoiceApproved, CommitmentUsageCrossed)
def more(event): ...


@handlers.on_unknown()
def new(event): ...
"""
HANDLED = ["InvoiceApproved", "PaymentFailed", "CommitmentUsageCrossed"]


@pytest.fixture
def service(service) -> Service:
    service.always("POST /webhook", answered(201, {"id": "sub_1"}))
    return service


@pytest.fixture
def subscribe(run, credentials, tmp_path) -> Callable[..., Result]:
    """Runs `billhook subscribe`, in a folder with handlers.py, with good credentials."""
    (tmp_path / "handlers.py").write_text(MODULE)

    def invoke(*arguments: str, url: str = URL, **options: str) -> Result:
        result = run("subscribe", "--callback-url", url, *arguments, **{**credentials, **options})
        assert CLIENT_ID not in result.output
        assert REFRESH_TOKEN not in result.output
        return result

    return invoke


def sent(service: Service) -> list[dict[str, Any]]:
    return [taken.json for taken in service.taken if taken.line == "POST /webhook"]


def test_every_type_that_is_handled_is_subscribed_to_once(subscribe, service):
    result = subscribe("handlers.py")

    assert result.exit_code == 0, result.output
    assert [each["eventType"] for each in sent(service)] == [name for name in EVENT_TYPES if name in HANDLED]
    assert all(
        each["callbackUrl"] == URL and set(each) == {"callbackUrl", "eventType"} for each in sent(service)
    )
    for name in HANDLED:
        assert any(line.startswith(name) and "subscribed" in line for line in result.stdout.splitlines())


def test_types_may_be_named_instead(subscribe, service):
    result = subscribe("--type", "PingTest", "--type", "Overage", "--type", "PingTest")

    assert result.exit_code == 0, result.output
    assert [each["eventType"] for each in sent(service)] == ["PingTest", "Overage"]


def test_thresholds_are_sent_with_their_type(subscribe, service):
    both = "CommitmentUsageCrossed", "CreditPoolThresholdCrossed"
    options = [each for name in both for each in ("--type", name, "--recurring-threshold", f"{name}=25")]
    result = subscribe(*options, "--threshold", "CommitmentUsageCrossed=80.5", "--json")

    told = {each["eventType"]: (each.get("threshold"), each["recurringThreshold"]) for each in sent(service)}
    assert told == {"CommitmentUsageCrossed": (80.5, 25), "CreditPoolThresholdCrossed": (None, 25)}
    assert [row["recurring_threshold"] for row in json.loads(result.stdout)["subscriptions"]] == ["25", "25"]


def test_a_dry_run_sends_nothing_and_needs_no_credentials(subscribe, service):
    result = subscribe("handlers.py", "--dry-run", API_URL="", API_CLIENT_ID="", API_REFRESH_TOKEN="")

    assert result.exit_code == 0, result.output
    assert result.stdout.count("would be subscribed") == 3
    assert service.taken == []


@pytest.mark.parametrize(
    ("line", "answers", "results", "calls", "told"),
    [
        (
            "POST /webhook",
            [answered(200, {}), BROKEN],
            ["subscribed", "failed", "subscribed"],
            3,
            "internal_error",
        ),
        ("POST /webhook", [cut], ["unknown", "not tried", "not tried"], 1, "not known whether it was done"),
        ("POST /webhook", [LIMITED] * 9, ["failed", "not tried", "not tried"], 1, " "),
        ("POST /login", [REFUSED], ["failed", "not tried", "not tried"], 0, " "),
    ],
    ids=["one fails", "no answer", "a limit", "wrong credentials"],
)
def test_what_stops_the_rest_and_what_does_not(subscribe, service, line, answers, results, calls, told):
    service.answer(line, *answers)

    result = subscribe("handlers.py", "--json")

    assert result.exit_code == 1
    rows = json.loads(result.stdout)["subscriptions"]
    assert [row["result"] for row in rows] == results
    assert told in " ".join(row["error"] or "" for row in rows)
    assert len(sent(service)) == calls


PAGE = {"content_type": "text/html"}


def test_an_answer_that_cannot_be_read_is_a_failure_only_where_nothing_was_done(subscribe, service):
    for answer, expected in (
        (Response("<h1>done", 200, **PAGE), "unknown"),
        (Response("<h1>it took too long", 504, **PAGE), "unknown"),
        (Response("<h1>no such page", 404, **PAGE), "failed"),
        (Response("", 302, {"Location": "/"}), "failed"),
    ):
        service.always("POST /webhook", answer)

        rows = json.loads(subscribe("--type", "Overage", "--json").stdout)["subscriptions"]

        assert [row["result"] for row in rows] == [expected]
        assert "is not one of the billing service" in rows[0]["error"]


@pytest.mark.slow
def test_an_interruption_prints_the_results_so_far(subscribe, service, credentials, tmp_path):
    process = None
    service.answer(
        "POST /webhook", answered(200, {}), when(lambda: process.poll() is not None, answered(200, {}))
    )
    subscribe("handlers.py", "--dry-run")  # writes handlers.py
    given = {f"BILLHOOK_{name}": value for name, value in credentials.items()}
    process = subprocess.Popen(
        [sys.executable, "-m", "billhook", "subscribe", "handlers.py", "--callback-url", URL, "--json"],
        cwd=tmp_path,
        env={**os.environ, **given},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert until(lambda: len(sent(service)) == 2, 60)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()

    assert process.returncode == 1
    rows = json.loads(stdout)["subscriptions"]
    assert [row["result"] for row in rows] == ["subscribed", "unknown", "not tried"]
    assert b"Traceback" not in stderr
