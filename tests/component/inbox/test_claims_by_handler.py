"""Claims by handler: each handler with due runs gets a share, as far as it has room. On both databases."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from billhook.inbox import HandlerLimits, RunPlan, due
from support.inbox_view import NOON, incoming
from support.inbox_view import open_inbox as opened
from support.runs import result_of


def planned(inbox, handler, number, seconds=0.0):
    """Store so many deliveries, each with a due run of the handler; return their ids."""
    ids = [inbox.put(incoming(f"{handler}-{seconds}-{one}")).delivery_id for one in range(number)]
    with inbox.transaction("planner") as transaction:
        transaction.plan([RunPlan(one, (handler,)) for one in ids], NOON + timedelta(seconds=seconds))
    return ids


def claimed(inbox, limit, *, limits=None, seconds=60.0, **options):
    now = NOON + timedelta(seconds=seconds)
    with inbox.transaction("worker", limits or {}) as transaction:
        claims = transaction.claim(limit, now, now + timedelta(seconds=30), **options)
    return [claim.handler for claim in claims], claims


def test_a_handler_with_a_long_backlog_delays_no_other(inbox):
    planned(inbox, "busy", 30)
    planned(inbox, "quiet", 1, seconds=50)

    handlers, _ = claimed(inbox, 10)

    assert "quiet" in handlers
    assert handlers.count("busy") == 5  # half of ten: a share for each


def test_alone_a_handler_gets_all_the_longest_waiting_first(inbox):
    ids = planned(inbox, "busy", 12)

    _, claims = claimed(inbox, 10)

    assert [claim.delivery.delivery_id for claim in claims] == ids[:10]


def test_of_many_handlers_those_that_wait_longest_are_asked_first(inbox):
    for number in reversed(range(12)):
        planned(inbox, f"h{number:02}", 1, seconds=number)

    first, _ = claimed(inbox, 8)
    then, _ = claimed(inbox, 8)

    assert first == [f"h{number:02}" for number in range(8)]
    assert then == [f"h{number:02}" for number in range(8, 12)]


def test_a_handler_has_room_for_as_many_as_it_may_have_under_way(inbox):
    planned(inbox, "bounded", 5)
    planned(inbox, "free", 5)
    limits = {"bounded": HandlerLimits(("bounded",), at_most=2)}

    first, claims = claimed(inbox, 20, limits=limits)
    second, _ = claimed(inbox, 20, limits=limits)
    one = next(claim for claim in claims if claim.handler == "bounded")
    with inbox.transaction("worker", limits) as transaction:
        transaction.settle([result_of(one)])
    third, _ = claimed(inbox, 20, limits=limits)

    assert (first.count("bounded"), first.count("free")) == (2, 5)
    assert second == []
    assert third == ["bounded"]
    # The control: without the limit there is room for all.
    assert claimed(inbox, 20)[0] == ["bounded", "bounded"]


def test_the_runs_of_all_names_of_a_handler_take_its_room(inbox):
    planned(inbox, "former", 2)
    planned(inbox, "name", 2)
    its_limits = HandlerLimits(("name", "former"), at_most=3)

    handlers, _ = claimed(inbox, 20, limits={"name": its_limits, "former": its_limits})

    assert len(handlers) == 3


@pytest.mark.parametrize(("idle", "started"), [(1, 1), (2, 2)])
def test_starts_that_are_counted_are_no_more_than_there_are_threads(inbox, idle, started):
    limits = {}
    for name in ("a", "b"):
        planned(inbox, name, 1)
        limits[name] = HandlerLimits((name,), rate=(1, 1.0))

    handlers, _ = claimed(inbox, 20, limits=limits, idle=idle)

    assert len(handlers) == started


def test_no_run_starts_once_a_pause_is_committed(inbox, where):
    planned(inbox, "paused", 2)
    planned(inbox, "other", 1)
    now = NOON + timedelta(seconds=60)
    _, times = inbox.poll(10)
    assert times.names_due(now) == ["other", "paused"]

    other_process = opened(where)
    other_process.pause_handler("paused", None, NOON)
    other_process.close()

    assert claimed(inbox, 10, times=times)[0] == ["other"]


def explained(inbox, text):
    word = "EXPLAIN" if inbox.database.schema else "EXPLAIN QUERY PLAN"
    with inbox.database.read() as connection:
        return str(connection.exec_driver_sql(f"{word} {text}").all())


def statement_of_next_times(inbox):
    with inbox.database.read() as connection:
        return str(due._MOMENTS_OF_ALL.compile(dialect=connection.dialect))


def test_a_poll_looks_up_each_handler_in_the_index_without_statistics_too(inbox):
    for number in range(6):
        planned(inbox, f"h{number}", 50)

    plan = explained(inbox, statement_of_next_times(inbox))
    control = explained(inbox, "SELECT handler FROM run WHERE last_error = 'x'")

    # But for the index of suspects, which are few.
    all_rows = re.compile(r"Bitmap|Seq Scan on run\b|SCAN run\b(?! USING INDEX run_alone_idx)")
    assert "run_claim_idx" in plan
    assert not all_rows.search(plan)
    assert all_rows.search(control)
