"""Claims by handler: each handler with due runs gets a share, as far as it has room. On both databases."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import select

from billhook.inbox import HandlerLimits, RunPlan, RunState
from billhook.inbox.tables.schema import handler, run
from support.inbox_view import NOON, incoming, open_inbox
from support.query_plans import query_plans
from support.runs import at, claim, plan, result_of


def planned(inbox, handler, number, seconds=0.0):
    """Store so many deliveries, each with a due run of the handler; return their ids."""
    ids = [inbox.put(incoming(f"{handler}-{seconds}-{one}")).delivery_id for one in range(number)]
    return plan(inbox, *(RunPlan(one, (handler,)) for one in ids), seconds=seconds)


def claimed(inbox, limit, **options):
    claims = claim(inbox, limit, 60, **options)
    return [one.handler for one in claims], claims


def test_a_handler_with_a_long_backlog_delays_no_other(inbox):
    planned(inbox, "busy", 30)
    planned(inbox, "quiet", 1, seconds=50)

    handlers, _ = claimed(inbox, 10)

    assert "quiet" in handlers
    assert handlers.count("busy") == 5  # half of ten: a share for each


def test_of_many_handlers_those_that_wait_longest_are_asked_first(inbox):
    for number in reversed(range(12)):
        planned(inbox, f"h{number:02}", 1, seconds=number)

    first, _ = claimed(inbox, 8)
    then, _ = claimed(inbox, 8)

    assert first == [f"h{number:02}" for number in range(8)]
    assert then == [f"h{number:02}" for number in range(8, 12)]


def test_what_this_process_holds_takes_the_place_of_no_free_run(inbox, where):
    """Another process has ended the lease of a run that this one still calls: it is due before the other."""
    planned(inbox, "h", 1)
    (held,) = claim(inbox, 1, 0)
    inbox.held.add(held.lease)
    claim(open_inbox(where), 1, 40, which=lambda name: False)  # only ends the lease
    planned(inbox, "h", 1, seconds=50)

    handlers, claims = claimed(inbox, 1)
    again, _ = claimed(inbox, 1)

    assert (handlers, again) == (["h"], [])
    assert claims[0].lease[0] != held.lease[0]
    inbox.held.clear()
    assert claimed(inbox, 1)[1][0].lease[0] == held.lease[0]


@pytest.mark.parametrize("first", [0, 1], ids=["as claimed", "the last one first"])
def test_failures_in_a_row_are_counted_in_the_order_in_which_attempts_ended(inbox, first):
    planned(inbox, "h", 2)
    limits = {"h": HandlerLimits(("h",), pause_after=1)}
    _, claims = claimed(inbox, 2, limits=limits)
    failed, succeeded = (claims[first], claims[1 - first])

    with inbox.transaction("worker", limits) as transaction:
        transaction.settle([result_of(succeeded), result_of(failed, RunState.DUE, due=90, error="e")])
    with inbox.transaction("worker", limits) as transaction:
        transaction.settle([])

    assert [each.name for each in inbox.paused_handlers()] == ["h"]
    with inbox.database.read() as connection:
        assert connection.execute(select(handler.c.failures)).scalars().all() == [1]


def test_a_handler_has_room_for_as_many_as_it_may_have_under_way(inbox):
    planned(inbox, "bounded", 5)
    planned(inbox, "free", 5)
    limits = {"bounded": HandlerLimits(("bounded",), at_most=2)}

    first, claims = claimed(inbox, 20, limits=limits)
    second, _ = claimed(inbox, 20, limits=limits)
    one = next(one for one in claims if one.handler == "bounded")
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


NAMES = ("paused", "former")


@pytest.mark.parametrize(
    ("name", "limits"), [("paused", {}), ("former", dict.fromkeys(NAMES, HandlerLimits(NAMES)))]
)
def test_no_run_starts_once_a_pause_is_committed_under_any_of_its_names(inbox, where, name, limits):
    planned(inbox, "paused", 2)
    planned(inbox, "other", 1)
    _, times = inbox.poll(10)
    assert times.names_due(at(60)) == ["other", "paused"]

    open_inbox(where).pause_handler(name, None, NOON)

    assert claimed(inbox, 10, limits=limits, times=times)[0] == ["other"]
    assert inbox.next_times(limits).names_due(at(60)) == []  # and no worker polls for it


def failed_with(inbox, error):
    with inbox.database.read() as connection:
        connection.execute(select(run.c.handler).where(run.c.last_error == error))


def test_a_poll_looks_up_each_handler_in_the_index_without_statistics_too(inbox):
    for number in range(6):
        planned(inbox, f"h{number}", 50)

    (found,) = query_plans(inbox, lambda: inbox.next_times({}))
    (control,) = query_plans(inbox, lambda: failed_with(inbox, "x"))

    # But for the index of suspects, which are few.
    all_rows = re.compile(r"Bitmap|Seq Scan on run\b|SCAN run\b(?! USING INDEX run_alone_idx)")
    assert "run_claim_idx" in found
    assert not all_rows.search(found)
    assert all_rows.search(control)
