"""How fast deliveries are handled: when a backlog grows, and when a handler is slow.

Each table has scenarios in which the condition holds beside those in which it must not.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from itertools import count

import pytest
from sqlalchemy import insert

from billhook.inbox import HandlerLimits, WorkerRecord
from billhook.inbox.counting.counts import DURATION_BOUNDS, CountKey, Counts, Sum, hour_of
from billhook.inbox.running.leases import LOST
from billhook.inbox.running.workers import record_stop
from billhook.inbox.tables.records import fingerprint
from billhook.inbox.tables.schema import delivery, run
from billhook.inbox.watching import backlog_pace as pace
from billhook.inbox.watching.conditions import Facts
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import IssueState, change_issue, list_issues
from billhook.inbox.watching.judgement import judge
from billhook.inbox.watching.occurrences import IssueKind
from support.inbox_view import NOON, change

SECOND, MINUTE, HOUR = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours"))
NOW = NOON + 30 * MINUTE
ENDED = ("succeeded", "dead")


class Rows:
    """Deliveries with their runs, as workers leave them."""

    def __init__(self, inbox):
        self._inbox, self._ids = inbox, count(1)

    def add(self, number, minutes, runs=(), *, state=None, took=0.05):
        """Deliveries of which the first came and the last came so many minutes ago, spread evenly.

        `runs` are pairs of a handler and the state of its run; one that waits is due since its delivery came,
        a "planned" one since now, and a "retry" in an hour, or has been "retried" since its delivery came; a
        finished one finished as soon as the delivery came.
        """
        first, last = minutes
        finished = all(each in ENDED for _, each in runs)
        fixed = {"source": "default", "event_type": "PingTest", "body": b"{}", "headers": "{}"}
        fixed["state"] = state or ("done" if finished else "planned")
        deliveries, made = [], []
        for index in range(number):
            one, minutes_ago = next(self._ids), first - (first - last) * index / max(1, number - 1)
            came_at = NOW - minutes_ago * MINUTE
            deliveries.append({**fixed, "id": one, "key": f"k{one}", "received_at": came_at})
            made += [self._run(one, came_at, handler, each, took) for handler, each in runs]
        with self._inbox.database.write() as connection:
            connection.execute(insert(delivery), deliveries)
            if made:
                connection.execute(insert(run), made)

    def _run(self, delivery_id, came_at, handler, state, took):
        is_finished = state in ENDED
        return {
            "delivery_id": delivery_id,
            "handler": handler,
            "attempts": int(state not in ("due", "planned")),
            "token": 1,
            "state": state if is_finished else "due",
            "due_at": {"retry": NOW + HOUR, "planned": NOW}.get(state, came_at),
            "finished_at": came_at if is_finished else None,
            "duration_seconds": took if is_finished else None,
        }


@pytest.fixture
def put(inbox):
    return Rows(inbox).add


def worker_is_alive(inbox, since=NOON, now=NOW):
    inbox.record_worker(WorkerRecord("w", "worker", 1, since), now)


def held(inbox, now=NOW):
    return {one.condition.name: one for one in judge(Facts(inbox, now, "worker")).holding}


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


@pytest.mark.parametrize(("minutes", "expected"), [(2, True), (1, False)])
def test_a_backlog_is_not_judged_before_a_worker_has_run_for_some_time(inbox, put, minutes, expected):
    """Nothing is handled while all are stopped, and what has come until then says nothing of their pace."""
    put(200, (20, 0), (), state="received")
    worker_is_alive(inbox, since=NOW - minutes * MINUTE)

    assert ("backlog" in held(inbox)) is expected


def test_what_came_before_a_worker_ran_does_not_count(inbox, put):
    put(300, (20, 4), (), state="received")
    put(20, (3, 0), DONE)
    worker_is_alive(inbox, since=NOW - 3.5 * MINUTE)

    assert "backlog" not in held(inbox)


# What has come by the wrong clock, an hour later than now, has lower ids than what comes now.
WRONG_CLOCK = {
    "more comes": (
        [(200, (30, 11), DUE), (400, (-50, -60), DONE), (59, (9, 0), DUE), (40, (9, 0), DONE)],
        True,
    ),
    "less comes": ([(110, (20, 0), DUE), (400, (-50, -60), (), "received"), (300, (9, 0), DONE)], False),
}


@pytest.mark.parametrize("rows_read", [100, 25_000])
@pytest.mark.parametrize("scenario", WRONG_CLOCK)
def test_what_came_before_the_clock_was_set_back_does_not_count(inbox, put, monkeypatch, scenario, rows_read):
    monkeypatch.setattr(pace, "ROWS_READ", rows_read)
    parts, expected = WRONG_CLOCK[scenario]
    for number, minutes, runs, *of in parts:
        put(number, minutes, runs, state=of[0] if of else None)
    worker_is_alive(inbox)

    assert ("backlog" in held(inbox)) is expected


# What waits ten minutes after the issue of a backlog has opened, since when nothing came; does it stay open?
LATER = {
    "planned since": ([(60, (5, 5), [("book", "planned")])], True),
    "behind runs that are retried": (
        [(30, (5, 5), [("book", "retried")]), (60, (5, 5), [("book", "planned")])],
        True,
    ),
    "unread": ([(60, (5, 5), (), "received")], True),
    "few": ([(49, (5, 5), [("book", "planned")])], False),
    "not for long": ([(60, (-6, -6), [("book", "planned")])], False),
    "only retried": ([(60, (5, 5), [("book", "retried")])], False),
}


@pytest.mark.parametrize(
    ("scenario", "state"),
    [*((each, IssueState.OPEN) for each in LATER), ("planned since", IssueState.ACKNOWLEDGED)],
)
def test_a_backlog_goes_on_until_half_as_much_waits_or_for_half_as_long(inbox, put, where, scenario, state):
    parts, expected = LATER[scenario]
    put(200, (20, 0), (), state="received")
    worker_is_alive(inbox)
    update_issues(inbox, NOW)
    (backlog,) = list_issues(inbox)
    change_issue(inbox, backlog.id, state, NOW, who="anna")
    change(where, "UPDATE delivery SET state = 'done'")
    for number, minutes, runs, *of in parts:
        put(number, minutes, runs, state=of[0] if of else None)
    later = NOW + 10 * MINUTE
    worker_is_alive(inbox, now=later)

    assert ("backlog" in held(inbox, later)) is expected
    update_issues(inbox, later)

    (backlog,) = list_issues(inbox)
    assert backlog.state is (state if expected else IssueState.RESOLVED)


def test_control_a_backlog_that_an_operator_resolved_is_one_again_only_while_it_grows(inbox, put, where):
    put(200, (20, 0), (), state="received")
    worker_is_alive(inbox)
    update_issues(inbox, NOW)
    change_issue(inbox, list_issues(inbox)[0].id, IssueState.RESOLVED, NOW, who="anna")
    worker_is_alive(inbox, now=NOW + 11 * MINUTE)

    assert "backlog" not in held(inbox, NOW + 11 * MINUTE)


def test_a_killer_that_other_workers_outlive_hides_no_backlog(inbox, put, where):
    put(200, (20, 0), DUE)
    put(1, (1, 1), [("kills", "retried")])
    worker_is_alive(inbox)
    lost = fingerprint("kills", LOST)
    change(
        where,
        "INSERT INTO failure (run_id, attempt, failed_at, error, fingerprint) "
        "SELECT id, 1, due_at, 'lost', ? FROM run WHERE handler = 'kills'",
        lost,
    )

    assert {"killer", "backlog"} <= held(inbox).keys()


STOPPED = [  # its engine, how many minutes ago it stopped and a delivery came, whose runs, and is it missed?
    ("worker", 11, 11, None, True),
    ("celery", 11, 11, DUE, True),
    ("thread", 11, 11, None, False),
    ("drain", 11, 11, None, False),
    ("worker drain", 11, 11, None, True),  # by hand, beside workers that were stopped
    ("thread drain", 11, 11, None, False),
    ("worker", 9, 11, None, False),
    ("worker", 11, 9, None, False),
    ("worker", 11, 9, DUE, False),
    ("worker", 11, 11, DONE, False),
    ("worker", 11, 11, [("book", "retry")], False),
    ("worker", 11, 11, [("paused", "due")], False),
]


@pytest.mark.parametrize(("engine", "stopped", "came", "runs", "expected"), STOPPED)
def test_workers_that_stopped_in_order_are_missed_when_a_delivery_waits(
    inbox, put, engine, stopped, came, runs, expected
):
    inbox.pause_handler("paused", None, NOON)
    for number, each in enumerate(engine.split()):
        inbox.record_worker(WorkerRecord(f"w{number}", each, 1, NOON), NOON)
        with inbox.database.write() as connection:
            record_stop(connection, f"w{number}", NOW - stopped * MINUTE + number * SECOND)
    put(1, (came, came), runs or (), state=None if runs else "received")

    update_issues(inbox, NOW)
    assert [one.title for one in list_issues(inbox)] == ["no worker is alive"] * expected

    inbox.record_worker(WorkerRecord("next", "worker", 1, NOW), NOW + SECOND)
    update_issues(inbox, NOW + SECOND)
    assert [one.state for one in list_issues(inbox)] == [IssueState.RESOLVED] * expected


def test_what_was_tried_hides_no_delivery_that_waits_for_its_first_attempt(inbox, put):
    put(1_001, (25, 25), [("book", "retried")])
    put(1, (11, 11), DUE)

    with inbox.database.read() as connection:
        assert pace.first_untried_at(connection, ["book"], NOW) == NOW - 11 * MINUTE


def test_workers_that_stopped_in_order_are_missed_again_by_a_later_delivery(inbox, put, where):
    inbox.record_worker(WorkerRecord("w", "worker", 1, NOON), NOON)
    with inbox.database.write() as connection:
        record_stop(connection, "w", NOON + MINUTE)
    put(1, (20, 20), (), state="received")
    update_issues(inbox, NOW)
    change(where, "UPDATE delivery SET state = 'done'")  # an operator gives it up
    update_issues(inbox, NOW + SECOND)
    assert [one.state for one in list_issues(inbox)] == [IssueState.RESOLVED]

    put(1, (-1, -1), (), state="received")
    update_issues(inbox, NOW + 12 * MINUTE)

    assert [(one.state, one.last_at) for one in list_issues(inbox)] == [(IssueState.OPEN, NOON + MINUTE)]


def test_what_a_rate_lets_wait_is_a_backlog_and_through_no_sooner_than_it_allows(inbox, put, monkeypatch):
    """The count stops at its limit, and 100 a minute were handled before the handler had its rate."""
    monkeypatch.setattr("billhook.inbox.watching.handler_backlogs.RUNS_LIMIT", 150)
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


def test_a_handler_is_slow_also_if_its_calls_end_while_it_is_judged(inbox, put, monkeypatch):
    put(20, (9, 0), DONE, took=15.0)
    past_calls(inbox, 150, 0.5)
    read = inbox.database.read

    @contextmanager
    def more_end_after_each(**options):
        with read(**options) as connection:
            yield connection
        put(10, (0, 0), DONE, took=15.0)

    monkeypatch.setattr(inbox.database, "read", more_end_after_each)

    assert [one.name for one in pace.read_slow_handlers(inbox, NOW)] == ["book"]


def test_calls_of_four_days_ago_say_nothing(inbox, put):
    put(20, (9, 0), DONE, took=15.0)
    past_calls(inbox, 200, 0.5, at=NOW - 96 * HOUR)

    assert "slow" not in held(inbox)
