"""What all commands that select deliveries have in common; each is tested here for one or for all of them."""

from __future__ import annotations

import json
import re

import click
import pytest

from billhook.cli import selection
from billhook.inbox import DeliveryFilter, deliveries
from support.inbox_view import incoming

CHANGING = (
    ("replay",),
    ("erase",),
    ("discard", "--reason", "x"),
    ("forward", "--to", "http://127.0.0.1:9/", "--secret-file", "secret.txt"),
)


def test_either_ids_or_filters_select_what_is_changed(run, shop, secret_file):
    secret = secret_file("whsec_" + "A" * 43 + "=")

    for verb, *options in CHANGING:
        options = [secret if option == "secret.txt" else option for option in options]
        customer = "--customer " if verb == "erase" else ""
        missing = f"there is no delivery 99 in this inbox; nothing was {verb.removesuffix('e')}ed"
        refused = {
            f"nothing to {verb} is selected: give ids, or one of {customer}--type --state --error": (2, []),
            "give ids or filters, not both": (2, ["2", "--state", "dead"]),
            "--search-limit is for --contains TEXT": (2, ["--search-limit", "5"]),
            missing: (1, ["2", "99"]),
        }
        for told, (code, selected) in refused.items():
            result = run("deliveries", verb, *options, *selected, "--yes")
            assert (result.exit_code, told in " ".join(result.stderr.split())) == (code, True), result.stderr


def test_nothing_that_matches_is_no_failure_and_asks_nothing(run, shop):
    for more in ([], ["--dry-run"], ["--yes"]):
        result = run("deliveries", "replay", "--state", "received", *more)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "no deliveries match\n", "")


def test_a_search_that_finds_nothing_says_what_it_searched_and_what_comes_next(run, shop):
    shop.app_state.inbox.put(incoming("new", body=b'{"invoiceId":"inv_8"}'))
    listed = run("deliveries", "list", "--search", "inv_9")
    as_json = run("deliveries", "list", "--search", "inv_9", "--json")
    replayed = run("deliveries", "replay", "--search", "inv_8", "--state", "done", "--yes")
    changed_none = run("deliveries", "replay", "--search", "inv_9", "--json")

    first, searched, *steps = listed.stdout.splitlines()
    assert first == "no deliveries match"
    assert re.fullmatch(
        r"searched: .* received since [\d-]+, and the bodies of 1 that are not read yet", searched
    )
    assert re.findall("billhook [a-z]+", "\n".join(steps)) == [
        "billhook deliveries",
        "billhook reconcile",
        "billhook actions",
    ]
    assert (as_json.stdout, as_json.stderr) == ("[]\n", listed.stdout)
    assert "not read yet: billhook deliveries show 5" not in replayed.stdout  # another state is asked for
    assert json.loads(changed_none.stdout)["selected"] == 0
    assert changed_none.stderr == listed.stdout


def test_an_unread_delivery_is_listed_by_a_value_and_not_changed_by_it(run, shop):
    shop.app_state.inbox.put(incoming("new", body=b'{"invoiceId":"inv_8"}'))

    listed = run("deliveries", "list", "--search", "inv_8", "--json")
    discarded = run("deliveries", "discard", "--search", "inv_8", "--reason", "x", "--yes")

    assert [one["key"] for one in json.loads(listed.stdout)] == ["new"]
    assert "no deliveries match" in discarded.stdout
    assert "not read yet: billhook deliveries show 5" in discarded.stdout


def test_several_types_or_sources_select_what_has_one_of_them(run, shop):
    for options, ids in (
        ("--type PaymentFailed --type PingTest", [4, 3, 1]),
        ("--type PaymentFailed --type PingTest --state done", [4, 1]),
        ("--source default --source other", [4, 3, 2, 1]),
        ("--source other --source another", []),
    ):
        result = run("deliveries", "list", *options.split(), "--json")
        assert [one["id"] for one in json.loads(result.stdout)] == ids

    result = run("deliveries", "list", "--type", "InvoiceApprove", "--type", "PaymentFail")
    told = "no deliveries match; did you mean InvoiceApproved?; did you mean PaymentFailed?\n"
    assert (result.exit_code, result.stdout) == (0, told)


def test_the_rate_decides_the_size_of_batches(monkeypatch):
    waits = []
    monkeypatch.setattr(selection.time, "sleep", waits.append)
    monkeypatch.setattr(selection.time, "monotonic", lambda: 100.0)

    for rate, sizes in ((1000, [200, 50]), (100, [25] * 10), (8, [2] * 125), (0.5, [1] * 250)):
        waits.clear()
        batches = list(selection.paced([list(range(200)), list(range(50))], rate))
        assert [len(batch) for batch in batches] == sizes
        assert waits == [pytest.approx(sum(sizes[:number]) / rate) for number in range(len(sizes))]


def test_without_a_terminal_the_confirmation_names_the_yes_option(run, shop):
    for command in (["replay", "2"], ["discard", "2", "--reason", "x"], ["prune", "--older-than", "0"]):
        asked = run("deliveries", *command)
        refused = run("deliveries", *command, stdin="n\n")

        told = "nothing was changed: there is no terminal to confirm on; add --yes to skip the question"
        assert (asked.exit_code, told in asked.stderr, "Aborted" in asked.stderr) == (1, True, False)
        assert (refused.exit_code, "Aborted!" in refused.stderr) == (1, True)
    assert deliveries.count(shop.app_state.inbox, DeliveryFilter(state="dead")) == 1


def test_ctrl_c_at_the_question_aborts(monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: (_ for _ in ()).throw(click.Abort()))

    with pytest.raises(click.Abort):
        selection.confirm("Sure?")
