"""What waits for each handler: how many in which state, since when, and until when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import insert

from billhook.doctor.status_texts import backlog_text, through_text, unfinished_text
from billhook.inbox import HandlerLimits, RunOptions, RunState, WorkerRecord
from billhook.inbox.tables.schema import handler
from billhook.inbox.watching import handler_backlogs
from billhook.inbox.watching.handler_backlogs import HandlerBacklog
from billhook.inbox.watching.overview import read_overview
from support.inbox_view import NOON, rows
from support.runs import at, claim, planned, settle


def put(inbox, key, handler, seconds=0, order_key=None):
    options = RunOptions(order_key) if order_key else None
    planned(inbox, handler, key=key, seconds=seconds, at=at(seconds), options=options)


def put_many(inbox, number):
    for one in range(number):
        put(inbox, f"k{one}", "h")


def backlogs(inbox, seconds=0):
    return {one.name: one for one in read_overview(inbox, at(seconds)).handler_backlogs}


def test_each_state_is_counted_by_handler(inbox):
    put(inbox, "dead", "h")
    settle(inbox, claim(inbox, 1), RunState.DEAD)
    put(inbox, "retrying", "h")
    settle(inbox, claim(inbox, 1), RunState.DUE, due_at=at(500))
    put(inbox, "running", "h", 1)
    claim(inbox, 1, 1)
    for number in range(3):
        put(inbox, f"waiting {number}", "h", 10 + number)
    for number in range(2):
        put(inbox, f"other {number}", "g", 20 + number, order_key="one")

    found = backlogs(inbox, 25)

    assert found == {
        "g": HandlerBacklog("g", waiting=2, ordered=1, oldest_due_at=at(20)),
        "h": HandlerBacklog(
            "h",
            waiting=3,
            running=1,
            retrying=1,
            dead=1,
            oldest_due_at=at(10),
            last_due_at=at(500),
            per_second=1 / 300,
            through_at=at(25 + 5 * 300),
        ),
    }
    assert found["h"].unfinished == 5


def test_the_time_when_all_is_handled_is_told_by_the_last_five_minutes(inbox):
    put_many(inbox, 25)
    settle(inbox, claim(inbox, 10), seconds=100)
    settle(inbox, claim(inbox, 5), seconds=300)

    # 15 in 300 s; 10 are left
    assert backlogs(inbox, 300)["h"].through_at == at(300 + 10 * 20)
    # 5 in the last five minutes
    assert backlogs(inbox, 500)["h"].through_at == at(500 + 10 * 60)
    assert backlogs(inbox, 700)["h"].through_at is None


def test_what_waits_in_order_for_a_retry_comes_after_it(inbox):
    for number in range(2):
        put(inbox, f"k{number}", "h", order_key="one")
    settle(inbox, claim(inbox, 1), RunState.DUE, 1, due_at=at(1_900))

    found = backlogs(inbox, 60)["h"]

    assert (found.retrying, found.ordered, found.through_at) == (1, 1, at(1_900))
    assert through_text(found, at(60)) == "after 12:31"


def test_a_handler_that_is_paused_has_no_time_when_all_is_handled(inbox):
    put_many(inbox, 3)
    settle(inbox, claim(inbox, 1), seconds=1)
    inbox.pause_handler("h", None, at(2))

    assert backlogs(inbox, 3) == {"h": HandlerBacklog("h", paused=2, oldest_due_at=NOON, per_second=1 / 300)}


def test_what_waits_for_a_rate_is_limited(inbox, where):
    put_many(inbox, 8)
    limits = {"h": HandlerLimits(("h",), rate=(1, 60.0))}

    assert len(claim(inbox, 8, 0, limits)) == 1

    found = backlogs(inbox, 1)["h"]
    assert (found.limited, found.running, found.waiting) == (7, 1, 0)
    assert rows(where, "SELECT count(*) FROM run WHERE state = 'due'") == [(7,)]


def test_what_waits_for_a_thread_of_its_worker_is_not_running(inbox):
    for number in range(5):
        put(inbox, f"k{number}", "h")
    claim(inbox, 4, idle=2)

    found = backlogs(inbox, 1)["h"]

    assert (found.running, found.waiting, found.unfinished) == (2, 3, 5)


def test_beyond_the_limit_of_counting_only_the_least_is_told(inbox, monkeypatch):
    put_many(inbox, 14)
    settle(inbox, claim(inbox, 10), seconds=100)
    exact = backlogs(inbox, 100)["h"]
    exact_texts = (through_text(exact, at(100)), unfinished_text(exact))
    monkeypatch.setattr(handler_backlogs, "RUNS_LIMIT", 3)
    capped = backlogs(inbox, 100)["h"]

    assert (exact.through_at, exact.through_at_least) == (at(100 + 4 * 30), False)
    assert (capped.through_at, capped.through_at_least) == (at(100 + 3 * 30), True)
    assert exact_texts == ("in 2 min", "4")
    assert (through_text(capped, at(100)), unfinished_text(capped)) == ("in more than 1 min", "3+")


@pytest.mark.parametrize(
    ("seconds", "runs_for", "told"),
    [
        (1, 59, True),  # any call may take as long
        (1, 61, False),  # it hangs: it was "through in 1 min" for as long as it hung
        (30, 61, True),  # as others do, nearly
        (30, 100, False),
    ],
)
def test_no_time_is_told_while_a_call_hangs(inbox, seconds, runs_for, told):
    put_many(inbox, 6)
    settle(inbox, claim(inbox, 4, 100), seconds=100 + seconds, duration_seconds=float(seconds))
    claim(inbox, 1, 200, lease=timedelta(hours=1))

    found = backlogs(inbox, 200 + runs_for)["h"]

    assert (found.running, found.waiting, found.per_second > 0) == (1, 1, True)
    assert bool(through_text(found, at(200 + runs_for))) is told


def test_no_handler_is_through_sooner_than_its_own_rate_allows(inbox):
    put_many(inbox, 20)
    settle(inbox, claim(inbox, 15), seconds=100)
    unlimited = backlogs(inbox, 100)["h"]
    inbox.limits = lambda: {"h": HandlerLimits(("h",), rate=(1, 60.0))}

    assert unlimited.through_at == at(100 + 5 * 20)
    assert backlogs(inbox, 100)["h"].through_at == at(100 + 5 * 60)


def test_a_worker_that_is_younger_than_five_minutes_is_as_fast_as_it_was_since_its_start(inbox):
    put_many(inbox, 30)
    inbox.record_worker(WorkerRecord("w", "worker", 1, at(240)), at(300))
    settle(inbox, claim(inbox, 20), seconds=300)

    assert backlogs(inbox, 300)["h"].through_at == at(300 + 10 * 3)


def test_the_rate_of_many_is_told_by_the_last_of_them(inbox, monkeypatch):
    monkeypatch.setattr(handler_backlogs, "RATE_RUNS", 4)
    put_many(inbox, 14)
    settle(inbox, claim(inbox, 6), seconds=10)
    settle(inbox, claim(inbox, 4), seconds=98)

    # 4 in 2 s; 4 are left
    assert backlogs(inbox, 100)["h"].through_at == at(102)


def test_what_waits_while_as_many_run_as_may_is_limited(inbox):
    put_many(inbox, 5)
    limits = {"h": HandlerLimits(("h",), at_most=2)}
    claim(inbox, 5, 0, limits)

    (unknown,) = read_overview(inbox, at(1)).handler_backlogs
    inbox.limits = lambda: limits
    (known,) = read_overview(inbox, at(1)).handler_backlogs

    assert (known.limited, known.running, known.waiting) == (3, 2, 0)
    assert (unknown.limited, unknown.running, unknown.waiting) == (0, 2, 3)


@pytest.mark.parametrize("paused", ["name", "former"])
def test_the_runs_of_all_names_of_a_paused_handler_are_paused(inbox, paused):
    put(inbox, "a", "former")
    put(inbox, "b", "name")
    put(inbox, "c", "other")
    with inbox.database.write() as connection:  # as live code with the alias does
        connection.execute(insert(handler).values(name="former", renamed_to="name"))
    inbox.pause_handler(paused, None, NOON)

    found = read_overview(inbox, at(1)).handler_backlogs

    assert [(one.name, one.paused, one.waiting) for one in found] == [
        ("name", 2, 0),
        ("other", 0, 1),
    ]


def test_what_is_retried_is_through_when_it_is_due_and_not_before(inbox):
    put_many(inbox, 3)
    settle(inbox, claim(inbox, 1), seconds=1)
    settle(inbox, claim(inbox, 1, 1), RunState.DUE, seconds=1, due_at=at(1860))
    mixed = backlogs(inbox, 2)["h"]
    settle(inbox, claim(inbox, 1, 3), seconds=3)
    alone = backlogs(inbox, 4)["h"]
    much_later = backlogs(inbox, 1000)["h"]

    # At the pace of five minutes all were through in 10 min, and one of them is not called before 31 min.
    assert (mixed.through_at, through_text(mixed, at(2))) == (at(1860), "in 30 min")
    assert (alone.through_at, through_text(alone, at(4))) == (at(1860), "retried at 12:31")
    # When nothing was handled for long it is as true.
    assert (much_later.per_second, much_later.through_at) == (0.0, at(1860))


def test_of_several_that_are_retried_the_last_time_is_shown_with_its_day(inbox):
    for key, due in (("a", 60), ("b", 86_400 * 2)):
        put(inbox, key, "h")
        settle(inbox, claim(inbox, 1), RunState.DUE, due_at=at(due))

    found = backlogs(inbox, 1)["h"]

    day = f"{at(86_400 * 2):%Y-%m-%d %H:%M}"
    assert through_text(found, at(1)) == f"all retried by {day}"
    assert backlog_text(found, at(1)) == f"2 retrying; all retried by {day}"


def test_a_paused_handler_is_not_through_when_its_last_retry_is_due(inbox):
    put(inbox, "a", "h")
    settle(inbox, claim(inbox, 1), RunState.DUE, due_at=at(500))
    inbox.pause_handler("h", None, at(2))

    assert backlogs(inbox, 3)["h"].through_at is None
