"""`deliveries replay`: what is done again, and what is left alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from billhook.inbox import DeliveryFilter, WorkerRecord
from billhook.inbox.reading import deliveries
from support.apps import make_app
from support.inbox_view import rows, value
from support.postgres import BOTH

HANDLERS = """
from billhook import Handlers
from billhook.events import InvoiceApproved, PaymentFailed
handlers = Handlers()
@handlers.on(InvoiceApproved, PaymentFailed, name="book")
def book(event): ...
@handlers.on(InvoiceApproved, name="chase", aliases=["remind"])
def chase(event): ...
@handlers.on(PaymentFailed, name="late")
def late(event): ...
"""
"""What has become of the shop: `send` is gone."""
UNKNOWN = (
    "No handler is loaded, so it is not known whether those of these runs exist: "
    "name the modules or files of your handlers in BILLHOOK_HANDLERS"
)


@pytest.fixture
def changed(run, tmp_path):
    """Runs commands with the handlers that the shop has now."""
    (tmp_path / "changed.py").write_text(HANDLERS)
    return partial(run, HANDLERS="changed.py")


def replayed(result) -> dict[str, int]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_a_dead_delivery_runs_its_failed_handler_again_and_no_other(run, shop, where):
    token = value(where, "SELECT token FROM run WHERE handler = 'send'")
    shop.broken = False

    result = replayed(run("deliveries", "replay", "2", "--json"))

    assert result == {"selected": 1, "replayed": 1, "reread": 0, "runs": 1, "added": 0} | {
        "missing": {},
        "unread": {},
        "dry_run": False,
        "not_before": None,
        "without_runs": 0,
    }
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


def test_what_failed_since_a_time_is_replayed_and_what_succeeded_is_not(run, shop):
    shop.broken = False

    counted = run("deliveries", "replay", "--failed-since", "1h", "--handler", "send", "--dry-run")
    of_others = run("deliveries", "replay", "--failed-since", "1h", "--handler", "book", "--yes")
    later = run("deliveries", "replay", "--failed-since", "2999-01-01", "--yes")
    both = run("deliveries", "replay", "--failed-since", "1h", "--all-handlers")
    asked = run("deliveries", "replay", "--failed-since", "1h", "--handler", "send", stdin="y\n")

    assert counted.stdout.startswith("1 of 1 delivery would be replayed: 1 run would be due again")
    assert of_others.stdout.startswith(later.stdout.strip())
    assert later.stdout == "no deliveries match\n"
    assert "--failed-since selects runs that failed: leave out --all-handlers" in both.stderr
    assert "Replay 1 delivery? [y/N]" in asked.stderr
    assert "Effects of handlers" not in asked.stderr
    assert shop.handle() == ["send"]


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


# --- a handler that is not there ------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [("2",), ("--state", "dead"), ("2", "--handler", "send"), ("--issue", "{issue}")]
)
def test_a_run_of_a_handler_that_is_gone_is_left_as_it_is(changed, shop, where, how):
    issue = json.loads(changed("failures", "--json").stdout)[-1]["id"]
    command = ("deliveries", "replay", *(word.format(issue=issue) for word in how))
    before = rows(where, "SELECT * FROM run")

    dry = changed(*command, "--dry-run")
    result = changed(*command, "--yes")
    as_json = changed(*command, "--json")

    told = "1 run of send is left as before: no handler has this name; if it has a new name or module, add "
    told += 'aliases=["send"] there, or have another handler take over its runs with `billhook deliveries '
    told += "replay --handler send --to NEW`; if it was removed"
    for each, verb in ((dry, "would be "), (result, "")):
        assert (each.exit_code, each.stderr[: len(told)]) == (1, told)
        assert each.stdout.startswith(f"0 of 1 delivery {verb}replayed: 0 runs {verb}due again")
        assert "Nothing to do" not in each.output
    assert (as_json.exit_code, json.loads(as_json.stdout)["missing"]) == (1, {"send": 1})
    assert rows(where, "SELECT * FROM run") == before


def test_what_others_have_to_do_is_replayed_beside_it(changed, shop, where):
    result = changed("deliveries", "replay", "2", "--all-handlers", "--json")

    figures = replayed(result)
    assert (figures["replayed"], figures["runs"], figures["missing"]) == (1, 1, {"send": 1})
    assert result.stderr.startswith("1 run of send is left as before: no handler has this name")
    assert rows(where, "SELECT handler, state FROM run WHERE delivery_id = 2 ORDER BY handler") == [
        ("book", "due"),
        ("send", "dead"),
    ]


def test_a_former_name_is_no_missing_handler_and_one_for_other_types_is(changed, shop, where):
    with shop.app_state.inbox.database.write() as connection:
        connection.exec_driver_sql("UPDATE run SET handler = 'remind' WHERE handler = 'send'")
    assert replayed(changed("deliveries", "replay", "2", "--json", "--dry-run"))["runs"] == 1

    with shop.app_state.inbox.database.write() as connection:
        connection.exec_driver_sql("UPDATE run SET handler = 'late' WHERE handler = 'remind'")
    result = changed("deliveries", "replay", "2", "--yes")

    assert result.exit_code == 1
    told = (
        "1 run of late is left as before: the handler does not handle their event type any more; add the type"
    )
    assert result.stderr.startswith(told)


def test_without_any_handlers_it_says_that_it_cannot_know_and_replays(run, shop):
    result = run("deliveries", "replay", "2", "--json")

    assert (replayed(result)["runs"], result.stderr.splitlines()[0]) == (1, UNKNOWN)
    assert "No handler is loaded" not in run("deliveries", "replay", "3", "--yes").stderr  # it is read anew


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_another_handler_takes_over_the_runs_of_one_that_is_gone(changed, shop, where):
    command = ("deliveries", "replay", "--state", "dead", "--handler", "send", "--to", "chase")

    would = changed(*command, "--dry-run")
    done = changed(*command, "--yes")

    assert would.stdout == "1 of 1 delivery would be replayed: 1 run would be taken over by chase\n"
    assert done.stdout == "1 of 1 delivery replayed: 1 run taken over by chase\n"
    query = "SELECT handler, state FROM run WHERE delivery_id = 2 ORDER BY handler"
    assert rows(where, query) == [("book", "succeeded"), ("chase", "due")]
    (action,) = json.loads(changed("actions", "--json").stdout)
    assert (action["what"], action["which"], action["deliveries"]) == (
        "replay",
        "--state dead --handler send --to chase: 2",
        1,
    )


def test_what_the_other_has_had_or_does_not_handle_is_passed_over_and_said(changed, shop, where):
    with shop.app_state.inbox.database.write() as connection:
        connection.exec_driver_sql("UPDATE run SET handler = 'remind' WHERE handler = 'book'")
    before = rows(where, "SELECT * FROM run")

    result = changed("deliveries", "replay", "2", "--handler", "send", "--to", "chase", "--yes")
    unfit = changed("deliveries", "replay", "2", "--handler", "send", "--to", "late", "--json")

    assert result.stdout.splitlines() == [
        "0 of 1 delivery replayed: 0 runs taken over by chase",
        "1 delivery passed over: chase has a run of it already",
    ]
    assert (replayed(unfit)["runs"], replayed(unfit)["unfit"], replayed(unfit)["had_already"]) == (0, 1, 0)
    assert rows(where, "SELECT * FROM run") == before


def test_it_asks_before_and_says_that_effects_are_made_again(changed, shop, where):
    command = ("deliveries", "replay", "2", "--handler", "send", "--to", "chase")

    asked = changed(*command, stdin="n\n")
    agreed = changed(*command, stdin="y\n")

    told = "chase takes over the runs of send, those that succeeded too. delivery.once() knows nothing"
    assert told in asked.stderr
    assert (asked.exit_code, agreed.exit_code) == (1, 0)
    assert json.loads(changed("actions", "--json").stdout)[0]["which"] == "2 --handler send --to chase"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("2 --to chase", 2, "--to NEW is for the runs of one handler: add --handler OLD"),
        ("2 --handler chase --to chase", 2, "name the same handler"),
        (
            "2 --handler send --to chaes",
            1,
            "no handler is named chaes here: did you mean chase?; name the modules",
        ),
        ("--handler sned --to chase --yes", 0, "none has a run of sned"),
        ("2 --handler sned --to chase", 1, "none has a run of sned"),
        (
            "--handler lat --without-handler lat",
            1,
            "no handler is named lat here: did you mean late?; name the ",
        ),
    ],
)
def test_options_that_say_nothing_are_refused(changed, shop, where, words, code, told):
    before = rows(where, "SELECT * FROM run")

    result = changed("deliveries", "replay", *words.split())

    assert (result.exit_code, told in result.output) == (code, True), result.output
    assert rows(where, "SELECT * FROM run") == before


# --- what a handler has missed --------------------------------------------------------------------


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_a_handler_is_given_what_it_has_missed(changed, shop, where):
    missed = ("deliveries", "list", "--without-handler", "late", "--type", "PaymentFailed", "--json")
    assert [one["id"] for one in json.loads(changed(*missed).stdout)] == [1]

    result = changed("deliveries", "replay", "--handler", "late", "--without-handler", "late", "--json")

    figures = replayed(result)
    assert (figures["selected"], figures["replayed"], figures["added"], figures["runs"]) == (1, 1, 1, 0)
    assert rows(where, "SELECT delivery_id, state FROM run WHERE handler = 'late'") == [(1, "due")]
    assert json.loads(changed(*missed).stdout) == []
    again = replayed(
        changed("deliveries", "replay", "--handler", "late", "--without-handler", "late", "--json")
    )
    assert (again["selected"], again["added"]) == (0, 0)


def test_what_it_had_under_a_former_name_it_has_not_missed(changed, run, shop):
    with shop.app_state.inbox.database.write() as connection:
        connection.exec_driver_sql("UPDATE run SET handler = 'remind' WHERE handler = 'send'")
    command = ("deliveries", "list", "--without-handler", "chase", "--json")

    loaded, unknown = (json.loads(each(*command).stdout) for each in (changed, run))

    assert [one["id"] for one in loaded] == [4, 1]
    misspelt = changed("deliveries", "list", "--without-handler", "chaes", "--json")
    assert "no handler is named chaes here: did you mean chase?; this selects by the name" in misspelt.stderr
    assert [one["id"] for one in unknown] == [4, 2, 1]


# --- whether anybody works ------------------------------------------------------------------------


def test_replay_warns_on_stderr_when_no_worker_was_seen(run, shop, tmp_path):
    shop.broken = False
    celery = "celery -A billhook.standalone:celery worker"
    (tmp_path / "shop.py").write_text(HANDLERS)
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

        unknown = "" if "HANDLERS" in options else f"{UNKNOWN}\n"
        assert (dry.stderr, result.stderr) == (unknown, unknown + (told and f"{told}\n"))
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
        unknown, _, hint = result.stderr.partition("\n")
        assert unknown.startswith("No handler is loaded, so it is not known")
        assert unknown.endswith(": pass it to the app's extension, Billhook(handlers=[…])")
        assert hint == what
