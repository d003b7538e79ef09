"""`deliveries prune`: it asks, tells what went, and leaves the rest."""

from __future__ import annotations

import pytest

from support.inbox_view import change, rows


@pytest.fixture
def old(shop, where):
    """The shop's four deliveries: the first three 100, 30 and 5 days old, the last of today."""
    for delivery_id, days in ((1, 100), (2, 30), (3, 5)):
        moment = f"strftime('%Y-%m-%d %H:%M:%S.000000', 'now', '-{days} days')"
        change(where, f"UPDATE delivery SET received_at = {moment} WHERE id = {delivery_id}")
    return shop


def states(where):
    return dict(rows(where, "SELECT id, state FROM delivery ORDER BY id"))


def cells(result):
    """The table's rows, by their first cell."""
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines() if line and line[0].isalpha()]
    return {words[0]: words[1:] for words in lines if all(word.isdigit() for word in words[1:])}


def test_the_settings_are_the_default(run, old, where):
    change(where, "UPDATE delivery SET signed_at = NULL WHERE id = 1")
    run("deliveries", "prune", "--yes", RETENTION_DAYS="50")
    kept = states(where)
    run("deliveries", "prune", "--yes", RETENTION_DAYS="50", KEY_DAYS="60")

    assert kept[1] == "pruned"  # its key has no signed time
    assert states(where) == {2: "dead", 3: "quarantined", 4: "done"}
    assert (
        "no finished delivery is older than 50 days" in run("deliveries", "prune", RETENTION_DAYS="50").stdout
    )


def test_prune_asks_with_the_numbers_and_a_no_prunes_nothing(run, old, where):
    before = states(where)

    refused = run("deliveries", "prune", "--older-than", "1", stdin="n\n")
    kept = states(where)
    agreed = run("deliveries", "prune", "--older-than", "1", stdin="y\n")

    assert refused.exit_code == 1
    assert "Prune deliveries older than 1 day: 2 completely, 1 except for their keys? [y/N]" in refused.stderr
    assert kept == before
    assert agreed.exit_code == 0
    assert states(where) == {3: "pruned", 4: "done"}


def test_kept_keys_are_pruned_only_without_a_state_option(run, old, where):
    run("deliveries", "prune", "--older-than", "1", "--yes")
    change(where, "UPDATE delivery SET received_at = '2020-01-01 00:00:00.000000' WHERE id = 3")

    run("deliveries", "prune", "--older-than", "1", "--state", "done", "--yes")
    kept = states(where)
    result = run("deliveries", "prune", "--older-than", "1", "--yes")

    assert kept == {3: "pruned", 4: "done"}
    assert cells(result) == {"pruned": ["1", "0", "1"], "all": ["1", "0", "1"]}
    assert states(where) == {4: "done"}
