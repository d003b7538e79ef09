"""`billhook failures`: issues in a table, one of them with what to do, and what operators say."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, literal, select

from billhook import Handlers
from billhook.cli.context import operator
from billhook.events import InvoiceApproved
from billhook.extension import get_state
from billhook.inbox import WorkerRecord
from billhook.inbox.operating.actions import list_actions
from billhook.inbox.tables.schema import issue
from support.apps import deliver
from support.signing import APPROVED


def book(event):
    raise KeyError(event.invoice_id)


def mail(event, delivery):
    if b"USD" in delivery.body:
        raise LookupError(repr(event.invoice_id))


@pytest.fixture
def failing(app_with, inbox_url, run):
    """An app with two deliveries whose handler fails by one bug, and is not called again."""
    handlers = Handlers()
    handlers.on(InvoiceApproved, name="shop.book", retry=[])(book)
    app = app_with(handlers=[handlers])
    for number in (1, 2):
        deliver(app, APPROVED.replace(b"inv_1", b"inv_%d" % number), "InvoiceApproved")
    get_state(app).handle_due()
    return app


@pytest.fixture
def cli(failing, run):
    def call(*arguments, code=0):
        result = run("failures", *arguments)
        assert result.exit_code == code, result.output
        return result

    return call


def ids(cli):
    return {one["kind"]: one["id"] for one in json.loads(cli("list", "--json").stdout)}


def test_the_deliveries_of_an_issue_are_listed_and_replayed(cli, failing, run):
    deliver(failing, APPROVED.replace(b"inv_1", b"inv_3"), "InvoiceApproved")
    id_ = ids(cli)["failure"]

    listed = json.loads(run("deliveries", "list", "--issue", id_, "--json").stdout)
    counted = run("deliveries", "replay", "--issue", id_, "--dry-run")
    done = run("deliveries", "replay", "--issue", id_, "--yes")

    assert [one["id"] for one in listed] == [2, 1]
    assert "2 deliveries" in counted.stdout
    assert "resolves itself" not in counted.stderr
    assert f"an hour of quiet; or at once: `billhook failures resolve {id_}`" in done.stderr


def test_an_issue_shows_the_newest_error_and_what_its_events_have_in_common(app_with, inbox_url, run):
    handlers = Handlers()
    handlers.on(InvoiceApproved, name="shop.mail", retry=[])(mail)
    app = app_with(handlers=[handlers])
    for number, currency in enumerate((b"EUR", b"EUR", b"USD", b"USD")):
        body = b'{"date":"2026-01-15T09:30:00Z","invoiceId":"inv_%d","currency":"%b"}' % (number, currency)
        deliver(app, body, "InvoiceApproved")
    get_state(app).handle_due()
    ((id_, heading),) = [
        (one["id"], one["newest_error"]) for one in json.loads(run("failures", "list", "--json").stdout)
    ]

    shown = run("failures", "show", id_).stdout

    assert heading == "LookupError: 'inv_3'"
    assert heading in run("failures", "list").stdout
    assert f"OPEN, LIVE  {heading}" in shown
    assert " every error  LookupError: …\n" in shown
    assert re.search(r"in common +value +failed +succeeded\n.*\ncurrency +USD +2 of 2 +0 of 2", shown)
    assert json.loads(run("failures", "show", id_, "--json").stdout)["causes"] == [
        {"field": "currency", "value": "USD", "failed": 2, "of_failed": 2, "succeeded": 0, "of_succeeded": 2}
    ]


def test_of_an_issue_the_runs_of_its_handler_alone_are_replayed(app_with, inbox_url, run):
    handlers = Handlers()
    for name, retry in (("shop.book", []), ("shop.mail", [3600])):
        handlers.on(InvoiceApproved, name=name, retry=retry)(book)
    app = app_with(handlers=[handlers])
    deliver(app, APPROVED, "InvoiceApproved")
    get_state(app).handle_due()
    listed = json.loads(run("failures", "list", "--json").stdout)
    (failed,) = {one["id"] for one in listed if one["subject"] == "shop.book"}

    counts = [
        json.loads(run("deliveries", "replay", *which, "--yes", "--dry-run", "--json").stdout)["runs"]
        for which in (["--issue", failed], ["1"])
    ]

    assert counts == [1, 2]


def test_what_operators_say_is_kept_and_recorded(cli, failing, run):
    id_ = ids(cli)["failure"]

    cli("ack", id_, "--to", "grace", "--reason", "ticket 7")
    shown = cli("show", id_).stdout
    cli("snooze", id_, "--for", "2h")
    cli("resolve", id_)

    assert "acknowledged  grace works on it: ticket 7" in shown
    assert cli().stderr == "2 deliveries are dead still: `billhook deliveries list --state dead`\n"
    assert "KeyError" in cli("list", "--state", "resolved").stdout
    recorded = [(one.who, one.what, one.which) for one in list_actions(get_state(failing).inbox, 10)]
    which = {"resolve": f"issue {id_}", "snooze": f"issue {id_}", "ack": f"issue {id_} to grace"}
    assert recorded == [(operator(), what, told) for what, told in which.items()]
    assert run("actions").stdout.count("(KeyError: …)") == 3


def test_an_issue_is_snoozed_until_its_time_or_its_number(cli, failing):
    id_ = ids(cli)["failure"]

    given = ([], ["--for", "2h"], ["--until-more", "10"], ["--for", "2h", "--until-more", "1"])
    told = [re.sub(r"20[\d-]+ [\d:]+", "TIME", cli("snooze", id_, *until).stdout) for until in given]

    end = "TIME UTC: KeyError: 'inv_2' (cli/test_failures.py:24 in book)\n"
    assert [each.removeprefix(f"{id_} is snoozed until ") for each in told] == [
        end, end, f"10 more, or {end}", f"1 more, or {end}",
    ]  # fmt: skip
    shown = cli("show", id_).stdout
    assert re.search(r"comes back  1 more, or 20[\d-]+ [\d:]+ UTC", shown)
    (listed,) = (one for one in json.loads(cli("list", "--json").stdout) if one["id"] == id_)
    assert (listed["state"], listed["snoozed_more"]) == ("snoozed", 1)
    assert "0 is not in the range" in cli("snooze", id_, "--until-more", "0", code=2).stderr


def test_an_issue_of_a_state_is_snoozed_for_a_time_alone(cli, failing):
    inbox, at = get_state(failing).inbox, datetime.now(UTC)
    inbox.record_worker(WorkerRecord("gone", "worker", 1, at - timedelta(hours=1)), at - timedelta(hours=1))
    id_ = ids(cli)["worker"]

    refused = cli("snooze", id_, "--until-more", "10", code=1)
    cli("snooze", id_, "--for", "2h")

    assert f"{id_} does not happen a number of times: give the time with --for" in refused.stderr


def test_the_beginning_of_an_id_is_enough_where_it_is_of_one_issue(cli, failing):
    id_ = ids(cli)["failure"]
    other = f"{id_[:4]}{'z' * 8}"
    with get_state(failing).inbox.database.write() as connection:
        columns = [column.name for column in issue.c if column.name != "fingerprint"]
        same = select(literal(other), *(issue.c[name] for name in columns))
        connection.execute(insert(issue).from_select(["fingerprint", *columns], same))

    assert cli("show", id_[:5]).stdout.startswith(f"{id_}  OPEN")
    ambiguous = cli("show", id_[:4], code=1).stderr
    assert f"{id_[:4]} is how 2 issues begin, write one of them: {id_}, {other}" in ambiguous
    assert f"{id_[:3]} is too short: write 4 characters" in cli("show", id_[:3], code=1).stderr


def test_an_unknown_issue_changes_nothing(cli, failing):
    id_ = ids(cli)["failure"]

    refused = cli("ack", id_, "0" * 12, code=1)
    too_long = cli("ack", id_, "--reason", "x" * 1001, code=2)

    assert "the argument has 1,001 characters, and at most 1,000 are taken" in too_long.stderr
    assert f"there is no issue {'0' * 12}: see" in refused.stderr
    assert "failures list" in refused.stderr
    assert list_actions(get_state(failing).inbox, 10) == []
