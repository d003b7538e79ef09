"""`billhook status`: what it shows of an inbox, its thresholds and exit codes."""

from __future__ import annotations

import json
import re
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from billhook.events import CustomerCreated, sample
from billhook.extension import get_state
from billhook.inbox import Counted
from billhook.inbox.watching.backlog_pace import NOT_STORED
from billhook.inbox.watching.conditions import Facts, Thresholds, number_text
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.judgement import judge
from support.apps import deliver
from support.inbox_view import NOON, change, incoming
from support.processes import clean_environment, logged, until

HOUR = timedelta(hours=1)


@pytest.fixture
def refusing(shop):
    """The shop with two more refusals."""
    inbox = get_state(shop.app).inbox
    for cause in ("mismatch", "mismatch"):
        inbox.count(Counted.REFUSED, datetime.now(UTC), source="default", cause=cause)
    inbox._counts.close()
    return shop


# --- what it shows ------------------------------------------------------------------------------------


def test_types_without_a_model_are_one_row(run, shop):
    for event_type in ("BrandNew", "BrandNewer"):
        deliver(shop.app, b"{}", event_type, message_id=event_type)

    told = run("status", "--details").stdout

    assert "BrandNew" not in told
    assert re.findall("(?m)^unknown types +([0-9]+)", told) == ["2"]


def test_a_hostile_type_and_reason_cannot_control_the_terminal(run, shop, where):
    change(where, "UPDATE delivery SET event_type = ? WHERE id = 1", "Evil\x1b[31m")
    get_state(shop.app).inbox.pause_handler("send", "because\x1b[2J", NOON)

    result = run("status", "--details")

    assert "\x1b" not in result.output
    assert r"because\x1b[2J" in result.stderr


@pytest.mark.parametrize(
    ("causes", "sections"),
    [
        (["mismatch"], ["signed-deliveries-are-refused"]),
        (["storage"], ["deliveries-were-answered-503"]),
        (["resources", "draining"], ["deliveries-were-answered-503"]),
        (["deadline", "stale"], ["deliveries-were-answered-503", "signed-deliveries-are-refused"]),
    ],
)
def test_the_row_of_refusals_names_the_section_about_their_causes(run, shop, causes, sections):
    inbox = get_state(shop.app).inbox
    for cause in causes:
        seconds = 412.0 if cause == "stale" else None
        inbox.count(
            Counted.REFUSED, datetime.now(UTC), source="default", cause=cause, duration_seconds=seconds
        )
    inbox._counts.close()

    (row,) = [line for line in run("status").stdout.splitlines() if line.startswith("refused in 24 h")]

    assert re.findall(r"billhook runbook ([\w-]+)", row) == sections
    assert ("stale by 412 s on average" in row) == ("stale" in causes)


# --- thresholds ---------------------------------------------------------------------------------------


def test_a_threshold_that_is_crossed_is_named_and_the_exit_code_is_1(run, refusing):
    result = run("status", "--max-dead", "0", "--max-silence", "CustomerCreated=26h", "--max-refused", "1/h")

    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "CROSSED max-dead: 1 delivery is dead, the limit is 0",
        "CROSSED max-silence: no CustomerCreated was ever received, the limit is 1 d 2 h",
        "CROSSED max-refused: about 2 deliveries were refused in the last hour, the limit is 1",
    ]


def test_thresholds_that_are_not_crossed_have_exit_code_0(run, refusing):
    thresholds = ("--max-age", "5m", "--max-dead", "1", "--max-silence", "InvoiceApproved=26h")

    result = run("status", *thresholds, "--max-silence", "*=1h", "--max-refused", "2/h", "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["crossed"] == []


def lines(inbox, now, **thresholds):
    return judge(Facts(inbox, now, thresholds=Thresholds(**thresholds))).crossed


def test_the_age_is_that_of_the_oldest_unfinished_delivery(inbox):
    inbox.put(incoming("k"))

    assert lines(inbox, NOON + timedelta(minutes=5), max_age=timedelta(minutes=5)) == []
    assert lines(inbox, NOON + timedelta(minutes=6), max_age=timedelta(minutes=5)) == [
        "max-age: the oldest unfinished delivery is 6 min old, the limit is 5 min"
    ]


def test_silence_is_measured_from_the_last_delivery_of_the_type(inbox):
    inbox.put(incoming("k"))
    limit = {"PingTest": 2 * HOUR, "*": 4 * HOUR}

    assert lines(inbox, NOON + 2 * HOUR, max_silence=limit) == []
    assert lines(inbox, NOON + 5 * HOUR, max_silence=limit) == [
        "max-silence: the last PingTest is 5 h old, the limit is 2 h",
        "max-silence: the last delivery is 5 h old, the limit is 4 h",
    ]


def test_refusals_leave_the_last_hour_gradually(inbox):
    for _ in range(10):
        inbox.count(Counted.REFUSED, NOON, source="default", cause="mismatch")
    inbox._counts.close()

    def refused(minutes):
        return lines(inbox, NOON + timedelta(minutes=minutes), max_refused=(4, 1))

    assert ["about 10" in line for line in refused(59)] == [True]
    assert ["about 5" in line for line in refused(90)] == [True]
    assert refused(100) == []


# --- words --------------------------------------------------------------------------------------------


def test_the_summary_says_what_needs_attention_in_the_words_of_the_dashboard(inbox, where):
    def told_at(minutes, engine="inline"):
        return judge(Facts(inbox, NOON + timedelta(minutes=minutes), engine)).sentence

    assert told_at(0) == "No delivery has been received yet."

    inbox.put(incoming("k"))
    well = told_at(3)
    inbox.put(incoming("l"))
    change(where, "UPDATE delivery SET state = 'dead' WHERE id = 1")
    inbox.pause_handler("book", None, NOON)
    told = told_at(11, "worker")

    last = "The last delivery came 3 min ago."
    assert well == f"All is well: nothing fails and nothing waits for long. {last}"
    assert told == (
        "Needs attention: no worker is running, 1 delivery is dead, 1 handler is paused: book, "
        "a delivery has waited for a worker for 11 min."
    )


@pytest.mark.parametrize(
    ("causes", "told"),
    [
        (("missing", "malformed", "mismatch", "stale", "body_incomplete", "http_400", "draining"), []),
        (("resources",), []),  # counted before a signature is verified, too
        (NOT_STORED, ["3 deliveries could not be stored in this hour and the one before"]),
    ],
)
def test_what_strangers_send_is_no_problem_and_what_was_not_stored_is_one(inbox, causes, told):
    for cause in causes:
        inbox.count(Counted.REFUSED, NOON, source="default", cause=cause)
    inbox._counts.close()

    found = judge(Facts(inbox, NOON + timedelta(minutes=90), "inline"))
    assert [each.text for each in found.problems] == told
    assert judge(Facts(inbox, NOON + 2 * HOUR, "inline")).problems == []


def test_the_causes_of_what_was_not_stored_are_those_of_the_alert():
    alerts = Path("deploy/prometheus-alerts.yml").read_text()

    assert f'cause=~"{"|".join(NOT_STORED)}"' in alerts


def test_open_issues_and_many_dead_workers_are_told_in_a_line(run, shop, where):
    update_issues(get_state(shop.app).inbox, datetime.now(UTC))
    values = ", ".join(
        f"('host:{number}', 'host', 'worker', '2026-01-01 00:00:00', '2026-01-01 00:00:00')"
        for number in range(500)
    )
    change(where, f"INSERT INTO billhook_worker (owner, host, engine, started_at, seen_at) VALUES {values}")

    told = run("status").stdout

    assert re.search(r"send fails: RuntimeError: no \S+ +billhook failures", told)
    assert "silent: 500, the last host:" in told
    assert max(map(len, told.splitlines())) < 300


def test_numbers_beyond_the_limit_of_counting_are_shown_as_at_least():
    assert [number_text(number, 1000) for number in (999, 1000)] == ["999", "1,000+"]


# --- watching -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_watch_shows_what_changes_until_ctrl_c(shop, inbox_url, tmp_path):
    command = [sys.executable, "-m", "billhook", "status", "--details", "--watch"]
    environ = clean_environment(BILLHOOK_INBOX_URL=inbox_url, COLUMNS="120")
    shown = (tmp_path / "out").read_text
    with logged(command, tmp_path / "out", stop=signal.SIGINT, env=environ, cwd=tmp_path) as watching:
        until(lambda: "InvoiceApproved" in shown(), 30)
        assert "CustomerCreated" not in shown()
        deliver(shop.app, sample(CustomerCreated).to_json(), "CustomerCreated", message_id="m5")
        until(lambda: "CustomerCreated" in shown(), 30)

    assert watching.returncode == 0
    assert "Traceback" not in shown()
    assert re.search(r"\n\n20\d\d-\d\d-\d\d .* UTC ", shown())  # a blank line before the next look
