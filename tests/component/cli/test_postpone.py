"""`deliveries postpone`: what is put off, until when, and what waits behind it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from billhook import Handlers
from billhook.events import PaymentFailed, sample
from billhook.extension import get_state
from support.apps import deliver
from support.inbox_view import rows
from support.postgres import BOTH


@pytest.fixture
def waiting(app_with, inbox_url):
    """An app with three deliveries of one invoice; their handler calls them one after another."""
    handlers, calls = Handlers(), []

    @handlers.on(PaymentFailed, name="chase", retry=[3600], ordered_by="invoice_id")
    def chase(event, delivery):
        calls.append(delivery.id)
        if len(calls) == 1:
            raise KeyError("no collector")

    app = app_with(handlers=[handlers])
    for number in range(3):
        deliver(app, sample(PaymentFailed).to_json(), "PaymentFailed", message_id=f"m{number}")
    get_state(app).handle_due()
    return app, calls


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_what_is_put_off_waits_with_all_behind_it_and_a_time_of_no_length_ends_it(run, waiting, where):
    app, calls = waiting

    counted = run("deliveries", "postpone", "1", "--for", "2h", "--dry-run")
    untouched = rows(where, "SELECT count(*) FROM run WHERE not_before IS NOT NULL")
    done = run("deliveries", "postpone", "1", "--for", "2h", stdin="y\n")
    shown = run("deliveries", "show", "1").stdout
    (listed,) = json.loads(run("deliveries", "show", "1", "--json").stdout)["runs"]
    early = get_state(app).handle_due()
    ended = run("deliveries", "postpone", "1", "--for", "0s", "--yes")
    handled = get_state(app).handle_due()

    assert re.match(r"1 of 1 delivery would be put off: 1 run due not before 20", counted.stdout)
    assert untouched == [(0,)]
    assert re.search(r"Put 1 delivery off until 20[\d-]+ [\d:]+ UTC\? \[y/N\]", done.stderr)
    assert "2 deliveries wait behind them in an order" in done.stdout
    assert re.search(r"not before 20[\d-]+ [\d:]+", shown)
    at = datetime.fromisoformat(listed["not_before"])
    assert timedelta(hours=1.9) < at - datetime.now(UTC) < timedelta(hours=2)
    assert early == 0
    assert ended.stdout.startswith("1 of 1 delivery put off: 1 run due at once")
    assert (handled, calls) == (3, [1, 1, 2, 3])


def test_a_filter_selects_and_the_figures_are_printed_as_json(run, waiting):
    moment = (datetime.now(UTC) + timedelta(days=30)).isoformat(timespec="seconds")

    result = run("deliveries", "postpone", "--handler", "chase", "--not-before", moment, "--json")
    actions = json.loads(run("actions", "--json").stdout)

    assert json.loads(result.stdout) == {
        "selected": 3, "postponed": 3, "runs": 3, "running": 0, "behind": 0, "not_before": moment,
        "dry_run": False,
    }  # fmt: skip
    assert [(one["what"], one["which"], one["deliveries"]) for one in actions] == [
        ("postpone", "--handler chase: 1-3", 3)
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--for", "32d"], "that is more than 31 days ahead: put it off for less"),
        (["--for", "999999w"], "that is more than 31 days ahead: put it off for less"),
        (["--not-before", "2999-01-01"], "that is more than 31 days ahead: put it off for less"),
        (["--not-before", "2h"], "that time has passed: --for 0s has them due at once"),
        (["--not-before", "soon"], "is not a time"),
        ([], "give either the time with --not-before, or how long with --for"),
        (["--for", "2h", "--not-before", "2999-01-01"], "give either the time"),
    ],
)
def test_a_time_that_cannot_be_is_refused(run, waiting, where, given, told):
    refused = run("deliveries", "postpone", "1", *given, "--yes")

    assert refused.exit_code == 2
    assert told in refused.stderr
    assert rows(where, "SELECT count(*) FROM run WHERE not_before IS NOT NULL") == [(0,)]


def test_what_is_finished_is_left_alone(run, shop):
    done = run("deliveries", "postpone", "1", "--for", "2h", "--yes")

    assert done.stdout.startswith("0 of 1 delivery put off: 0 runs due not before")
    assert "Nothing to do: no run of them is unfinished." in done.stdout


def test_a_replay_for_later_is_one_step(run, app_with, bare_url, where):
    handlers, calls = Handlers(), []

    @handlers.on(PaymentFailed, name="chase", retry=[])
    def chase(event, delivery):
        calls.append(delivery.id)
        raise KeyError("no collector")

    app = app_with(handlers=[handlers])
    deliver(app, sample(PaymentFailed).to_json(), "PaymentFailed")
    get_state(app).handle_due()
    later = f"{datetime.now(UTC) + timedelta(hours=2):%Y-%m-%dT%H:%M}"

    counted = run("deliveries", "replay", "1", "--not-before", later, "--dry-run").stdout
    done = run("deliveries", "replay", "1", "--not-before", later, "--json", stdin="").stdout
    early = get_state(app).handle_due()

    time = later.replace("T", " ") + ":00 UTC"
    assert f"1 run would be due again, not before {time}" in counted
    assert json.loads(done)["not_before"].startswith(later)
    assert (early, calls) == (0, [1])
    assert rows(where, "SELECT which FROM billhook_action") == [(f"1 --not-before {later}",)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--not-before", "2h"], "that time has passed"),
        (["--not-before", "2999-01-01"], "more than 31 days ahead"),
        (["--not-before", "{later}", "--rate", "1"], "--rate is for runs that are due at once"),
        (["--not-before", "{later}", "--as", "PingTest"], "has no run to put off"),
    ],
)
def test_a_time_of_a_replay_that_cannot_be_is_refused(run, waiting, where, given, told):
    later = f"{datetime.now(UTC) + timedelta(hours=2):%Y-%m-%dT%H:%M}"
    words = [each.format(later=later) for each in given]

    refused = run("deliveries", "replay", "1", *words, "--yes")

    assert refused.exit_code == 2
    assert told in refused.stderr
    assert rows(where, "SELECT count(*) FROM run WHERE not_before IS NOT NULL") == [(0,)]
