"""How fast deliveries are handled: when a backlog grows, and when a handler is slow.

Each table has scenarios in which the condition holds beside those in which it must not.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest
from sqlalchemy import insert

from billhook.inbox import HandlerLimits, WorkerRecord, pace
from billhook.inbox.condition_checks import Facts
from billhook.inbox.conditions import judge
from billhook.inbox.counts import DURATION_BOUNDS, CountKey, Counts, Sum, hour_of
from billhook.inbox.issue_updates import update_issues
from billhook.inbox.issues import IssueState, change_issue, list_issues
from billhook.inbox.occurrences import IssueKind
from billhook.inbox.schema import delivery, run
from support.inbox_view import NOON

SECOND, MINUTE, HOUR = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours"))
NOW = NOON + 30 * MINUTE


class Rows:
    """Deliveries with their runs, as workers leave them."""

    def __init__(self, inbox):
        self._inbox, self._ids = inbox, count(1)

    def add(self, number, minutes, runs=(), *, state=None, took=0.05):
        """Deliveries of which the first came and the last came so many minutes ago, spread evenly.

        `runs` are pairs of a handler and the state of its run; one that waits is due since its delivery came,
        and a "retry" in an hour; a finished one finished as soon as the delivery came.
        """
        first, last = minutes
        deliveries, made = [], []
        for index in range(number):
            one = next(self._ids)
            came_at = NOW - (first - (first - last) * index / max(1, number - 1)) * MINUTE
            finished = all(each in ("succeeded", "dead") for _, each in runs)
            deliveries.append(
                {
                    "id": one,
                    "source": "default",
                    "key": f"k{one}",
                    "event_type": "PingTest",
                    "body": b"{}",
                    "headers": "{}",
                    "state": state or ("done" if finished else "planned"),
                    "received_at": came_at,
                }
            )
            for handler, run_state in runs:
                is_finished = run_state in ("succeeded", "dead")
                made.append(
                    {
                        "delivery_id": one,
                        "handler": handler,
                        "attempts": 1,
                        "token": 1,
                        "state": "due" if run_state == "retry" else run_state,
                        "due_at": NOW + HOUR if run_state == "retry" else came_at,
                        "finished_at": came_at if is_finished else None,
                        "duration_seconds": took if is_finished else None,
                    }
                )
        with self._inbox.database.write() as connection:
            connection.execute(insert(delivery), deliveries)
            if made:
                connection.execute(insert(run), made)


@pytest.fixture
def put(inbox):
    return Rows(inbox).add


def worker_is_alive(inbox):
    inbox.record_worker(WorkerRecord("w", "worker", 1, NOON), NOW)


def held(inbox):
    return {one.condition.name: one for one in judge(Facts(inbox, NOW, "worker")).holding}


DONE, DUE = [("book", "succeeded")], [("book", "due")]
BACKLOGS = {
    # More comes than is handled: a third of it.
    "unread": ([(200, (20, 0), (), "received"), (100, (9, 0), DONE)], True),
    "due": ([(200, (20, 0), DUE), (50, (9, 0), DONE)], True),
    "behind one of two handlers": ([(200, (20, 0), [("mail", "succeeded"), ("book", "due")])], True),
    "two runs for each delivery": (
        [(200, (20, 0), (), "received"), (70, (9, 0), [("mail", "succeeded"), ("book", "succeeded")])],
        True,
    ),
    "while another handler is paused": (
        [(300, (20, 0), [("mail", "due")]), (200, (20, 0), (), "received"), (20, (9, 0), DONE)],
        True,
    ),
    "79 of 100": ([(200, (30, 11), DUE), (21, (9, 0), DUE), (79, (9, 0), DONE)], True),
    # Not a backlog that grows:
    "80 of 100": ([(200, (30, 11), DUE), (20, (9, 0), DUE), (80, (9, 0), DONE)], False),
    "a burst that is being handled": ([(600, (15, 14), DUE), (400, (15, 9), DONE)], False),
    "a burst of nine minutes": ([(900, (9, 0), DUE)], False),
    "a burst while one old delivery is retried": (
        [(900, (9, 0), DUE), (1, (25, 25), [("book", "retry")])],
        False,
    ),
    "99 deliveries": ([(99, (20, 0), DUE)], False),
    "no handler for most of it": ([(150, (30, 11), DUE), (500, (9, 0), ())], False),
    "a handler is paused": ([(300, (20, 0), [("mail", "due")])], False),
    "a handler is paused beside another that keeps up": (
        [(300, (20, 0), [("book", "succeeded"), ("mail", "due")])],
        False,
    ),
    "a bug, so that all are retried": ([(300, (20, 0), [("book", "retry")])], False),
    "a bug, so that most are retried": ([(300, (20, 0), [("book", "retry")]), (20, (20, 0), DUE)], False),
}


@pytest.mark.parametrize("scenario", BACKLOGS)
def test_a_backlog_grows_where_less_is_handled_than_comes(inbox, put, scenario):
    parts, expected = BACKLOGS[scenario]
    for number, minutes, runs, *state in parts:
        put(number, minutes, runs, state=state[0] if state else None)
    if "paused" in scenario:
        inbox.pause_handler("mail", None, NOON)
    worker_is_alive(inbox)

    assert ("backlog" in held(inbox)) is expected

    update_issues(inbox, NOW)
    kinds = [one.kind for one in list_issues(inbox)]
    assert kinds == ([IssueKind.BACKLOG] if expected else [])


@pytest.mark.parametrize(("handled", "expected"), [(30, True), (95, False)])
def test_of_more_than_is_counted_the_newest_of_both_are_compared(inbox, put, monkeypatch, handled, expected):
    monkeypatch.setattr(pace, "ROWS_READ", 100)
    put(200, (30, 11), DUE)
    # Both are over the limit in ten minutes, and equal as far as they are counted.
    put(400, (9, 5), DONE)
    put(100 - handled, (3, 0), DUE)
    put(handled, (3, 0), DONE)
    worker_is_alive(inbox)

    assert ("backlog" in held(inbox)) is expected


def test_of_a_backlog_behind_missing_workers_only_these_are_an_issue(inbox, put):
    put(300, (20, 0), (), state="received")
    inbox.record_worker(WorkerRecord("w", "worker", 1, NOON), NOON)

    update_issues(inbox, NOW)

    assert "backlog" not in held(inbox)
    assert [one.kind for one in list_issues(inbox)] == [IssueKind.WORKER]


def test_a_backlog_that_somebody_has_seen_stays_so_while_no_worker_is_alive(inbox, put):
    put(300, (20, 0), (), state="received")
    worker_is_alive(inbox)
    update_issues(inbox, NOW)
    (backlog,) = list_issues(inbox)
    change_issue(inbox, backlog.id, IssueState.ACKNOWLEDGED, NOW, who="anna")

    update_issues(inbox, NOW + 2 * MINUTE)

    found = {one.kind: (one.state, one.who) for one in list_issues(inbox)}
    assert found == {
        IssueKind.WORKER: (IssueState.OPEN, None),
        IssueKind.BACKLOG: (IssueState.ACKNOWLEDGED, "anna"),
    }


def test_control_a_backlog_while_workers_were_stopped_in_order_is_an_issue(inbox, put):
    put(300, (20, 0), (), state="received")
    inbox.record_worker(WorkerRecord("w", "worker", 1, NOON), NOON)
    inbox.record_stop("w")

    update_issues(inbox, NOW)

    assert [one.kind for one in list_issues(inbox)] == [IssueKind.BACKLOG]


def test_what_a_rate_lets_wait_is_a_backlog_and_through_no_sooner_than_it_allows(inbox, put, monkeypatch):
    """The count stops at its limit, and 100 a minute were handled before the handler had its rate."""
    monkeypatch.setattr("billhook.inbox.overview.RUNS_LIMIT", 150)
    put(500, (20, 0), DUE)
    put(100, (1, 0), DONE)
    inbox.limits = lambda: {"book": HandlerLimits(("book",), rate=(1, 60.0))}
    worker_is_alive(inbox)

    facts = Facts(inbox, NOW, "worker")
    (book,) = facts.overview.handler_backlogs

    assert "backlog" in held(inbox)  # 250 came that were not handled, of which 150 were counted
    assert (book.is_capped, book.through_at_least) == (True, True)
    assert book.through_at == NOW + 150 * MINUTE


def past_calls(inbox, number, seconds, handler="book", at=NOW - 2 * HOUR):
    """Calls of hours ago, which are counted by the hour."""
    step = next(step for step, bound in enumerate(DURATION_BOUNDS) if seconds <= bound)
    counts = Counts()
    key = CountKey(hour_of(at), "", "", handler, "succeeded", "", step)
    counts.put(key, Sum(number, number * seconds, at))
    with inbox.database.write() as connection:
        counts.write(connection)


# The calls of the last ten minutes, those of hours ago, and whether that is slow.
PACES = {
    "thirty times": ([(20, 15.0)], [(200, 0.5)], True),
    "half of the calls": ([(11, 15.0), (9, 0.5)], [(200, 0.5)], True),
    "a few calls": ([(6, 15.0), (14, 0.5)], [(200, 0.5)], False),
    "as slow as ever": ([(20, 15.0)], [(200, 15.0)], False),
    "as slow as 6 % were before": ([(20, 15.0)], [(188, 0.5), (12, 15.0)], False),
    "as slow as 4 % were before": ([(20, 15.0)], [(192, 0.5), (8, 15.0)], True),
    "quicker": ([(20, 0.5)], [(200, 15.0)], False),
    "under a second": ([(20, 0.4)], [(200, 0.01)], False),
    "nine calls": ([(9, 15.0)], [(200, 0.5)], False),
    "ten calls": ([(10, 15.0)], [(200, 0.5)], True),
    "99 calls before": ([(20, 15.0)], [(99, 0.5)], False),
    "100 calls before": ([(20, 15.0)], [(100, 0.5)], True),
    "none before": ([(200, 15.0)], [], False),
}


@pytest.mark.parametrize("scenario", PACES)
def test_a_handler_is_slow_by_what_it_took_before(inbox, put, scenario):
    lately, past, expected = PACES[scenario]
    for number, seconds in lately:
        put(number, (9, 0), DONE, took=seconds)
    for number, seconds in past:
        past_calls(inbox, number, seconds)
    worker_is_alive(inbox)

    update_issues(inbox, NOW)

    assert ("slow" in held(inbox)) is expected
    assert [one.kind for one in list_issues(inbox)] == ([IssueKind.SLOW] if expected else [])


def test_a_slow_handler_is_named_with_what_it_took_and_another_is_not(inbox, put):
    put(20, (9, 0), [("book", "succeeded")], took=15.0)
    put(20, (9, 0), [("mail", "succeeded")], took=0.4)
    past_calls(inbox, 200, 0.5)
    past_calls(inbox, 200, 0.5, "mail")
    worker_is_alive(inbox)

    slow = held(inbox)["slow"]

    assert slow.subject == "book"
    assert slow.text == "book is slow: half of its calls take over 15 s, where 95 % took up to 485 ms"


def test_calls_of_four_days_ago_say_nothing(inbox, put):
    put(20, (9, 0), DONE, took=15.0)
    past_calls(inbox, 200, 0.5, at=NOW - 96 * HOUR)

    assert "slow" not in held(inbox)
