"""`subscribe`: the types that are handled, each once, and what became of each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from werkzeug import Response

from billhook.cli.context import operator
from billhook.errors import InboxUnavailable
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
from support.inbox_view import change, open_inbox, rows
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
        ("POST /webhook", [LIMITED] * 9, ["failed", "not tried", "not tried"], 5, " "),
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


# --- what was subscribed is remembered -------------------------------------------------------------


@pytest.fixture
def remembering(subscribe, where_file) -> Callable[..., Result]:
    """The same in a folder that has an inbox."""
    open_inbox(where_file).close()
    return subscribe


def listed(run) -> list[dict[str, Any]]:
    result = run("subscriptions", "list", "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def results(result: Result) -> list[str]:
    return [row["result"] for row in json.loads(result.stdout)["subscriptions"]]


def test_what_is_subscribed_is_not_sent_again_but_for_other_terms(remembering, run, service):
    assert remembering("handlers.py").exit_code == 0
    calls = len(service.taken)
    again = remembering("handlers.py", "--json")

    assert (again.exit_code, results(again)) == (0, ["subscribed already"] * 3)
    assert len(service.taken) == calls  # nor is there a login
    assert results(remembering("handlers.py", "--dry-run", "--json", API_URL="")) == results(again)
    for arguments, url in (
        (["--threshold", "CommitmentUsageCrossed=80"], URL),
        (["--recurring-threshold", "CommitmentUsageCrossed=80"], URL),
        ([], f"{URL}?tenant=a"),
        ([], f"{URL}?tenant=b"),
    ):
        told = remembering("--type", "CommitmentUsageCrossed", *arguments, "--json", url=url)
        assert results(told) == ["subscribed"], arguments
    same = remembering("--type", HANDLED[2], "--threshold", f"{HANDLED[2]}=80.0", "--json")
    assert results(same) == ["subscribed already"]
    assert len(listed(run)) == len(sent(service)) == 7


def test_again_sends_it_and_it_is_there_once(remembering, run, service):
    remembering("--type", "Overage")
    first = listed(run)

    result = remembering("--type", "Overage", "--again", "--json")

    assert results(result) == ["subscribed"]
    assert len(sent(service)) == 2
    (one,) = listed(run)
    assert one["at"] > first[0]["at"]


def test_what_another_service_was_asked_for_is_sent(remembering, where_file, service):
    remembering("--type", "Overage")
    change(where_file, "UPDATE billhook_subscription SET service = 'https://staging.example'")

    assert results(remembering("--type", "Overage", "--json")) == ["subscribed"]


@pytest.fixture
def where_file(tmp_path) -> Path:
    return tmp_path / "billhook.db"


def test_what_failed_is_not_remembered(remembering, run, service):
    service.answer("POST /webhook", answered(200, {}), BROKEN, cut)
    remembering("handlers.py")

    assert [one["event_type"] for one in listed(run)] == ["InvoiceApproved"]
    assert results(remembering("handlers.py", "--json")) == ["subscribed already", "subscribed", "subscribed"]


def test_the_list_says_what_when_and_by_whom_and_that_it_is_billhooks_own(remembering, run, service):
    assert run("subscriptions").stdout == "billhook has subscribed nothing from this inbox\n"
    told = remembering("--type", HANDLED[2], "--threshold", f"{HANDLED[2]}=80")

    (one,) = listed(run)
    assert one.pop("at").endswith("+00:00")
    assert one.pop("service").startswith("http://localhost:")
    assert one == {
        "id": 1, "who": operator(), "url": URL, "event_type": HANDLED[2], "threshold": "80",
        "recurring_threshold": None,
    }  # fmt: skip
    for text in (HANDLED[2], "80", URL, operator()):
        assert text in run("subscriptions").stdout
    assert "own memory" in run("subscriptions", "--help").stdout
    assert "`billhook subscriptions` lists what billhook itself has subscribed" in told.stderr


def test_subscribing_and_forgetting_are_actions(remembering, run, service):
    remembering("handlers.py")
    remembering("handlers.py")  # which does nothing

    result = run("subscriptions", "forget", "1", "3")

    assert (result.exit_code, len(listed(run))) == (0, 1)
    assert "not removed at the service" in result.stdout
    actions = json.loads(run("actions", "--json").stdout)
    assert [(one["what"], one["which"]) for one in actions] == [
        ("forget", f"InvoiceApproved for {URL}, CommitmentUsageCrossed for {URL}"),
        ("subscribe", f"InvoiceApproved, PaymentFailed, CommitmentUsageCrossed for {URL}"),
    ]
    refused = run("subscriptions", "forget", "2", "9")
    assert (refused.exit_code, len(listed(run))) == (1, 1)
    assert "there is no subscription 9 here: see `billhook subscriptions list`" in refused.stderr
    assert results(remembering("handlers.py", "--json")).count("subscribed") == 2


def test_an_address_is_kept_without_its_password_and_its_query(remembering, run, where_file, service):
    url = "https://ann:hunter2@shop.example/hooks?token=hunter2"
    remembering("--type", "Overage", url=url)

    assert results(remembering("--type", "Overage", "--json", url=url)) == ["subscribed already"]
    assert listed(run)[0]["url"] == "https://shop.example/hooks?…"
    for table in ("billhook_subscription", "billhook_action"):
        assert "hunter2" not in str(rows(where_file, f"SELECT * FROM {table}"))


def test_without_an_inbox_it_is_subscribed_and_said_not_to_be_remembered(subscribe, run, service, where_file):
    for _ in range(2):
        result = subscribe("--type", "Overage", "--json")
        assert (result.exit_code, results(result)) == (0, ["subscribed"])
        assert "is not remembered, as the inbox cannot be opened: there is no inbox at" in result.stderr
        assert "Check the service's dashboard before you run this again" in result.stderr
    assert not where_file.exists()


def test_what_cannot_be_stored_is_subscribed_all_the_same(remembering, run, service, monkeypatch):
    def fails(*_: object) -> None:
        raise InboxUnavailable("the disk is full")

    monkeypatch.setattr("billhook.cli.subscribe.remember", fails)
    result = remembering("--type", "Overage", "--json")

    assert (result.exit_code, results(result)) == (0, ["subscribed"])
    assert "Overage: subscribed, and not remembered: " in result.stderr
