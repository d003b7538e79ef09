"""`deliveries list`, `show` and `export`: looking without touching."""

from __future__ import annotations

import json
import re

import pytest

from billhook.inbox.running.filters import FILTERS
from support.apps import deliver
from support.postgres import BOTH
from support.signing import APPROVED, PATH, signed


def ids(result) -> list[int]:
    assert result.exit_code == 0, result.output
    return [one["id"] for one in json.loads(result.stdout)]


@pytest.mark.parametrize("bare_url", BOTH, indirect=True)
def test_every_filter_selects(run, shop):
    selected = {
        "--type PingTest": [4, 3],
        "--state DEAD": [2],
        "--state quarantined --type PingTest": [3],
        "--source default --limit 2": [4, 3],
        "--source elsewhere": [],
        "--handler book": [2, 1],
        "--without-handler send": [4, 1],
        "--without-handler send --without-handler book": [4],
        "--without-handler send --state quarantined": [],
        "--since 1h": [4, 3, 2, 1],
        "--until 1h": [],
        "--since 2999-01-01": [],
        "--since 2020-01-01T00:00:00+02:00 --until 2999-01-01T10:00": [4, 3, 2, 1],
        "--after 3": [2, 1],
        "--key m2": [2],
        "--search inv_1": [2],
        "--search inv_1 --state done": [],
        "--search inv_1 --key m2": [2],
        "--contains inv_1": [2],
        "--contains inv_1 --type PingTest": [],
        "--contains inv_1 --search-limit 2": [],
        "--conflicts": [],
        "--twins": [],
        "--error MAIL": [2],
        "--handled-since 1h --handler send": [2],
        "--handled-until 1h": [],
        "--release 2.4": [],
        "--failed-since 1h --handler send": [2],
        "--failed-since 1h --handler book": [],
        "--handled-since 2020-01-01 --handled-until 2999-01-01 --type PaymentFailed": [1],
    }
    tested = {word for line in selected for word in line.split()} | {"--issue"}  # by test_failures.py

    assert {f"--{one.option}" for one in FILTERS.values()} <= tested, "`selected` has a line for each"
    found = {one: ids(run("deliveries", "list", "--json", *one.split())) for one in selected}

    assert found == selected


def test_text_that_no_database_takes_is_refused(run, shop):
    result = run("deliveries", "list", "--type", "\udcff")

    assert result.exit_code == 2
    assert "not valid UTF-8 text" in result.stderr


def test_the_traceback_is_of_the_handler_and_not_of_what_called_it(run, shop):
    for form in ([], ["--json"]):
        shown = run("deliveries", "show", "2", *form).stdout
        assert ("in send" in shown, "billhook/handlers/" in shown) == (True, False)


def test_text_of_a_delivery_is_escaped_for_the_terminal(run, shop):
    broken = run("deliveries", "show", "3").stdout
    failed = run("deliveries", "show", "2").stdout

    for text in (broken, failed):
        assert not any(sign in text for sign in "\x1b\x07\x9b")
    assert "\\x1b]0;title\\x07 \\xff" in broken
    assert "\\x9b31m" in broken
    assert "no \\x1b[31mmail" in failed


def test_the_body_alone_is_the_exact_bytes(run, shop):
    result = run("deliveries", "show", "3", "--body")

    assert result.stdout_bytes == b'{"\x1b]0;title\x07 \xff'


def test_signatures_and_credentials_are_masked_as_on_the_page(run, app_with, inbox_url):
    canary = "canary-1234567890"
    headers = signed(APPROVED, "InvoiceApproved") | {
        "X-My-Sig": canary,
        "X-Check": canary,
        "X-Note": "a note",
    }
    app_with().test_client().post(PATH, data=APPROVED, headers=headers)

    shown = run("deliveries", "show", "1", SIGNATURE="timestamped-hmac", SIGNATURE_HEADER="X-Check").stdout

    assert canary not in shown
    assert headers["webhook-signature"] not in shown
    assert "a note" in shown
    assert re.search(r"X-Check +•••••• \(17 characters\)", shown)
    assert headers["webhook-signature"] in run("deliveries", "export").stdout


def test_a_long_body_is_truncated_with_a_hint_to_print_all_of_it(run, shop):
    deliver(shop.app, b'{"x":"' + b"y" * 9_000 + b'"}', message_id="long")

    assert "`billhook deliveries show 5 --body` prints all of it" in run("deliveries", "show", "5").stdout


def test_export_is_json_lines_oldest_first(run, shop, monkeypatch):
    monkeypatch.setattr("billhook.inbox.reading.deliveries.BATCH", 8)  # batches of two

    lines = run("deliveries", "export").stdout.splitlines()
    dead = run("deliveries", "export", "--state", "dead").stdout.splitlines()

    assert [json.loads(line)["id"] for line in lines] == [1, 2, 3, 4]
    assert [json.loads(line)["key"] for line in dead] == ["m2"]
    recorded = [
        (one["what"], one["which"], one["deliveries"]) for one in json.loads(run("actions", "--json").stdout)
    ]
    assert recorded == [("export", "--state dead: 2", 1), ("export", "1-4", 4)]


def test_commands_without_an_inbox_fail_and_create_no_file(run, tmp_path):
    for command in (["deliveries", "list"], ["deliveries", "export"], ["status"], ["db", "upgrade"]):
        result = run(*command)
        assert result.exit_code == 2
        assert f"there is no inbox at {tmp_path / 'billhook.db'}: start the receiver" in result.stderr
        assert f"in a Flask app: flask --app … billhook {command[0]}" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_list_on_a_narrow_terminal_is_one_line_a_delivery(run, shop, monkeypatch):
    deliver(shop.app, b"{}", "CurrencyCommitmentUsageCrossed", message_id="k" * 100)
    monkeypatch.setenv("COLUMNS", "80")

    lines = run("deliveries", "list").stdout.splitlines()

    assert len(lines) == 2 + 5
    assert all(len(line) <= 80 for line in lines)
    assert " CurrencyCommitmentUsageCrossed " in lines[2]
    assert lines[2].endswith("…")


def test_an_error_that_is_only_text_has_the_same_form(run, shop):
    with shop.app_state.inbox.database.write() as connection:
        connection.exec_driver_sql("UPDATE delivery SET error='out of words' WHERE id=3")

    assert "not readable: out of words" in run("deliveries", "show", "3").stdout
    (line,) = run("deliveries", "export", "--state", "quarantined").stdout.splitlines()
    assert json.loads(line)["error"] == {"error": "out of words", "details": []}
