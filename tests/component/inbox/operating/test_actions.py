"""The record of what operators did: its rows, its line in the log, and how long it is kept."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from billhook.inbox.operating.actions import KEPT_FOR, list_actions, prune_actions, recorded
from support.inbox_view import NOON, rows
from support.postgres import only_sqlite


def test_an_action_is_a_row_and_a_line_of_the_log(inbox, caplog):
    with caplog.at_level(logging.INFO), recorded(inbox, "ada", "replay", "--state dead", NOON) as recorder:
        recorder.add(2, [1, 2])
        recorder.add(1, [3, 9])

    (action,) = list_actions(inbox, 9)
    assert (action.at, action.who, action.what) == (NOON, "ada", "replay")
    assert (action.which, action.deliveries) == ("--state dead: 1-3, 9", 3)
    (record,) = [one for one in caplog.records if one.name == "billhook.actions"]
    assert record.getMessage() == "replay by ada: --state dead: 1-3, 9 (3 deliveries)"
    assert (record.who, record.action, record.count) == ("ada", "replay", 3)


@only_sqlite
def test_an_action_that_fails_has_its_row_and_its_line(inbox, caplog):
    with caplog.at_level(logging.INFO), pytest.raises(KeyError), recorded(inbox, "a", "erase", "7", NOON):
        raise KeyError

    assert [(one.what, one.which, one.deliveries) for one in list_actions(inbox, 9)] == [("erase", "7", None)]
    assert "erase by a: 7" in caplog.messages


def test_the_row_is_there_before_the_first_change(inbox, where):
    with recorded(inbox, "ada", "erase", "1-3", NOON) as recorder:
        assert rows(where, "SELECT what, which, deliveries FROM billhook_action") == [("erase", "1-3", None)]
        recorder.add(0)

    assert rows(where, "SELECT deliveries FROM billhook_action") == [(0,)]


@only_sqlite
def test_many_ids_are_cut_and_counted(inbox):
    with recorded(inbox, "ada", "discard", "", NOON) as recorder:
        for start in range(0, 2_000, 200):
            recorder.add(100, range(start, start + 200, 2))

    (action,) = list_actions(inbox, 9)
    assert action.which.startswith("0, 2, 4, ")
    assert action.which.endswith(", …")
    assert len(action.which) < 300
    assert action.deliveries == 1_000


def test_actions_are_listed_newest_first_in_pages(inbox):
    for hour in range(4):
        with recorded(inbox, "ada", "pause", f"h{hour}", NOON + timedelta(hours=hour)):
            pass

    first = list_actions(inbox, 2)
    rest = list_actions(inbox, 9, below=first[-1].id)
    late = list_actions(inbox, 9, since=NOON + timedelta(hours=3))

    assert [one.which for one in (*first, *rest)] == ["h3", "h2", "h1", "h0"]
    assert [one.which for one in late] == ["h3"]


@pytest.mark.parametrize("by", ["the next action", "the engines' maintenance"])
def test_actions_are_kept_for_thirteen_months(inbox, by):
    assert timedelta(days=365 + 30) < KEPT_FOR < timedelta(days=365 + 32)
    for at, which in ((NOON, "old"), (NOON + timedelta(days=2), "young")):
        with recorded(inbox, "ada", "pause", which, at):
            pass
    later = NOON + KEPT_FOR + timedelta(days=1)

    if by == "the next action":
        with recorded(inbox, "ada", "pause", "new", later):
            pass
    else:
        prune_actions(inbox, later)

    left = [one.which for one in list_actions(inbox, 9)]
    assert left == (["new", "young"] if by == "the next action" else ["young"])


@only_sqlite
def test_a_name_from_outside_is_printable_and_cut(inbox):
    with recorded(inbox, "eve\x1b[2J" + "x" * 500, "pause", "h", NOON):
        pass

    (action,) = list_actions(inbox, 9)
    assert action.who.startswith(r"eve\x1b[2J")
    assert len(action.who) == 100
