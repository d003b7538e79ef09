"""What waits for each handler: how many in which state, since when, and until when."""

from __future__ import annotations

from datetime import timedelta

from billhook.inbox import HandlerLimits, RunOptions, RunPlan, RunResult, RunState, handler_backlog
from billhook.inbox.handler_backlog import HandlerBacklog
from billhook.inbox.overview import read_overview
from support.inbox_view import NOON, incoming, rows
from support.postgres import only_sqlite

LEASE = timedelta(seconds=30)


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def put(inbox, key, handler, seconds=0, order_key=None):
    delivery_id = inbox.put(incoming(key, at=at(seconds))).delivery_id
    options = {handler: RunOptions(order_key)} if order_key else {}
    with inbox.transaction("w") as transaction:
        transaction.plan([RunPlan(delivery_id, (handler,), options=options)], at(seconds))


def claim(inbox, limit, seconds=0, limits=None):
    with inbox.transaction("w", limits or {}) as transaction:
        return transaction.claim(limit, at(seconds), at(seconds) + LEASE)


def settle(inbox, claims, state=RunState.SUCCEEDED, seconds=0, due_at=None):
    results = [
        RunResult(
            *(one.run_id, one.token, one.delivery.delivery_id, one.attempt, state, at(seconds)),
            due_at=due_at,
            error=None if state is RunState.SUCCEEDED else "e",
        )
        for one in claims
    ]
    with inbox.transaction("w") as transaction:
        transaction.settle(results)


def backlogs(inbox, seconds=0):
    return {one.name: one for one in read_overview(inbox, at(seconds)).handler_backlogs}


def test_without_unfinished_and_dead_runs_there_is_nothing(inbox):
    put(inbox, "k", "h")
    settle(inbox, claim(inbox, 1))

    assert backlogs(inbox) == {}


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
        "g": HandlerBacklog("g", waiting=2, oldest_due_at=at(20)),
        "h": HandlerBacklog(
            "h", waiting=3, running=1, retrying=1, dead=1, oldest_due_at=at(10), through_at=at(25 + 5 * 300)
        ),
    }
    assert found["h"].unfinished == 5


def test_the_time_when_all_is_handled_is_told_by_the_last_five_minutes(inbox):
    for number in range(25):
        put(inbox, f"k{number}", "h")
    settle(inbox, claim(inbox, 10), seconds=100)
    settle(inbox, claim(inbox, 5), seconds=300)

    # 15 in 300 s; 10 are left
    assert backlogs(inbox, 300)["h"].through_at == at(300 + 10 * 20)
    # 5 in the last five minutes
    assert backlogs(inbox, 500)["h"].through_at == at(500 + 10 * 60)
    assert backlogs(inbox, 700)["h"].through_at is None


def test_a_handler_that_is_paused_has_no_time_when_all_is_handled(inbox):
    for number in range(3):
        put(inbox, f"k{number}", "h")
    settle(inbox, claim(inbox, 1), seconds=1)
    inbox.pause_handler("h", None, at(2))

    assert backlogs(inbox, 3) == {"h": HandlerBacklog("h", paused=2, oldest_due_at=NOON)}


def test_what_waits_for_a_rate_is_limited(inbox, where):
    for number in range(8):
        put(inbox, f"k{number}", "h")
    limits = {"h": HandlerLimits(("h",), rate=(1, 60.0))}

    assert len(claim(inbox, 8, 0, limits)) == 1

    found = backlogs(inbox, 1)["h"]
    assert (found.limited, found.running, found.waiting) == (7, 1, 0)
    assert rows(where, "SELECT count(*) FROM run WHERE state = 'due'") == [(7,)]


def test_large_numbers_are_counted_up_to_a_limit(inbox, monkeypatch):
    monkeypatch.setattr(handler_backlog, "RUNS_LIMIT", 3)
    for number in range(5):
        put(inbox, f"k{number}", "h")

    assert backlogs(inbox)["h"].waiting == 3


def test_the_rate_of_many_is_told_by_the_last_of_them(inbox, monkeypatch):
    monkeypatch.setattr(handler_backlog, "RUNS_LIMIT", 4)
    for number in range(14):
        put(inbox, f"k{number}", "h")
    settle(inbox, claim(inbox, 6), seconds=10)
    settle(inbox, claim(inbox, 4), seconds=98)

    # 4 in 2 s; 4 are left
    assert backlogs(inbox, 100)["h"].through_at == at(102)


@only_sqlite
def test_counting_walks_through_no_table(inbox):
    query = handler_backlog._NUMBERS.text.replace(":now", "1").replace(":at_most", "1")
    with inbox.database.read() as connection:
        plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]

    assert "SCAN run" not in plan
    assert any("run_claim_idx" in step for step in plan)
    assert any("run_dead_idx" in step for step in plan)
