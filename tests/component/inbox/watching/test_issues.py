"""Issues: opened once, reopened by what happens later, resolved when nothing is left."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from billhook.inbox import RunState, WorkerRecord
from billhook.inbox.counting.counts import Counted
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.operating.operations import discard, erase, replay
from billhook.inbox.reading.deliveries import page
from billhook.inbox.running.filters import DeliveryFilter
from billhook.inbox.watching import issue_hours, issue_updates, issues, occurrences
from billhook.inbox.watching.issue_hours import by_hour
from billhook.inbox.watching.issue_updates import resolves_text, update_issues
from billhook.inbox.watching.issues import (
    IssueState,
    Replayable,
    change_issue,
    count_replayable,
    failing_delivery_ids,
    find_issue,
    list_issues,
    list_open,
    newest_traceback,
    of_issue,
)
from billhook.inbox.watching.notifications import read_due
from billhook.inbox.watching.occurrences import IssueKind
from support.inbox_view import NOON, column, incoming, value
from support.query_plans import query_plans, statements
from support.runs import claim, failed, planned, settle

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
SECOND = timedelta(seconds=1)


def fail(inbox, key, at=NOON, *, state=RunState.DEAD, group="bug", error="ValueError: cus_1 is gone"):
    """A delivery whose handler fails; returns its id."""
    return failed(inbox, key, seconds_to(at), state, group=group, error=error)


def seconds_to(at):
    return (at - NOON).total_seconds()


def claimed(inbox, at, only):
    (one,) = claim(inbox, 1, seconds_to(at), lease=HOUR, only=only)
    return one


def succeed(inbox, delivery_id, at):
    settle(inbox, [claimed(inbox, at, delivery_id)], seconds=seconds_to(at))


def of_kind(inbox, kind):
    return [one for one in list_issues(inbox) if one.kind is kind]


def only(inbox, kind=IssueKind.FAILURE):
    (one,) = of_kind(inbox, kind)
    return one


def test_failures_of_one_bug_are_one_issue_whatever_their_ids(inbox):
    ids = [
        fail(inbox, f"k{number}", NOON + number * SECOND, error=f"ValueError: cus_{number} is gone")
        for number in range(12)
    ]
    fail(inbox, "other", group="another bug", error="KeyError: 'plan'")

    assert update_issues(inbox, NOON + MINUTE) == 2  # its dead runs are no issue of their own
    one, other = sorted(of_kind(inbox, IssueKind.FAILURE), key=lambda one: -one.count)

    assert (one.subject, one.title, one.place) == ("h", "ValueError: … is gone", "shop.py:7 in book")
    assert (one.state, one.count, one.deliveries) == (IssueState.OPEN, 12, 12)
    assert (one.first_at, one.last_at) == (NOON, NOON + 11 * SECOND)
    assert one.examples == tuple(ids[:-4:-1])
    assert (other.title, other.count) == ("KeyError: …", 1)
    assert newest_traceback(inbox, one.id) == (ids[-1], "Traceback\nValueError: cus_11 is gone")
    assert find_issue(inbox, one.id) == one
    assert find_issue(inbox, "0" * 12) is find_issue(inbox, "\0") is None


def test_failures_of_many_issues_are_counted_by_hour_at_once(inbox, monkeypatch):
    monkeypatch.setattr(issue_hours, "_COUNTED_BY_HOUR", 3)
    for number, hours in enumerate((0.5, 1, 1.5, 24, 25.5)):
        fail(inbox, f"a{number}", NOON + hours * HOUR)
    fail(inbox, "b", NOON + 23.9 * HOUR, group="another bug", error="KeyError: 'plan'")
    update_issues(inbox, NOON + DAY)
    every, counted = list_issues(inbox, subject="h"), {}

    plans = query_plans(inbox, lambda: counted.update(by_hour(inbox, every, NOON + DAY)))

    assert {one.title: counted.get(one.id) for one in every} == {
        "ValueError: … is gone": [1, *[0] * 22, 1],  # the newest three, of which one is of a later hour
        "KeyError: …": [*[0] * 22, 1, 0],
    }
    assert len(plans) == 1


# --- live and quiet -------------------------------------------------------------------------------------


def live_at(inbox, at):
    """Whether the only issue is live, as `Issue` and the quick list of open ones have it."""
    (quick,) = list_open(inbox, at)
    assert quick.live == only(inbox).is_live(at)
    return quick.live


def test_a_bug_is_live_while_a_run_of_it_is_left_and_for_ten_minutes(inbox):
    one = fail(inbox, "a", state=RunState.DUE)
    update_issues(inbox, NOON)
    assert live_at(inbox, NOON + 9 * HOUR)  # the run is retried

    settle(inbox, claim(inbox, 1, 60), seconds=60)
    assert [live_at(inbox, NOON + minutes * MINUTE) for minutes in (9, 10)] == [True, False]
    assert only(inbox).standing(NOON + HOUR) == "open, quiet"

    fail(inbox, "b", NOON + HOUR)
    assert live_at(inbox, NOON + 9 * HOUR)  # dead
    replay(inbox, [one + 1], NOON + 9 * HOUR)
    assert live_at(inbox, NOON + 9 * HOUR)  # it is not handled yet
    settle(inbox, claim(inbox, 1, seconds_to(NOON + 9 * HOUR)), seconds=seconds_to(NOON + 9 * HOUR))
    assert not live_at(inbox, NOON + 9 * HOUR)


def test_runs_of_another_bug_do_not_make_an_issue_live(inbox):
    fail(inbox, "a", state=RunState.DUE)
    settle(inbox, claim(inbox, 1, 60), seconds=60)
    fail(inbox, "b", group="another", error="KeyError: 'x'")
    update_issues(inbox, NOON)

    assert {one.title: one.live for one in list_open(inbox, NOON + HOUR)} == {
        "ValueError: … is gone": False,
        "KeyError: …": True,
    }


def test_quarantine_and_dead_runs_are_live_and_what_is_resolved_is_neither(inbox):
    quarantine(inbox, "q", "no JSON")
    fail(inbox, "d", group=None)
    update_issues(inbox, NOON)

    assert {one.kind: one.standing(NOON + DAY) for one in list_issues(inbox)} == {
        IssueKind.QUARANTINE: "open, live",
        IssueKind.DEAD: "open, live",
    }
    for one in list_issues(inbox):
        change_issue(inbox, one.id, IssueState.RESOLVED, NOON, who="ada")
    assert {one.standing(NOON) for one in list_issues(inbox)} == {"resolved"}


def test_a_resolved_issue_opens_again_with_the_next_failure_and_not_before(inbox):
    fail(inbox, "a")
    update_issues(inbox, NOON + MINUTE)
    change_issue(inbox, only(inbox).id, IssueState.RESOLVED, NOON + 2 * MINUTE, who="ada", why="deployed")
    assert update_issues(inbox, NOON + 3 * MINUTE) == 0
    resolved = only(inbox)
    assert (resolved.state, resolved.who, resolved.why) == (IssueState.RESOLVED, "ada", "deployed")

    fail(inbox, "b", NOON + 4 * MINUTE)
    update_issues(inbox, NOON + 5 * MINUTE)

    again = only(inbox)
    assert (again.state, again.who, again.why) == (IssueState.OPEN, None, None)
    assert again.opened_at == NOON + 5 * MINUTE


def test_what_a_replay_would_make_due_again_and_when_the_issue_is_over_after_it(inbox):
    dead = [fail(inbox, key) for key in "ab"]
    retried = fail(inbox, "c", state=RunState.DUE)
    fail(inbox, "d", group="another bug")
    update_issues(inbox, NOON + MINUTE)
    one = next(each for each in of_kind(inbox, IssueKind.FAILURE) if each.count == 3)

    counted = [count_replayable(inbox, one)]
    told = [resolves_text(one, counted[0], NOON + MINUTE)]
    replay(inbox, [*dead, retried], NOON + MINUTE)
    for delivery_id in (*dead, retried):
        succeed(inbox, delivery_id, NOON + 2 * MINUTE)
        counted.append(count_replayable(inbox, one))
    told += [resolves_text(one, counted[-1], at) for at in (NOON + 3 * MINUTE, NOON - DAY, NOON + HOUR)]
    update_issues(inbox, NOON + HOUR)
    (over,) = (each for each in list_issues(inbox) if each.id == one.id)

    assert counted == [Replayable(2, 1), Replayable(), Replayable(), Replayable()]
    assert told == [
        "when its 3 runs are no longer dead or retried, after an hour of quiet",
        "at 13:00, unless it happens again",
        f"at {NOON:%Y-%m-%d} 13:00, unless it happens again",
        "with the next look of a worker",
    ]
    assert over.state is IssueState.RESOLVED
    assert resolves_text(over, Replayable(), NOON + HOUR) is None


def test_an_acknowledged_issue_stays_so_and_a_snoozed_one_until_its_time(inbox):
    fail(inbox, "a")
    fail(inbox, "b", group="another bug")
    update_issues(inbox, NOON + MINUTE)
    one, other = of_kind(inbox, IssueKind.FAILURE)
    change_issue(inbox, one.id, IssueState.ACKNOWLEDGED, NOON + MINUTE, who="ada")
    change_issue(inbox, other.id, IssueState.SNOOZED, NOON + MINUTE, who="ada", until=NOON + HOUR)

    for key, group in (("c", "bug"), ("d", "another bug")):
        fail(inbox, key, NOON + 10 * MINUTE, group=group)
    update_issues(inbox, NOON + 11 * MINUTE)

    states = {one.id: one.state for one in of_kind(inbox, IssueKind.FAILURE)}
    assert set(states.values()) == {IssueState.ACKNOWLEDGED, IssueState.SNOOZED}
    for key, group in (("e", "bug"), ("f", "another bug")):
        fail(inbox, key, NOON + 2 * HOUR, group=group)
    update_issues(inbox, NOON + 2 * HOUR)
    states = {one.id: one.state for one in of_kind(inbox, IssueKind.FAILURE)}
    assert states == {one.id: IssueState.ACKNOWLEDGED, other.id: IssueState.OPEN}


def test_a_snoozed_issue_is_resolved_after_its_time_if_nothing_of_it_is_left(inbox):
    delivery_id = fail(inbox, "a", state=RunState.DUE)
    update_issues(inbox, NOON)
    change_issue(
        inbox, only(inbox).id, IssueState.SNOOZED, NOON, who="ada", why="Acme", until=NOON + 9 * HOUR
    )
    update_issues(inbox, NOON + 8 * HOUR)
    assert only(inbox).state is IssueState.SNOOZED  # its run waits for a retry
    discard(inbox, [delivery_id], "given up", NOON + HOUR)

    assert update_issues(inbox, NOON + 8 * HOUR) == 0
    update_issues(inbox, NOON + 10 * HOUR)

    assert (only(inbox).state, only(inbox).why) == (IssueState.RESOLVED, None)


def test_one_is_resolved_by_itself_when_its_runs_succeed_and_an_hour_is_quiet(inbox):
    delivery_id = fail(inbox, "a", state=RunState.DUE)
    update_issues(inbox, NOON + MINUTE)
    assert only(inbox).state is IssueState.OPEN
    # Waits for its retry: not resolved, however long.
    assert update_issues(inbox, NOON + 3 * HOUR) == 0
    retry = claimed(inbox, NOON + 2 * MINUTE, delivery_id)
    assert update_issues(inbox, NOON + 3 * HOUR) == 0  # nor while the retry runs
    settle(inbox, [retry], seconds=120)

    assert update_issues(inbox, NOON + 30 * MINUTE) == 0
    assert update_issues(inbox, NOON + 61 * MINUTE) == 1

    assert only(inbox).state is IssueState.RESOLVED
    assert only(inbox).who is None


def test_dead_runs_are_an_issue_of_their_handler_until_none_is_left(inbox, where):
    """Of a bug that is known they are of its issue."""
    ids = [fail(inbox, "a", group=None), fail(inbox, "b", NOON + SECOND, group=None)]
    update_issues(inbox, NOON + MINUTE)
    dead = only(inbox, IssueKind.DEAD)
    assert (dead.subject, dead.title, dead.count, dead.deliveries) == ("h", "runs are dead", 2, 2)
    assert (dead.first_at, dead.last_at) == (NOON, NOON + SECOND)
    assert list(failing_delivery_ids(inbox, dead)) == [ids]

    replay(inbox, ids, NOON + 2 * MINUTE)
    update_issues(inbox, NOON + 3 * MINUTE)

    assert only(inbox, IssueKind.DEAD).state is IssueState.RESOLVED


def test_the_deliveries_of_a_failure_are_those_that_its_bug_keeps_from_being_done(inbox):
    dead = fail(inbox, "dead")
    retrying = fail(inbox, "retrying", state=RunState.DUE)
    fail(inbox, "other", group="another bug")
    update_issues(inbox, NOON + MINUTE)
    one = max(of_kind(inbox, IssueKind.FAILURE), key=lambda one: one.count)

    assert list(failing_delivery_ids(inbox, one)) == [[dead, retrying]]


def prune_all(inbox):
    inbox.prune(Cutoffs.of(NOON + DAY, 0.5), after=0, limit=100)


def erase_all(inbox):
    erase(inbox, [1, 2], NOON + DAY)


@pytest.mark.parametrize("remove", [prune_all, erase_all])
def test_an_issues_numbers_outlive_its_failures(inbox, where, remove):
    for number in range(2):
        fail(inbox, f"k{number}", NOON + number * HOUR)
    update_issues(inbox, NOON + 2 * HOUR)

    remove(inbox)
    fail(inbox, "later", NOON + DAY)

    assert value(where, "SELECT count(*) FROM failure") == 1
    one = only(inbox)
    assert (one.count, one.deliveries, one.examples) == (3, 1, (3,))
    assert (one.first_at, one.last_at) == (NOON, NOON + DAY)
    assert by_hour(inbox, [one], NOON + 23 * HOUR)[one.id] == [1, 1, *[0] * 22]
    assert by_hour(inbox, [one], NOON + DAY)[one.id] == [1, *[0] * 22, 1]


def test_a_replay_and_a_discard_count_no_failure_twice(inbox):
    delivery_id = fail(inbox, "k")
    update_issues(inbox, NOON + MINUTE)

    replay(inbox, [delivery_id], NOON + HOUR)
    discard(inbox, [delivery_id], "given up", NOON + HOUR)

    assert only(inbox).count == 1


def test_the_numbers_of_an_issue_go_with_its_row(inbox, where):
    fail(inbox, "k")
    update_issues(inbox, NOON + MINUTE)
    prune_all(inbox)
    assert value(where, "SELECT number FROM billhook_count WHERE what = 'issue'") == 1

    update_issues(inbox, NOON + DAY)
    update_issues(inbox, NOON + 32 * DAY)

    assert value(where, "SELECT count(*) FROM billhook_issue") == 0
    assert value(where, "SELECT count(*) FROM billhook_count WHERE what = 'issue'") == 0


def listed(inbox, one):
    return [each.id for each in page(inbox, of_issue(inbox, DeliveryFilter(issue=one.id)), 10)]


def test_a_filter_selects_the_deliveries_of_an_issue_of_each_kind(inbox):
    done = fail(inbox, "done", state=RunState.DUE)
    succeed(inbox, done, NOON + MINUTE)
    dead, other = fail(inbox, "dead"), fail(inbox, "other", group="another bug")
    reasons = ("the body is not JSON", "no amount", "the body is not JSON")
    unreadable = [quarantine(inbox, f"m{number}", reason) for number, reason in enumerate(reasons)]
    update_issues(inbox, NOON + MINUTE)

    failures, quarantined = (
        {one.count: one for one in of_kind(inbox, kind)} for kind in (IssueKind.FAILURE, IssueKind.QUARANTINE)
    )

    assert listed(inbox, failures[2]) == [dead, done]
    assert listed(inbox, failures[1]) == [other]
    assert of_kind(inbox, IssueKind.DEAD) == []
    assert listed(inbox, quarantined[2]) == [unreadable[2], unreadable[0]]
    assert page(inbox, DeliveryFilter(issue="0" * 12), 10) == []


def quarantine(inbox, key, reason, at=NOON):
    error = json.dumps({"error": reason, "details": []})
    return planned(inbox, key=key, seconds=seconds_to(at), error=error, at=at)


def test_quarantine_is_an_issue_for_each_reason(inbox):
    one, two = (quarantine(inbox, key, f"the body of {key} is not valid: amount") for key in ("m1", "m2"))
    quarantine(inbox, "m3", "the body is not JSON")

    update_issues(inbox, NOON + MINUTE)

    first, second = sorted(of_kind(inbox, IssueKind.QUARANTINE), key=lambda one: -one.count)
    assert (first.title, first.count, first.examples) == ("the body of … is not valid: amount", 2, (two, one))
    assert (first.heading, first.newest_error) == ("the body of m2 is not valid: amount",) * 2
    assert (second.title, second.heading, second.count) == ("the body is not JSON", "the body is not JSON", 1)
    assert list(failing_delivery_ids(inbox, first)) == [[one, two]]


def test_a_quarantine_older_than_those_looked_at_is_not_resolved(inbox, monkeypatch):
    monkeypatch.setattr(occurrences, "MOST", 2)
    monkeypatch.setattr(issue_updates, "MOST", 2)
    first = quarantine(inbox, "m1", "the body is not JSON")
    update_issues(inbox, NOON)
    for key in ("m2", "m3"):
        quarantine(inbox, key, "no amount", NOON + MINUTE)

    update_issues(inbox, NOON + MINUTE)
    assert {one.state for one in list_issues(inbox)} == {IssueState.OPEN}

    replay(inbox, [first], NOON + 2 * MINUTE)  # the control: nothing is left of it
    update_issues(inbox, NOON + 2 * MINUTE)
    states = {one.title: one.state for one in list_issues(inbox)}
    assert states == {"the body is not JSON": IssueState.RESOLVED, "no amount": IssueState.OPEN}


def test_workers_that_are_gone_are_an_issue_until_one_is_back(inbox):
    record = WorkerRecord("host:1:x", "worker", 1, NOON)
    inbox.record_worker(record, NOON)
    assert update_issues(inbox, NOON + MINUTE) == 0

    update_issues(inbox, NOON + 2 * MINUTE)
    gone = only(inbox, IssueKind.WORKER)
    assert gone.title == "no worker is alive"
    assert (gone.first_at, gone.last_at, gone.opened_at) == (NOON, NOON, NOON + 2 * MINUTE)

    inbox.record_worker(record, NOON + 3 * MINUTE)
    update_issues(inbox, NOON + 3 * MINUTE)
    assert only(inbox, IssueKind.WORKER).state is IssueState.RESOLVED


def test_a_lost_worker_and_an_interrupted_run(inbox, where):
    """Neither is an issue: other runs were beside the one that was lost, and a stop is in order."""
    delivery_id = planned(inbox, "h")
    claim(inbox, 1, lease=SECOND)
    interrupted = claimed(inbox, NOON + MINUTE, delivery_id)
    update_issues(inbox, NOON + MINUTE)
    assert list_issues(inbox) == []

    settle(inbox, [interrupted], RunState.DUE, 60, due=60, error="it was stopped", uncounted=True)
    assert column(where, "SELECT fingerprint FROM failure") == [None, None]


@pytest.mark.parametrize("is_over", [False, True])
def test_erasing_a_delivery_clears_the_texts_of_its_issues_whatever_became_of_it_since(inbox, is_over):
    erased = [fail(inbox, "a", error="ValueError: Acme has no plan"), quarantine(inbox, "q", "for: Acme")]
    fail(inbox, "other", group="another bug", error="KeyError: Beta")
    update_issues(inbox, NOON + MINUTE)
    state = IssueState.RESOLVED if is_over else IssueState.ACKNOWLEDGED
    for one in list_issues(inbox):
        change_issue(inbox, one.id, state, NOON + MINUTE, who="ada", why="Acme called")
    if is_over:
        replay(inbox, erased[:1], NOON + MINUTE)
        succeed(inbox, erased[0], NOON + HOUR)
        discard(inbox, erased[1:], "why", NOON + HOUR)

    erase(inbox, erased, NOON + HOUR)

    # The control: of a delivery that is not erased.
    shown = {"ValueError": None, "quarantined": None, "KeyError: Beta": "Acme called"}
    assert {one.title: one.why for one in list_issues(inbox)} == shown


def test_an_issue_whose_last_failure_was_pruned_keeps_no_text(inbox):
    fail(inbox, "a", error="ValueError: Acme", state=RunState.DEAD)
    update_issues(inbox, NOON)
    fail(inbox, "b", NOON + HOUR, error="ValueError: Acme", state=RunState.DEAD)
    before = only(inbox)
    change_issue(inbox, before.id, IssueState.SNOOZED, NOON, who="ada", why="Acme pays late")

    inbox.prune(Cutoffs.of(NOON + 30 * MINUTE, 0))
    assert only(inbox).why == "Acme pays late"
    inbox.prune(Cutoffs.of(NOON + 2 * HOUR, 0))

    assert before.title.startswith("ValueError: ")
    assert (only(inbox).title, only(inbox).why) == ("ValueError", None)


def test_an_issue_of_quarantine_keeps_no_text_when_the_last_delivery_of_its_type_is_pruned(inbox):
    def quarantined(key, event_type, at):
        text = "customer: Acme is no id"
        planned(inbox, key=key, seconds=seconds_to(at), error=text, event_type=event_type, at=at)

    def told():
        return {one.subject: (one.title, one.why) for one in list_issues(inbox)}

    for key, event_type, at in (("a", "PingTest", NOON), ("b", "PingTest", NOON + HOUR), ("c", "B", NOON)):
        quarantined(key, event_type, at)
    quarantined("d", "B", NOON + 3 * HOUR)
    update_issues(inbox, NOON)
    for one in list_issues(inbox):
        change_issue(inbox, one.id, IssueState.ACKNOWLEDGED, NOON, who="ada", why="Acme again")
    whole = ("customer: Acme is no id", "Acme again")

    inbox.prune(Cutoffs.of(NOON + 30 * MINUTE, 0))
    assert told() == {"PingTest": whole, "B": whole}
    inbox.prune(Cutoffs.of(NOON + 2 * HOUR, 0))
    assert told() == {"PingTest": ("quarantined", None), "B": whole}


def test_many_deliveries_of_an_issue_come_in_parts(inbox, monkeypatch):
    monkeypatch.setattr(issues, "_BATCH", 2)
    ids = [fail(inbox, key, NOON, group=None) for key in "abcde"]
    inbox.record_worker(WorkerRecord("host:1:x", "worker", 1, NOON), NOON)
    update_issues(inbox, NOON + HOUR)

    assert list(failing_delivery_ids(inbox, only(inbox, IssueKind.DEAD))) == [ids[:2], ids[2:4], ids[4:]]
    assert list(failing_delivery_ids(inbox, only(inbox, IssueKind.WORKER))) == []


def test_of_more_issues_than_are_listed_the_resolved_ones_are_left_out(inbox, monkeypatch):
    monkeypatch.setattr(issues, "MOST", 2)
    for number in range(4):
        at = NOON + number * MINUTE
        for one in list_issues(inbox):
            change_issue(inbox, one.id, IssueState.RESOLVED, at, who="ada")
        fail(inbox, f"k{number}", at, state=RunState.DUE, group=f"bug {number}")
        update_issues(inbox, at)

    assert [one.state for one in list_issues(inbox)] == [IssueState.OPEN, IssueState.RESOLVED]


def test_two_processes_that_open_the_same_issues_in_another_order_both_succeed(inbox, monkeypatch):
    original, opening = issue_updates.occurrences, issue_updates._open
    order, both = iter([False, True]), threading.Barrier(2)

    def ordered(connection, now, figures):
        found, is_reversed = original(connection, now, figures), next(order, None)
        if is_reversed is None:
            return found
        both.wait(20)
        return dict(sorted(found.items(), reverse=is_reversed))

    def slowly(*arguments):
        opening(*arguments)
        time.sleep(0.2)

    fail(inbox, "a")
    fail(inbox, "b", group="another bug")
    monkeypatch.setattr(issue_updates, "occurrences", ordered)
    monkeypatch.setattr(issue_updates, "_open", slowly)
    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(update_issues, inbox, NOON, with_figures=False) for _ in range(2)]
        assert [look.result(20) for look in looks] == [2, 2]


def test_no_issue_opens_with_the_text_of_a_failure_that_is_erased_meanwhile(inbox, monkeypatch):
    first = fail(inbox, "a", error="ValueError: Acme", group="bug")
    fail(inbox, "b", error="ValueError: no plan", group="another bug")
    last = fail(inbox, "c", error="ValueError: Acme again", group="another bug")
    write = inbox.database.write

    def late():
        monkeypatch.setattr(inbox.database, "write", write)
        erase(inbox, [first, last], NOON)
        return write()

    monkeypatch.setattr(inbox.database, "write", late)
    update_issues(inbox, NOON + MINUTE)

    assert [one.title for one in of_kind(inbox, IssueKind.FAILURE)] == ["ValueError: no plan"]


def test_what_an_operator_says_of_an_issue_that_is_about_to_open_again_stays(inbox, monkeypatch):
    fail(inbox, "a", state=RunState.DUE)
    update_issues(inbox, NOON)
    change_issue(inbox, only(inbox).id, IssueState.RESOLVED, NOON, who="ada")
    fail(inbox, "b", NOON + MINUTE, state=RunState.DUE)
    write = inbox.database.write

    def late():
        monkeypatch.setattr(inbox.database, "write", write)
        change_issue(inbox, only(inbox).id, IssueState.SNOOZED, NOON + MINUTE, who="ada", until=NOON + DAY)
        return write()

    monkeypatch.setattr(inbox.database, "write", late)
    update_issues(inbox, NOON + MINUTE)

    assert only(inbox).state is IssueState.SNOOZED


def test_a_process_that_meets_another_ones_commit_opens_none_and_does_not_fail(inbox, where):
    fail(inbox, "a")
    with ThreadPoolExecutor(1) as pool:
        with inbox.database.read() as connection:
            found = issue_updates.occurrences(connection, NOON)
        with inbox.database.write() as connection:
            for each in found.values():
                issue_updates._open(connection, each, None, NOON)
            other = pool.submit(update_issues, inbox, NOON + MINUTE, with_figures=False)
            time.sleep(0.3)  # it has read, and waits for this transaction
        other.result(20)

    assert value(where, "SELECT count(*) FROM billhook_issue") == 1
    assert only(inbox).opened_at == NOON


def test_a_look_costs_the_same_with_many_failures(inbox):
    for number in range(30):
        fail(inbox, f"k{number}")
    update_issues(inbox, NOON + MINUTE)

    with statements(inbox) as asked:
        update_issues(inbox, NOON + MINUTE, with_figures=False)

    assert len(asked) <= 13  # two or three of them begin and verify


def test_quarantined_deliveries_are_read_once_for_all_issues_of_a_list(inbox):
    for number in range(4):
        quarantine(inbox, f"q{number}", f"reason {'abcd'[number]}")
    update_issues(inbox, NOON)

    plans = query_plans(inbox, lambda: list_issues(inbox))

    assert [one.count for one in list_issues(inbox)] == [1] * 4
    assert len(plans) == 2  # with the one for what they are about


# --- silence and refusals, which are in the figures -----------------------------------------------------


def test_a_type_that_has_stopped_coming_is_an_issue_until_it_comes_again(inbox):
    for day in range(10):
        inbox.put(incoming(f"{day}", at=NOON + day * DAY))
    last_at = NOON + 9 * DAY
    update_issues(inbox, last_at + HOUR)
    assert of_kind(inbox, IssueKind.SILENCE) == []

    update_issues(inbox, last_at + 3 * DAY, with_figures=False)
    assert of_kind(inbox, IssueKind.SILENCE) == []  # not looked for: it costs more than the others
    update_issues(inbox, last_at + 3 * DAY)
    silent = only(inbox, IssueKind.SILENCE)
    assert (silent.subject, silent.title) == (
        "PingTest",
        "PingTest has stopped coming: its longest gap in 30 days was at most 1 d 1 h",
    )
    assert update_issues(inbox, last_at + 3 * DAY, with_figures=False) == 0

    inbox.put(incoming("again", at=last_at + 3 * DAY + HOUR))
    update_issues(inbox, last_at + 3 * DAY + 2 * HOUR)
    assert only(inbox, IssueKind.SILENCE).state is IssueState.RESOLVED


@pytest.mark.parametrize(("minutes", "kinds"), [(14, []), (15, [IssueKind.REFUSED])])
def test_forged_requests_are_no_issue_while_genuine_deliveries_are_accepted(inbox, minutes, kinds):
    inbox.put(incoming("k", at=NOON))
    for source in ("default", "other"):
        for _ in range(60):
            at = NOON + minutes * MINUTE
            inbox.count(Counted.REFUSED, at, source=source, cause="mismatch")
            if source == "other":
                inbox.count(Counted.DUPLICATE, at, source=source, event_type="PingTest")
    inbox._counts.close()

    update_issues(inbox, NOON + minutes * MINUTE)

    assert [one.kind for one in list_issues(inbox)] == kinds


@pytest.mark.parametrize(("signed", "kinds"), [(50, []), (51, [IssueKind.REFUSED])])
def test_refusals_are_an_issue_above_a_limit_and_those_of_strangers_never(inbox, signed, kinds):
    for cause, number in (("mismatch", signed - 1), ("stale", 1), ("missing", 1_000), ("malformed", 1_000)):
        for _ in range(number):
            inbox.count(Counted.REFUSED, NOON, source="default", cause=cause)
    inbox._counts.close()  # writes what was counted

    update_issues(inbox, NOON + MINUTE)

    assert [one.kind for one in list_issues(inbox)] == kinds
    assert read_due(inbox).issues == []  # a stranger could cause them
    update_issues(inbox, NOON + 3 * HOUR)
    assert [one.state for one in list_issues(inbox)] == [IssueState.RESOLVED] * len(kinds)
