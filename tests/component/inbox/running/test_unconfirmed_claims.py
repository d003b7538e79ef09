"""Claims that are committed although their worker was told that they are not."""

from __future__ import annotations

import pytest

from support.inbox_view import NOON, change, rows
from support.runs import claim as claim_runs
from support.runs import planned

OWNER = "host:1:abcdef"


pytestmark = pytest.mark.usefixtures("four_due")


@pytest.fixture
def four_due(inbox):
    """Four runs that are due."""
    for number in range(4):
        planned(inbox, "h", key=f"k{number}")


def claim(inbox, limit, *, owner=OWNER):
    return claim_runs(inbox, limit, owner=owner, idle=1)


def release_orphaned(inbox, held, owner=OWNER):
    with inbox.transaction(owner) as transaction:
        return transaction.release_orphaned([one.lease for one in held], NOON)


def runs(where):
    return rows(where, "SELECT state, attempts, worker, queued FROM run ORDER BY id")


def test_orphaned_claims_are_released_without_counting_an_attempt(inbox, where):
    held, *_ = claim(inbox, 3)  # one begun, two queued

    assert release_orphaned(inbox, [held]) == 2

    assert runs(where) == [("running", 1, OWNER, 0), *[("due", 0, OWNER, 0)] * 2, ("due", 0, None, 0)]
    assert [one.attempt for one in claim(inbox, 10)] == [1, 1, 1]


def test_all_claims_of_a_worker_that_holds_none_are_released_and_no_others(inbox, where):
    for owner in ("host:1:abcdee", "other:1:abcdef", "host:1:%"):
        claim(inbox, 1, owner=owner)
    others = runs(where)[:3]
    claim(inbox, 1)

    assert release_orphaned(inbox, [], owner="host:1:_bcdef") == 0
    assert release_orphaned(inbox, []) == 1
    assert runs(where) == [*others, ("due", 0, OWNER, 0)]


def test_a_later_claim_of_a_held_run_is_orphaned(inbox, where):
    (lost,) = claim(inbox, 1)
    change(where, "UPDATE run SET token = token + 1 WHERE id = ?", lost.run_id)

    assert release_orphaned(inbox, [lost]) == 1


def test_releasing_unconfirmed_claims_leaves_settled_runs_and_retries_alone(inbox, where):
    claim(inbox, 4)
    # The name of the worker stays in both.
    change(where, "UPDATE run SET state = CASE WHEN id % 2 = 0 THEN 'due' ELSE 'succeeded' END")

    assert release_orphaned(inbox, []) == 0
