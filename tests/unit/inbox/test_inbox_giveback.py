"""Claims that are committed although their worker was told that they are not."""

from __future__ import annotations

from datetime import timedelta

import pytest
from kit import NOON, change, incoming, rows

from billhook.inbox import Plan

LEASE = timedelta(seconds=30)
OWNER = "host:1:abcdef"


@pytest.fixture
def planned(inbox):
    """Four runs that are due."""
    ids = [inbox.put(incoming(f"k{number}")).delivery_id for number in range(4)]
    with inbox.turn("planner") as turn:
        turn.plan([Plan(delivery_id, ("h",)) for delivery_id in ids], NOON)


def claim(inbox, limit, *, owner=OWNER, idle=1):
    with inbox.turn(owner) as turn:
        return turn.claim(limit, NOON, NOON + LEASE, idle=idle)


def release_unknown(inbox, held, owner=OWNER):
    with inbox.turn(owner) as turn:
        return turn.release_unknown([(one.run_id, one.token) for one in held], NOON)


def runs(where):
    return rows(where, "SELECT state, attempts, lease_owner FROM run ORDER BY id")


@pytest.mark.usefixtures("planned")
def test_what_is_claimed_and_not_held_is_due_again_and_was_no_attempt(inbox, where):
    held, *_ = claim(inbox, 3)  # one begun, two queued

    assert release_unknown(inbox, [held]) == 2

    assert runs(where) == [("running", 1, OWNER), *[("due", 0, None)] * 3]
    assert [one.attempt for one in claim(inbox, 10)] == [1, 1, 1]


@pytest.mark.usefixtures("planned")
def test_without_anything_held_all_of_it_goes_back(inbox, where):
    claim(inbox, 4)

    assert release_unknown(inbox, []) == 4
    assert runs(where) == [("due", 0, None)] * 4


@pytest.mark.usefixtures("planned")
def test_nobody_elses_claim_is_touched(inbox, where):
    for owner in ("host:1:abcdee", "other:1:abcdef", "host:1:%"):
        claim(inbox, 1, owner=owner)
    before = runs(where)

    assert release_unknown(inbox, []) == 0
    assert release_unknown(inbox, [], owner="host:1:_bcdef") == 0
    assert runs(where) == before


@pytest.mark.usefixtures("planned")
def test_a_claim_of_the_same_run_that_came_later_is_not_the_one_that_is_held(inbox, where):
    (lost,) = claim(inbox, 1)
    change(where, "UPDATE run SET token = token + 1 WHERE id = ?", lost.run_id)

    assert release_unknown(inbox, [lost]) == 1


@pytest.mark.usefixtures("planned")
def test_what_it_settled_already_is_left_alone(inbox, where):
    claim(inbox, 4)
    change(where, "UPDATE run SET state = 'succeeded'")  # the name of the owner stays, as nothing settles it

    assert release_unknown(inbox, []) == 0
