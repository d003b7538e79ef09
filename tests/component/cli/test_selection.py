"""What all commands that select deliveries have in common; each is tested here for one or for all of them."""

from __future__ import annotations

import json

import click
import pytest

from billhook.cli import selection
from billhook.inbox import DeliveryFilter
from billhook.inbox.reading import deliveries
from support.inbox_view import incoming


def test_an_unread_delivery_is_listed_by_a_value_and_not_changed_by_it(run, shop):
    shop.app_state.inbox.put(incoming("new", body=b'{"invoiceId":"inv_8"}'))

    listed = run("deliveries", "list", "--search", "inv_8", "--json")
    discarded = run("deliveries", "discard", "--search", "inv_8", "--reason", "x", "--yes")

    assert [one["key"] for one in json.loads(listed.stdout)] == ["new"]
    assert "no deliveries match" in discarded.stdout
    assert "not read yet: billhook deliveries show 5" in discarded.stdout


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
    for command in (
        ["replay", "2"],
        ["discard", "2", "--reason", "x"],
        ["erase", "2"],
        ["prune", "--older-than", "0"],
    ):
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
