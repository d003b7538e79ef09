"""Runs of new deliveries that are claimed as they are made, in the transaction that plans them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from billhook.inbox import NOTHING_DUE, RunOptions, RunPlan
from support.inbox_view import NOON, change, incoming, rows
from support.query_plans import statements
from support.runs import OWNER, plan, planned

LEASED_UNTIL = NOON + timedelta(seconds=30)


def receive(inbox, *keys):
    for key in keys:
        inbox.put(incoming(key))
    return inbox.received(100)


def plan_and_claim(inbox, stored, *handlers, limit=10, idle=None, claimable=True):
    plans = [RunPlan(one.delivery_id, handlers, claimable=one if claimable else None) for one in stored]
    with inbox.transaction(OWNER) as transaction:
        assert transaction.plan(plans, NOON) == [one.delivery_id for one in stored]
        return transaction.claim(limit, NOON, LEASED_UNTIL, idle=idle)


def make_due(inbox, key, handler="a"):
    """A run that was due before: of a delivery that another worker planned."""
    planned(inbox, handler, key=key, seconds=-1)


def called(claims):
    return [(one.delivery.key, one.handler) for one in claims]


DUE = ("a", "due", 0, None, 0)


def runs(where, columns="handler, state, attempts, worker, queued"):
    return rows(where, f"SELECT {columns} FROM run ORDER BY id")


def test_new_runs_are_stored_as_claimed(inbox, where):
    stored = receive(inbox, "k", "l")

    claims = plan_and_claim(inbox, stored, "a", "b")

    releases = rows(where, "SELECT id FROM billhook_release")
    assert rows(where, "SELECT DISTINCT release_id FROM run") == releases
    assert called(claims) == [("k", "a"), ("k", "b"), ("l", "a"), ("l", "b")]
    assert [one.delivery for one in claims] == [stored[0], stored[0], stored[1], stored[1]]
    facts = {(one.attempt, one.leased_until, one.uncounted, one.suspect) for one in claims}
    assert facts == {(1, LEASED_UNTIL, 0, False)}
    columns = "id, token, state, attempts, worker, queued, due_at, started_at"
    until, now = "2026-01-15 12:00:30.000000", "2026-01-15 12:00:00.000000"
    assert runs(where, columns) == [(*one.lease, "running", 1, OWNER, 0, until, now) for one in claims]
    assert rows(where, "SELECT state FROM delivery") == [("planned",)] * 2


@pytest.mark.parametrize("claimable", [True, False], ids=["once", "control: twice"])
def test_they_are_written_once(inbox, claimable):
    stored = receive(inbox, "k", "l")

    with statements(inbox) as asked:
        plan_and_claim(inbox, stored, "a", claimable=claimable)

    is_updated = any(re.match(r"UPDATE \S*\brun\b", one) for one in asked)
    assert is_updated is not claimable


def test_beyond_the_idle_threads_they_are_queued_and_beyond_the_limit_due(inbox, where):
    claims = plan_and_claim(inbox, receive(inbox, *"klmn"), "a", limit=3, idle=1)

    assert called(claims) == [("k", "a"), ("l", "a"), ("m", "a")]
    running = [("a", "running", 1, OWNER, queued) for queued in (0, 1, 1)]
    assert runs(where) == [*running, DUE]
    assert runs(where, "due_at, started_at")[3] == ("2026-01-15 12:00:00.000000", None)


def test_what_was_due_before_comes_first_and_a_backlog_leaves_them_due(inbox, where):
    make_due(inbox, "old")
    make_due(inbox, "old too")

    claims = plan_and_claim(inbox, receive(inbox, *"kl"), "a", limit=3, idle=1)

    assert called(claims) == [("old", "a"), ("old too", "a"), ("k", "a")]
    assert runs(where) == [("a", "running", 1, OWNER, queued) for queued in (0, 1, 1)] + [DUE]
    make_due(inbox, "old again")
    assert called(plan_and_claim(inbox, receive(inbox, "m"), "a", limit=1)) == [("old again", "a")]
    assert [state for _, state, *_ in runs(where)][3:] == ["due", "running", "due"]


def test_they_do_not_pass_a_backlog_of_which_a_share_is_claimed(inbox):
    for number in range(5):
        make_due(inbox, f"old {number}")
    make_due(inbox, "other", "b")

    claims = plan_and_claim(inbox, receive(inbox, "k"), "a", limit=4)

    assert called(claims) == [("old 0", "a"), ("old 1", "a"), ("other", "b")]


def test_they_do_not_pass_a_run_that_was_lost_in_a_queue(inbox, where):
    make_due(inbox, "old")
    change(where, "UPDATE run SET queued = 1")

    assert plan_and_claim(inbox, receive(inbox, "k"), "a", limit=10, idle=0) == []

    assert [state for _, state, *_ in runs(where)] == ["due", "due"]


def test_while_a_handler_is_paused_they_are_made_due_and_asked_about(inbox, where):
    inbox.pause_handler("a", "why", NOON)

    assert called(plan_and_claim(inbox, receive(inbox, "k"), "a", "b")) == [("k", "b")]

    assert [(handler, state) for handler, state, *_ in runs(where)] == [("a", "due"), ("b", "running")]


def test_a_delivery_with_another_key_is_not_given_to_the_handler(inbox, where):
    (stored,) = receive(inbox, "k")
    read_before = [stored._replace(key="of the file before", body=b"of the file before")]

    (claim,) = plan_and_claim(inbox, read_before, "a")

    assert claim.delivery == stored


def test_another_worker_that_planned_them_keeps_them(inbox, where):
    (stored,) = receive(inbox, "k")
    plan(inbox, RunPlan(stored.delivery_id, ("a",)), owner="another")

    assert plan(inbox, RunPlan(stored.delivery_id, ("a", "b"), claimable=stored)) == []

    assert runs(where) == [DUE]


@pytest.mark.parametrize("claiming", [True, False])
def test_without_room_they_are_due_at_the_end_of_the_transaction(inbox, where, claiming):
    (stored,) = receive(inbox, "k")
    with inbox.transaction(OWNER) as transaction:
        transaction.plan([RunPlan(stored.delivery_id, ("a",), claimable=stored)], NOON)
        if claiming:
            assert transaction.claim(0, NOON, LEASED_UNTIL) == []

    assert runs(where) == [DUE]


def test_beside_plans_with_options_only_the_plain_ones_are_given(inbox, where):
    plain, ordered = receive(inbox, "k", "l")
    plans = [
        RunPlan(plain.delivery_id, ("a",), claimable=plain),
        RunPlan(ordered.delivery_id, ("b",), options={"b": RunOptions(order_key="o")}),
    ]
    with inbox.transaction(OWNER) as transaction:
        transaction.lock([], plans)
        transaction.plan(plans, NOON)
        claims = transaction.claim(10, NOON, LEASED_UNTIL, times=NOTHING_DUE)  # read before it

    # The ordered one was due when the claim looked; the plain one is made behind it.
    assert called(claims) == [("l", "b"), ("k", "a")]
    assert {state for _, state, *_ in runs(where)} == {"running"}


def test_claims_whose_commit_was_not_confirmed_are_found(inbox, where):
    plan_and_claim(inbox, receive(inbox, "k", "l"), "a", idle=1)

    with inbox.transaction(OWNER) as transaction:
        assert transaction.release_orphaned([], NOON) == 2

    assert runs(where) == [("a", "due", 0, OWNER, 0)] * 2
