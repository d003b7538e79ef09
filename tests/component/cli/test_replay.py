"""`deliveries replay`: what is done again, and what is left alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from billhook.inbox import DeliveryFilter, WorkerRecord, deliveries
from support.apps import make_app
from support.inbox_view import rows, value
from support.postgres import BOTH


def replayed(result) -> dict[str, int]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_a_dead_delivery_runs_its_failed_handler_again_and_no_other(run, shop, where):
    token = value(where, "SELECT token FROM run WHERE handler = 'send'")
    shop.broken = False

    result = replayed(run("deliveries", "replay", "2", "--json"))

    assert result == {"selected": 1, "replayed": 1, "reread": 0, "runs": 1, "added": 0, "dry_run": False}
    query = "SELECT state, attempts, token > ? FROM run WHERE handler = 'send'"
    assert rows(where, query, token) == [("due", 0, 1)]
    assert shop.handle() == ["send"]
    assert deliveries.count(shop.app_state.inbox, DeliveryFilter(state="dead")) == 0


def test_a_replay_that_fails_again_keeps_both_failures(run, shop):
    run("deliveries", "replay", "2", "--yes")

    assert shop.handle() == ["send"]
    shown = json.loads(run("deliveries", "show", "2", "--json").stdout)
    assert shown["state"] == "dead"
    assert [len(one["failures"]) for one in shown["runs"] if one["handler"] == "send"] == [2]


def test_all_handlers_includes_those_that_succeeded(run, shop):
    shop.broken = False

    assert replayed(run("deliveries", "replay", "2", "--all-handlers", "--json"))["runs"] == 2
    assert shop.handle() == ["book", "send"]


def test_replay_by_handler_runs_it_again_after_any_result(run, shop):
    result = replayed(run("deliveries", "replay", "--handler", "book", "--json"))

    assert (result["selected"], result["runs"]) == (2, 2)
    assert shop.handle() == ["book", "book"]


def test_a_replay_of_what_a_handler_did_adds_no_first_run_to_others(run, shop, tmp_path):
    module = tmp_path / "late.py"
    module.write_text(
        "from billhook import Handlers\nhandlers = Handlers()\n"
        "@handlers.on_any(name='late')\ndef book(event): ...\n"
    )
    handled = ("deliveries", "replay", "--handler", "late", "--json", "--dry-run")

    alone = replayed(run(*handled, HANDLERS=str(module)))
    in_its_time = replayed(run(*handled, "--handled-since", "1h", HANDLERS=str(module)))
    received = replayed(run(*handled, "--since", "1h", HANDLERS=str(module)))

    for one in (alone, in_its_time):
        assert (one["selected"], one["added"]) == (0, 0)
    assert (received["selected"], received["added"]) == (4, 3)


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_replay_parses_a_quarantined_delivery_again(run, shop, where):
    result = run("deliveries", "replay", "--state", "quarantined", "--yes")

    assert "1 of 1 delivery replayed: 0 runs due again, 1 delivery parsed again" in result.stdout
    query = "SELECT state, error FROM delivery WHERE id = 3"
    assert rows(where, query) == [("received", None)]
    shop.handle()
    assert value(where, "SELECT state FROM delivery WHERE id = 3") == "quarantined"


def test_replay_of_a_delivery_without_runs_plans_it_again(run, shop, where):
    assert replayed(run("deliveries", "replay", "4", "--json"))["reread"] == 1

    assert value(where, "SELECT state FROM delivery WHERE id = 4") == "received"


def test_a_run_that_waits_for_its_next_attempt_need_not_wait(run, shop, tmp_path):
    with shop.app_state.inbox.database.write() as connection:
        connection.exec_driver_sql(
            "UPDATE run SET state='due', due_at='2999-01-01 00:00:00' WHERE handler='send'"
        )
        connection.exec_driver_sql("UPDATE delivery SET state='planned' WHERE id=2")
    shop.broken = False

    assert replayed(run("deliveries", "replay", "2", "--json"))["runs"] == 1
    assert shop.handle() == ["send"]


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_replay_leaves_a_running_run_alone(run, shop, where):
    with shop.app_state.inbox.database.write() as connection:
        connection.exec_driver_sql("UPDATE run SET state='running', due_at='2999-01-01' WHERE handler='send'")
        connection.exec_driver_sql("UPDATE delivery SET state='planned' WHERE id=2")
    before = rows(where, "SELECT * FROM run WHERE handler = 'send'")

    assert replayed(run("deliveries", "replay", "2", "--json"))["runs"] == 0
    assert rows(where, "SELECT * FROM run WHERE handler = 'send'") == before


def test_a_dry_run_counts_and_changes_nothing(run, shop, where):
    tables = ("delivery", "run", "failure")
    before = [rows(where, f"SELECT * FROM {table}") for table in tables]

    result = run("deliveries", "replay", "--since", "1h", "--dry-run")

    assert result.stdout.startswith("3 of 4 deliveries would be replayed: 1 run would be due again, 2 ")
    assert [rows(where, f"SELECT * FROM {table}") for table in tables] == before


def test_replay_waits_for_its_rate_but_not_in_a_dry_run(run, shop, monkeypatch):
    waits = []
    monkeypatch.setattr("billhook.cli.selection.time.sleep", waits.append)
    four = ("deliveries", "replay", "1", "2", "3", "4", "--json")

    assert replayed(run(*four, "--rate", "0.01", "--dry-run"))["selected"] == 4
    longest_when_dry = max(waits, default=0)
    assert replayed(run(*four, "--rate", "0.01"))["selected"] == 4

    assert longest_when_dry < 1
    assert max(waits) > 200  # one each 100 seconds, the first at once


def test_replay_notifies_workers_in_other_processes(run, shop):
    bell = shop.app_state.inbox.waker
    bell.fileno()

    run("deliveries", "replay", "2", "--yes")

    assert bell.wait(5)


# --- whether anybody works ------------------------------------------------------------------------


def test_replay_warns_on_stderr_when_no_worker_was_seen(run, shop):
    shop.broken = False
    celery = "celery -A billhook.standalone:celery worker"
    for ago, options, told in (
        (None, {}, "No worker is running; start one: billhook worker FILE"),
        (None, {"HANDLERS": "shop.py"}, "No worker is running; start one: billhook worker"),
        (None, {"ENGINE": "celery"}, f"No worker is running; start one: {celery}"),
        (None, {"ENGINE": "inline"}, ""),
        ({"days": 2}, {}, "No worker has been seen for 2 d; start one: billhook worker FILE"),
        ({"hours": 3, "minutes": 5}, {}, "No worker has been seen for 3 h; start one: billhook worker FILE"),
        ({"seconds": 100}, {}, "No worker has been seen for 1 min; start one: billhook worker FILE"),
        ({"seconds": 30}, {}, ""),
    ):
        if ago is not None:
            at = datetime.now(UTC) - timedelta(**ago)
            shop.app_state.inbox.record_worker(WorkerRecord("host:1:a", "worker", 2, at), at)

        dry = run("deliveries", "replay", "1", "--all-handlers", "--dry-run", **options)
        result = run("deliveries", "replay", "1", "--all-handlers", "--json", **options)

        assert (dry.stderr, result.stderr) == ("", told and f"{told}\n")
        shop.handle()


def test_without_a_worker_the_list_of_workers_says_so(run, shop):
    assert run("workers").stdout == "no worker was seen in the last day\n"


def test_replay_in_an_app_suggests_how_to_start_a_worker_there(shop):
    hints = {
        "thread": "No worker is running; start the app: its threads start with the first request\n",
        "worker": "No worker is running; start one: other billhook worker\n",
        "inline": "",
    }

    for engine, what in hints.items():
        app = make_app(
            Path(shop.app.instance_path), name="other", BILLHOOK_ENGINE=engine,
            BILLHOOK_INBOX_URL=shop.app.config["BILLHOOK_INBOX_URL"],
        )  # fmt: skip
        replay_all = ("deliveries", "replay", "1", "--all-handlers", "--yes")
        result = app.test_cli_runner().invoke(args=["billhook", *replay_all])
        app.extensions["billhook"].close()
        shop.handle()

        assert result.exit_code == 0, result.output
        assert result.stderr == what
