"""The short way of one plain delivery writes what the general way writes, and loses to whoever was first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from billhook.errors import InboxUnavailable
from billhook.inbox import Inbox, RunOptions, RunPlan, RunResult, RunState
from support.inbox_view import NOON, change, incoming, rows, value
from support.processes import until

# What a delivery's runs become is tested by the general way; this is its shortcut.
pytestmark = pytest.mark.slow

LEASE = timedelta(seconds=30)
OWNER = "celery:host:1"
ENDED = NOON + timedelta(seconds=1)
RUN = "handler, state, attempts, due_at, lease_owner, last_error, finished_at"


def put(inbox, key="k", **facts):
    return inbox.put(replace(incoming(key), **facts)).delivery_id


def begin(inbox, delivery_id, *handlers):
    """A claim by the short way."""
    with inbox.fast_path.read(delivery_id, NOON) as look:
        return look.plan_and_claim(RunPlan(delivery_id, handlers), OWNER, NOON, NOON + LEASE)


def begin_generally(inbox, delivery_id, *handlers):
    """The same by the general way."""
    with inbox.transaction(OWNER) as transaction:
        transaction.plan([RunPlan(delivery_id, handlers)], NOON)
        (claim,) = transaction.claim(1, NOON, NOON + LEASE, only=delivery_id)
    return claim


def success(claim):
    return RunResult(
        claim.run_id, claim.token, claim.delivery.delivery_id, claim.attempt, RunState.SUCCEEDED, ENDED
    )


def tables(where):
    """All that the two ways write, but the tokens, which are drawn by lot."""
    return rows(where, f"SELECT {RUN} FROM run ORDER BY id"), rows(where, "SELECT state FROM delivery")


def as_if_begun(where):
    """Back to what was before: for the other way to do it again."""
    change(where, "DELETE FROM run")
    change(where, "UPDATE delivery SET state = 'received'")


# --- the same as the general way ------------------------------------------------------------------


@pytest.mark.parametrize("handlers", [("a",), ("a", "b", "c")])
def test_the_fast_path_claims_with_the_same_rows_as_the_general_path(inbox, where, handlers):
    delivery_id = put(inbox)
    generally = begin_generally(inbox, delivery_id, *handlers)
    expected = tables(where)
    as_if_begun(where)

    claim = begin(inbox, delivery_id, *handlers)

    assert tables(where) == expected
    assert claim._replace(run_id=generally.run_id, token=generally.token) == generally
    assert (claim.run_id, claim.token) == rows(where, "SELECT id, token FROM run ORDER BY id")[0]


def test_the_fast_path_settles_with_the_same_rows_as_the_general_path(inbox, where):
    delivery_id = put(inbox)
    claim = begin(inbox, delivery_id, "a")
    with inbox.transaction(OWNER) as transaction:
        transaction.settle([success(claim)])
    expected = tables(where)
    as_if_begun(where)

    finished = inbox.fast_path.settle(success(begin(inbox, delivery_id, "a")))

    assert finished
    assert tables(where) == expected
    assert expected[1] == [("done",)]


@pytest.mark.parametrize("signed_at", [NOON, None])
def test_a_look_shows_the_delivery_as_it_was_put(inbox, signed_at):
    delivery_id = put(inbox, signed_at=signed_at, body=b"\x00{}\xff", headers='{"a": "b"}')

    with inbox.fast_path.read(delivery_id, NOON) as look:
        assert look.stored == inbox.received(1)[0]
        assert look.stored.body == b"\x00{}\xff"
        assert not look.due


# --- whoever was first ----------------------------------------------------------------------------


def test_the_fast_path_does_not_plan_a_delivery_twice(inbox, where):
    delivery_id = put(inbox)
    with inbox.fast_path.read(delivery_id, NOON) as look:
        begin_generally(inbox, delivery_id, "a")
        late = look.plan_and_claim(RunPlan(delivery_id, ("a",)), OWNER, NOON, NOON + LEASE)

    again = begin(inbox, delivery_id, "a")

    assert (late, again) == (None, None)
    assert value(where, "SELECT count(*) FROM run") == 1


def test_one_of_many_concurrent_fast_paths_claims(inbox, where):
    delivery_id = put(inbox)

    with ThreadPoolExecutor(8) as threads:
        claims = list(threads.map(lambda _: begin(inbox, delivery_id, "a", "b"), range(24)))

    assert [claim is not None for claim in claims].count(True) == 1
    assert rows(where, "SELECT handler, attempts FROM run ORDER BY id") == [("a", 1), ("b", 0)]


def test_reading_an_unknown_or_claimed_delivery_shows_nothing_due(inbox):
    delivery_id = put(inbox)
    begin(inbox, delivery_id, "a")
    looks = []
    for each in (delivery_id, delivery_id + 1):
        with inbox.fast_path.read(each, NOON) as look:
            looks.append((look.stored, look.due))

    assert looks == [(None, False), (None, False)]


@pytest.mark.parametrize("after", [LEASE, timedelta(days=1)])
def test_reading_a_planned_delivery_shows_whether_a_run_is_due(inbox, after):
    delivery_id = put(inbox)
    begin(inbox, delivery_id, "a")

    with inbox.fast_path.read(delivery_id, NOON + after) as look:
        assert look.due
        assert look.stored is None


def test_a_success_whose_lease_was_lost_changes_nothing(inbox, where):
    delivery_id = put(inbox)
    claim = begin(inbox, delivery_id, "a")
    with inbox.transaction("another") as transaction:
        transaction.claim(1, NOON + LEASE, NOON + 2 * LEASE, only=delivery_id)
    before = tables(where)

    assert not inbox.fast_path.settle(success(claim))
    assert tables(where) == before


def test_a_delivery_that_got_another_run_meanwhile_is_not_done(inbox, where):
    delivery_id = put(inbox)
    claim = begin(inbox, delivery_id, "a")
    change(
        where,
        "INSERT INTO run (delivery_id, handler, state, attempts, due_at, token) "
        "SELECT delivery_id, 'newcomer', 'due', 0, due_at, 1 FROM run",
    )

    assert inbox.fast_path.settle(success(claim))
    assert tables(where)[1] == [("planned",)]


# --- what is plain, and what fails ----------------------------------------------------------------


def test_only_handlers_without_terms_are_plain():
    plain = [RunPlan(1, ("a",)), RunPlan(1, ("a", "b"))]
    others = [RunPlan(1), RunPlan(1, error="no JSON"), RunPlan(1, ("a",), options={"a": RunOptions("key")})]

    assert [planned.fits_fast_path for planned in plain + others] == [True, True, False, False, False]


def test_a_storage_failure_in_the_fast_path_raises_and_does_no_harm(inbox, where):
    delivery_id = put(inbox)
    claim = begin(inbox, delivery_id, "a")
    change(where, "ALTER TABLE run RENAME TO lost")
    with pytest.raises(InboxUnavailable, match=r"failed: .*run"):
        inbox.fast_path.settle(success(claim))
    with pytest.raises(InboxUnavailable, match=r"failed: .*run"), inbox.fast_path.read(delivery_id, NOON):
        pass
    change(where, "ALTER TABLE lost RENAME TO run")

    assert inbox.fast_path.settle(success(claim))
    assert tables(where)[1] == [("done",)]


def test_an_error_during_planning_leaves_the_delivery_received(inbox, where):
    delivery_id = put(inbox)
    with pytest.raises(ZeroDivisionError), inbox.fast_path.read(delivery_id, NOON):
        raise ZeroDivisionError

    assert begin(inbox, delivery_id, "a") is not None


def test_connections_that_the_server_ended_are_replaced(postgres_url):
    with closing(Inbox(postgres_url)) as made:
        made.upgrade()
    with closing(Inbox(f"{postgres_url}&application_name=express")) as inbox:
        first, second = put(inbox, "k1"), put(inbox, "k2")
        begin(inbox, first, "a")
        own = "SELECT pid FROM pg_stat_activity WHERE application_name = 'express'"
        ended = rows(postgres_url, own)
        for (pid,) in ended:
            change(postgres_url, "SELECT pg_terminate_backend(?)", pid)
        until(lambda: set(ended).isdisjoint(rows(postgres_url, own)))

        assert begin(inbox, second, "a") is not None
