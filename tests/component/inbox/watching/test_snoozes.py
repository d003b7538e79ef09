"""Snoozed issues: silent, no reason for a warning, and back by themselves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billhook.inbox import RunPlan, RunState
from billhook.inbox.operating.operations import replay
from billhook.inbox.watching import occurrences
from billhook.inbox.watching.conditions import Facts
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import Issue, IssueState, change_issue, list_issues
from billhook.inbox.watching.judgement import judge
from billhook.inbox.watching.notifications import read_due
from billhook.inbox.watching.occurrences import IssueKind, Occurrence
from support.inbox_view import NOON, change, incoming
from support.runs import claim, failed, planned, settle

ERROR = "ValueError: gone"
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def fail(inbox, key, at=NOON, state=RunState.DEAD, group="bug"):
    return failed(inbox, key, seconds=(at - NOON).total_seconds(), state=state, group=group, error=ERROR)


def quarantine(inbox, key, at=NOON):
    delivery_id = inbox.put(incoming(key, at=at)).delivery_id
    with inbox.transaction("a") as transaction:
        transaction.plan([RunPlan(delivery_id, (), "unreadable")], at)


def only(inbox) -> Issue:
    (one,) = list_issues(inbox)
    return one


def snooze(inbox, at=NOON, **until) -> Issue:
    update_issues(inbox, at, with_figures=False)
    change_issue(inbox, only(inbox).id, IssueState.SNOOZED, at, who="ada", **until)
    return only(inbox)


def state_at(inbox, at) -> IssueState:
    update_issues(inbox, at, with_figures=False)
    return only(inbox).state


def held(inbox, at) -> dict[str, str]:
    """The conditions that need attention, but for that no worker is there."""
    found = judge(Facts(inbox, at, engine="inline")).problems
    return {one.condition.name: one.text for one in found}


def test_at_its_time_it_is_open_again_although_nothing_has_happened_since(inbox):
    fail(inbox, "a")
    snoozed = snooze(inbox, until=NOON + 2 * HOUR)

    assert snoozed.snooze_text == "until 2026-01-15 14:00 UTC"
    assert state_at(inbox, NOON + 2 * HOUR - MINUTE) is IssueState.SNOOZED
    assert read_due(inbox).issues == []
    assert state_at(inbox, NOON + 2 * HOUR) is IssueState.OPEN
    again = only(inbox)
    assert (again.opened_at, again.who, again.snooze_text) == (NOON + 2 * HOUR, None, None)
    assert [one.id for one in read_due(inbox).issues] == [again.id]


def test_at_its_time_it_is_resolved_if_its_runs_have_succeeded(inbox):
    delivery_id = fail(inbox, "a")
    snooze(inbox, until=NOON + 2 * HOUR)
    replay(inbox, [delivery_id], NOON)
    settle(inbox, claim(inbox, 1, 1), seconds=2)

    assert state_at(inbox, NOON + HOUR) is IssueState.SNOOZED
    assert state_at(inbox, NOON + 2 * HOUR) is IssueState.RESOLVED
    assert read_due(inbox).issues == []


@pytest.mark.parametrize("kind", ["failure", "dead", "quarantine"])
def test_it_is_open_again_once_it_has_happened_so_many_more_times_and_not_before(inbox, where, kind):
    def happen(number):
        at = NOON + number * MINUTE
        if kind == "quarantine":
            quarantine(inbox, f"k{number}", at)
            return
        fail(inbox, f"k{number}", at, group="bug" if kind == "failure" else None)

    for number in (-2, -1):
        happen(number)
    snoozed = snooze(inbox, more=3)
    states = []
    for number in (1, 2, 3):
        happen(number)
        states.append(state_at(inbox, NOON + number * MINUTE))

    assert snoozed.kind == kind
    assert snoozed.snooze_text == "until 3 more, or 2026-02-14 12:00 UTC"
    assert states == [IssueState.SNOOZED, IssueState.SNOOZED, IssueState.OPEN]


def test_one_that_never_happens_so_often_comes_back_after_thirty_days(inbox):
    fail(inbox, "a", state=RunState.DUE)
    snooze(inbox, more=3)

    assert state_at(inbox, NOON + 29 * DAY) is IssueState.SNOOZED
    assert state_at(inbox, NOON + 30 * DAY) is IssueState.OPEN


def test_the_time_and_the_number_end_it_whichever_is_first(inbox):
    fail(inbox, "a")
    snooze(inbox, until=NOON + HOUR, more=1)
    fail(inbox, "b", NOON + MINUTE)

    assert state_at(inbox, NOON + 2 * MINUTE) is IssueState.OPEN

    snooze(inbox, NOON + 3 * MINUTE, until=NOON + HOUR, more=1)
    assert state_at(inbox, NOON + HOUR) is IssueState.OPEN


def test_what_is_snoozed_is_no_reason_for_a_warning_and_what_is_beside_it_is(inbox):
    fail(inbox, "a")
    update_issues(inbox, NOON, with_figures=False)
    before = held(inbox, NOON)
    snooze(inbox, until=NOON + HOUR)
    during = held(inbox, NOON)
    fail(inbox, "b", group="another bug")
    beside = held(inbox, NOON)

    assert {name: before[name] for name in ("dead", "failing")} == {
        "dead": "1 delivery is dead",
        "failing": "h fails: ValueError",
    }
    assert not {"dead", "failing"} & during.keys()
    assert beside["dead"] == "1 delivery is dead"


def test_a_delivery_is_of_snoozed_issues_only_if_each_of_its_dead_runs_is(inbox):
    planned(inbox, "first", "second", key="both")
    for one in claim(inbox, 2):
        settle(inbox, [one], RunState.DEAD, group=f"bug of {one.handler}")
    update_issues(inbox, NOON, with_figures=False)
    first, second = list_issues(inbox)

    change_issue(inbox, first.id, IssueState.SNOOZED, NOON, who="ada", until=NOON + HOUR)
    one_of_them = held(inbox, NOON)
    change_issue(inbox, second.id, IssueState.SNOOZED, NOON, who="ada", until=NOON + HOUR)
    both = held(inbox, NOON)

    assert one_of_them["dead"] == "1 delivery is dead"
    assert "dead" not in both


def test_dead_runs_without_a_stored_failure_and_quarantine_are_no_reason_either(inbox, where):
    fail(inbox, "a")
    change(where, "DELETE FROM failure")
    snooze(inbox, until=NOON + HOUR)
    quarantine(inbox, "q")
    quarantined = held(inbox, NOON)
    update_issues(inbox, NOON, with_figures=False)
    for one in list_issues(inbox):
        change_issue(inbox, one.id, IssueState.SNOOZED, NOON, who="ada", until=NOON + HOUR)

    assert "dead" not in quarantined
    assert quarantined["quarantined"] == "1 delivery is quarantined"
    assert not {"dead", "quarantined"} & held(inbox, NOON).keys()


@pytest.mark.parametrize(
    ("kind", "name", "is_shown"),
    [(IssueKind.SLOW, "slow", False), (IssueKind.CRASH_LOOP, "crash-loop", True)],
)
def test_what_is_critical_is_shown_although_it_is_snoozed(inbox, monkeypatch, kind, name, is_shown):
    found = Occurrence("f" * 12, kind, "h", "it is so", None, NOON)
    for place in ("conditions.read_occurrences", "issue_updates.occurrences"):
        answer = [found] if "read" in place else {found.fingerprint: found}
        monkeypatch.setattr(f"billhook.inbox.watching.{place}", lambda *_, answer=answer: answer)
    monkeypatch.setattr(occurrences, "read_state", lambda *_: None)
    update_issues(inbox, NOON, with_figures=False)
    before = held(inbox, NOON)

    snooze(inbox, until=NOON + HOUR)

    assert before[name] == "it is so"
    assert (name in held(inbox, NOON)) is is_shown
