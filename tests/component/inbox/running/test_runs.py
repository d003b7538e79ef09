"""The life of runs: plan, claim, settle, renew, release. Time is given, never read."""

from __future__ import annotations

from datetime import timedelta, timezone
from itertools import pairwise

import pytest

from billhook.errors import InboxUnavailable
from billhook.inbox import NOTHING_DUE, NextTimes, RunPlan, RunState, Unread
from billhook.inbox.running.leases import LOST
from support.inbox_view import NOON, change, column, incoming, rows, value
from support.runs import LEASE, OWNER, at, claim, plan, planned, result_of


def settle(inbox, claim, state=RunState.SUCCEEDED, *, seconds=1.0, error=None, **facts):
    traceback = error and "Traceback: " + error
    return settle_all(inbox, result_of(claim, state, seconds, error=error, traceback=traceback, **facts))


def settle_all(inbox, *results):
    with inbox.transaction(OWNER) as transaction:
        return transaction.settle(results)


def planned_many(inbox, number):
    for one in range(number):
        planned(inbox, "a", key=f"k{one}")


def delivery_state(where):
    return value(where, "SELECT state FROM delivery")


def runs(where, columns="state, attempts, token"):
    return rows(where, f"SELECT {columns} FROM run ORDER BY id")


# --- plan -----------------------------------------------------------------------------------------


def test_a_plan_makes_one_due_run_for_each_handler(inbox, where):
    delivery_id = planned(inbox, "a", "b")

    assert delivery_state(where) == "planned"
    assert runs(where, "delivery_id, handler, state, attempts, due_at") == [
        (delivery_id, "a", "due", 0, "2026-01-15 12:00:00.000000"),
        (delivery_id, "b", "due", 0, "2026-01-15 12:00:00.000000"),
    ]


def test_an_unreadable_delivery_is_quarantined_with_its_error(inbox, where):
    ids = [inbox.put(incoming(key)).delivery_id for key in "abc"]

    errors = ["e1", "e2", "e1"]

    plans = [RunPlan(one, error=error) for one, error in zip(ids, errors, strict=True)]
    assert plan(inbox, *plans) == ids

    found = rows(where, "SELECT state, error FROM delivery ORDER BY id")
    assert found == [("quarantined", error) for error in errors]
    assert inbox.received(10) == []


def test_a_delivery_is_planned_once_by_any_worker(inbox, where):
    delivery_id = planned(inbox, "a")

    assert plan(inbox, RunPlan(delivery_id, ("a", "b")), owner="another") == []
    assert len(runs(where)) == 1


def test_no_plans_are_no_work(inbox):
    with inbox.transaction(OWNER) as transaction:
        assert transaction.plan([], NOON) == []
        assert transaction.settle([]) == set()
        assert transaction.renew([], NOON) == set()
        assert transaction.release([], NOON) is None


# --- claim ----------------------------------------------------------------------------------------


def test_an_attempt_is_counted_when_it_is_claimed(inbox, where):
    planned(inbox, "a")
    ((before,),) = runs(where, "token")

    (claimed,) = claim(inbox)

    assert (claimed.handler, claimed.attempt, claimed.token) == ("a", 1, before + 1)
    assert (claimed.delivery.key, claimed.delivery.body) == ("k", b"{}")
    assert claimed.leased_until == NOON + LEASE
    assert runs(where, "state, attempts, token, worker, due_at") == [
        ("running", 1, before + 1, OWNER, "2026-01-15 12:00:30.000000")
    ]


@pytest.mark.parametrize(("seconds", "only_first"), [(30, False), (60, True)])
def test_leases_that_have_ended_expire_and_no_others(inbox, where, seconds, only_first):
    first, second = planned(inbox, "h", key="a"), planned(inbox, "h", key="b")
    claim(inbox, only=first)
    claim(inbox, seconds=20, only=second)

    claim(inbox, 0, seconds, only=first if only_first else None)

    assert runs(where, "state") == [("due",), ("running",)]


def test_a_run_is_not_claimed_before_its_time(inbox):
    planned(inbox, "a")
    (first,) = claim(inbox)
    settle(inbox, first, RunState.DUE, due=60, error="no")

    assert claim(inbox, seconds=59.9) == []
    assert claim(inbox, seconds=60)[0].attempt == 2


def test_claim_returns_the_longest_due_up_to_the_limit(inbox):
    planned_many(inbox, 5)

    first, second = claim(inbox, 3), claim(inbox, 3)

    assert [one.delivery.key for one in first + second] == ["k0", "k1", "k2", "k3", "k4"]


def test_a_run_lost_in_a_queue_is_no_attempt_and_a_started_one_is(inbox, where):
    planned_many(inbox, 3)
    claim(inbox, 3, owner="dies", idle=1)

    again = claim(inbox, seconds=31, owner="another")

    assert [(one.delivery.key, one.attempt) for one in again] == [("k0", 2), ("k1", 1), ("k2", 1)]
    assert runs(where, "attempts") == [(2,), (1,), (1,)]
    assert rows(where, "SELECT run_id, attempt FROM failure") == [(again[0].run_id, 1)]


def claim_others(inbox, *, seconds, idle=9):
    """What a loop claims that does not claim suspects."""
    return claim(inbox, 9, seconds, owner="loop", idle=idle, suspects=False)


def claim_suspect(inbox, *, seconds, only=None):
    with inbox.transaction("loop") as transaction:
        return transaction.claim_suspect(at(seconds), at(seconds) + LEASE, only)


def test_a_suspect_is_claimed_alone(inbox, where):
    planned_many(inbox, 3)
    claim(inbox, 2, owner="dies")

    others = claim_others(inbox, seconds=31)
    of_another = claim_suspect(inbox, seconds=31, only=others[0].delivery.delivery_id)
    suspects = [claim_suspect(inbox, seconds=31) for _ in range(3)]

    assert [(one.delivery.key, one.suspect) for one in others] == [("k2", False)]
    assert of_another is None
    assert [one and (one.delivery.key, one.attempt, one.uncounted, one.suspect) for one in suspects] == [
        ("k0", 2, 1, True),
        ("k1", 2, 1, True),
        None,
    ]
    assert rows(where, "SELECT run_id, attempt FROM failure ORDER BY id") == [(1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("history", "found"),
    [
        # A loss beside others does not count; one alone does, and so does the loss before it.
        ("lost alone alone", [(2, 1), (3, 0), (4, 0)]),
        ("stopped stopped stopped lost alone", [(2, 1), (3, 2), (4, 3), (5, 4), (6, 3)]),
        ("lost beside alone", [(2, 1), (3, 2), (4, 1)]),
        ("lost" + " beside" * 11, [(attempt, min(attempt - 1, 8)) for attempt in range(2, 14)]),
    ],
)
def test_which_attempts_count(inbox, where, history, found):
    """Those that are not counted, of each attempt, in a history of stops in order and of losses."""
    planned(inbox, "a")
    (one,) = claim(inbox)
    seconds, told = 0, []
    for end in history.split():
        if end == "stopped":
            settle(inbox, one, RunState.DUE, seconds=seconds, due=seconds, error="stopped", uncounted=True)
            (one,) = claim_others(inbox, seconds=seconds)
        else:
            if end == "beside":
                mark_not_alone(inbox, one)
            seconds += 31
            claim_others(inbox, seconds=seconds)
            one = claim_suspect(inbox, seconds=seconds)
        told.append((one.attempt, one.uncounted))

    assert told == found
    assert column(where, "SELECT attempt FROM failure ORDER BY id") == [*range(1, len(found) + 1)]
    assert runs(where, "last_error") == [(LOST,)]
    assert not any(column(where, "SELECT retried FROM failure"))
    # Only a loss that counts is of an issue.
    counts = [after <= before for before, after in pairwise([0, *(uncounted for _, uncounted in found)])]
    assert column(where, "SELECT fingerprint IS NOT NULL FROM failure ORDER BY id") == counts


def mark_not_alone(inbox, one):
    with inbox.transaction("loop") as transaction:
        transaction.mark_not_alone([one.lease])


def test_a_suspect_lost_beside_others_does_not_count_and_is_claimed_last(inbox):
    planned_many(inbox, 2)
    claim(inbox)
    claim_others(inbox, seconds=31)
    first, _ = (claim_suspect(inbox, seconds=31) for _ in range(2))
    for _ in range(2):  # once more changes nothing
        mark_not_alone(inbox, first)

    claim_others(inbox, seconds=62)
    found = [claim_suspect(inbox, seconds=62) for _ in range(2)]

    assert [(one.delivery.key, one.attempt, one.uncounted) for one in found] == [("k1", 3, 0), ("k0", 3, 2)]


def test_a_suspect_is_left_to_those_who_call_its_handler_for_its_type_and_the_next_is_claimed(inbox, where):
    planned_many(inbox, 2)
    claim(inbox)
    claim_others(inbox, seconds=31)
    change(where, "UPDATE delivery SET event_type = 'Acme' WHERE key = 'k0'")
    found = []

    def may_call(handler, event_type):
        return (handler, event_type) == ("a", "PingTest")

    for _ in range(2):
        with inbox.transaction("loop") as transaction:
            found.append(transaction.claim_suspect(at(31), at(61), may_call=may_call))

    assert [one and one.delivery.key for one in found] == ["k1", None]
    assert claim_suspect(inbox, seconds=31).delivery.key == "k0"


def test_runs_of_a_type_that_is_left_to_others_hide_none_that_are_due_behind_them(inbox, where):
    planned_many(inbox, 5)
    change(where, "UPDATE delivery SET event_type = 'Acme' WHERE key IN ('k0', 'k1')")
    change(where, "UPDATE delivery SET event_type = 'Other' WHERE key = 'k2'")

    def may_call(handler, event_type):
        return (handler, event_type) == ("a", "PingTest")

    with inbox.transaction("loop") as transaction:
        found = transaction.claim(2, at(1), at(31), may_call=may_call)

    assert [one.delivery.key for one in found] == ["k3", "k4"]
    assert [one.delivery.key for one in claim(inbox, 3)] == ["k0", "k1", "k2"]


def test_of_suspects_the_one_with_the_fewest_attempts_that_count_is_claimed_first(inbox, where):
    planned_many(inbox, 2)
    claim(inbox)
    claim_others(inbox, seconds=31)
    change(where, "UPDATE run SET attempts = 2, uncounted_attempts = 0 WHERE delivery_id = 1")
    change(where, "UPDATE run SET attempts = 5, uncounted_attempts = 5 WHERE delivery_id = 2")

    assert claim_suspect(inbox, seconds=31).delivery.key == "k1"


def test_a_suspect_that_is_released_waits_behind_no_other_for_what_ran_beside_it(inbox, where):
    planned(inbox, "a")
    claim(inbox)
    claim_others(inbox, seconds=31)
    suspect = claim_suspect(inbox, seconds=31)

    mark_not_alone(inbox, suspect)
    beside = runs(where, "state, beside_others")
    release(inbox, suspect.lease, 32)

    assert (beside, runs(where, "state, beside_others")) == ([("running", 1)], [("due", 0)])


def test_mark_not_alone_ignores_runs_that_are_no_suspects(inbox, where):
    planned(inbox, "a")
    (claimed,) = claim(inbox)

    mark_not_alone(inbox, claimed)

    assert runs(where, "beside_others") == [(0,)]


def test_a_suspect_that_is_settled_is_no_longer_suspect(inbox, where):
    planned(inbox, "a")
    claim(inbox)
    claim_others(inbox, seconds=31)
    settle(inbox, claim_suspect(inbox, seconds=31), RunState.DUE, seconds=32, due=40, error="no")

    (again,) = claim_others(inbox, seconds=41)

    assert (again.attempt, again.uncounted, again.suspect) == (3, 1, False)
    assert runs(where, "runs_alone, uncounted_attempts") == [(0, 1)]


def test_an_attempt_that_was_taken_for_lost_and_then_stopped_is_one_that_does_not_count(inbox):
    """Not two: of the next one the number would be 0, for which no schedule has a wait."""
    planned(inbox, "a")
    (late,) = claim(inbox)
    claim_others(inbox, seconds=31)
    settle(inbox, late, RunState.DUE, seconds=32, due=32, error="stopped", uncounted=True)

    (again,) = claim_others(inbox, seconds=33)

    assert (again.attempt, again.uncounted) == (2, 1)


def test_suspects_are_due_at_moments_of_their_own(inbox):
    planned_many(inbox, 8)
    claim(inbox)

    with inbox.transaction("loop") as transaction:
        found = transaction.claim(9, at(31), at(61), suspects=False, spread=timedelta(seconds=10))
        times = transaction.next_times()
    now, later = claim_suspect(inbox, seconds=31), [claim_suspect(inbox, seconds=41) for _ in range(8)]

    assert found == []
    assert at(31) < times.suspect_at <= at(41)
    assert times.due_at is None
    assert now is None
    assert len({one.delivery.key for one in later}) == 8
    assert inbox.poll(0)[1].suspect_at is None


def test_a_run_lost_in_a_queue_is_claimed_only_for_an_idle_thread(inbox):
    planned_many(inbox, 4)
    claim(inbox, 2, owner="dies", idle=0)

    busy = claim_others(inbox, seconds=31, idle=0)
    one_free = claim_others(inbox, seconds=31, idle=3)

    assert [one.delivery.key for one in busy] == ["k2", "k3"]  # those that were due before
    assert [(one.delivery.key, one.attempt) for one in one_free] == [("k0", 1), ("k1", 1)]
    assert claim_others(inbox, seconds=31, idle=0) == []


def test_no_run_is_queued_behind_one_lost_in_a_queue(inbox):
    planned_many(inbox, 3)
    claim(inbox, 3, owner="dies", idle=0)

    assert claim_others(inbox, seconds=31, idle=0) == []
    assert [one.delivery.key for one in claim_others(inbox, seconds=31, idle=1)] == ["k0"]


def test_a_run_that_waited_in_a_queue_and_failed_is_not_one_that_was_lost_there(inbox, where):
    planned(inbox, "a")
    (claimed,) = claim(inbox, idle=0)
    queued = runs(where, "state, queued")

    settle(inbox, claimed, RunState.DUE, due=5, error="no")

    assert (queued, runs(where, "state, queued")) == ([("running", 1)], [("due", 0)])


def test_a_suspect_is_due_for_its_delivery_alone(inbox):
    first, other = planned(inbox, "a", key="k0"), planned(inbox, "a", key="k1")
    claim(inbox, 1, owner="dies", only=first)
    claim_others(inbox, seconds=31)

    assert inbox.poll(0, only=first)[1].suspect_at == at(31)
    assert inbox.poll(0, only=other)[1].suspect_at is None


NOTHING_UNREAD = Unread([], None)


def test_poll_returns_the_next_due_time(inbox):
    assert inbox.poll(10) == (NOTHING_UNREAD, NOTHING_DUE)
    planned(inbox, "a")
    (claimed,) = claim(inbox)

    with inbox.transaction(OWNER) as transaction:
        leased = transaction.next_times()
    settle(inbox, claimed, RunState.DUE, due=100, error="no")

    of_a = frozenset({"a"})
    assert leased == NextTimes(NOON + LEASE, None, NOON + LEASE, names=of_a)
    failed = NextTimes(at(100), None, due={"a": at(100)}, first_due_at=at(100), names=of_a)
    assert inbox.poll(10) == (NOTHING_UNREAD, failed)


# --- settle ---------------------------------------------------------------------------------------


ENDS = [
    (["succeeded"], "done"),
    (["discarded"], "done"),
    (["dead"], "dead"),
    (["succeeded", "discarded", "succeeded"], "done"),
    (["succeeded", "dead"], "dead"),
    (["dead", "succeeded"], "dead"),
    (["dead", "discarded"], "dead"),
    (["succeeded", "due"], "planned"),
    (["dead", "due"], "planned"),
]


def test_a_delivery_ends_when_its_last_run_does(inbox, where):
    for number, (states, _) in enumerate(ENDS):
        delivery_id = planned(inbox, *(f"h{n}" for n in range(len(states))), key=f"k{number}")
        for claimed, state in zip(claim(inbox, only=delivery_id), states, strict=True):
            settle(inbox, claimed, RunState(state), due=9 if state == "due" else None, error="why")

    found = column(where, "SELECT state FROM delivery ORDER BY id")
    assert list(zip([states for states, _ in ENDS], found, strict=True)) == ENDS
    assert [state for state, *_ in runs(where)] == [state for states, _ in ENDS for state in states]


def test_many_runs_settle_in_one_transaction(inbox, where):
    planned(inbox, "a", "b", "c", "d")
    states = [RunState.SUCCEEDED, RunState.DEAD, RunState.SUCCEEDED, RunState.DISCARDED]
    claims = claim(inbox)

    ended = zip(claims, states, strict=True)
    settled = settle_all(inbox, *(result_of(one, state, error=f"{one.handler}!") for one, state in ended))

    assert settled == {one.lease for one in claims}
    assert [state for state, *_ in runs(where)] == states
    assert delivery_state(where) == "dead"
    assert rows(where, "SELECT error FROM failure") == [("b!",)]


def test_a_failure_leaves_its_history(inbox, where):
    planned(inbox, "a")
    for number in range(3):
        (claimed,) = claim(inbox, seconds=number * 10)
        state, due = (RunState.DEAD, None) if number == 2 else (RunState.DUE, number * 10 + 5)
        settle(inbox, claimed, state, seconds=number * 10 + 1, due=due, error=f"e{number}")

    columns = "attempt, error, traceback, failed_at, retried"
    assert rows(where, f"SELECT {columns} FROM failure ORDER BY id") == [
        (n + 1, f"e{n}", f"Traceback: e{n}", f"2026-01-15 12:00:{n * 10 + 1:02}.000000", int(n < 2))
        for n in range(3)
    ]
    assert runs(where, "state, last_error, worker, queued") == [("dead", "e2", OWNER, 0)]
    assert value(where, "SELECT finished_at FROM run") == "2026-01-15 12:00:21.000000"


def check_stale_settle_is_refused(inbox, where, settle_stale, key="k"):
    """A worker that was silent too long comes back with its result: it must change nothing."""
    of_the_key = "SELECT state FROM delivery WHERE key = ?"
    planned(inbox, "a", key=key)
    (stale,) = claim(inbox)
    (fresh,) = claim(inbox, seconds=31, owner="another")
    before = rows(where, "SELECT * FROM run") + rows(where, "SELECT * FROM failure")

    settled = settle_stale(inbox, stale)

    assert settled == set()
    assert rows(where, "SELECT * FROM run") + rows(where, "SELECT * FROM failure") == before
    assert value(where, of_the_key, key) == "planned"
    assert settle(inbox, fresh, seconds=32) == {fresh.lease}
    assert value(where, of_the_key, key) == "done"


def test_a_stale_settle_changes_nothing(inbox, where):
    for state in (RunState.SUCCEEDED, RunState.DISCARDED, RunState.DEAD, RunState.DUE):

        def settle_stale(inbox, stale, state=state):
            return settle(inbox, stale, state, due=40, error="late")

        check_stale_settle_is_refused(inbox, where, settle_stale, key=state)


def test_a_settle_that_looks_at_the_run_but_not_at_the_token_would_be_caught(inbox, where):
    def without_token(inbox, stale):
        change(where, "UPDATE run SET state = 'succeeded' WHERE id = ? AND state = 'running'", stale.run_id)
        return {stale.run_id}

    with pytest.raises(AssertionError, match="assert"):
        check_stale_settle_is_refused(inbox, where, without_token)


def test_a_run_is_settled_once(inbox, where):
    planned(inbox, "a")
    (claimed,) = claim(inbox)
    settle(inbox, claimed)

    again = settle(inbox, claimed, RunState.DEAD, error="second thoughts")

    assert again == set()
    assert runs(where, "state, last_error") == [("succeeded", None)]


# --- renew and release ----------------------------------------------------------------------------


def test_a_renewed_lease_holds(inbox):
    planned(inbox, "a")
    (claimed,) = claim(inbox)

    with inbox.transaction(OWNER) as transaction:
        held = transaction.renew([claimed.lease], at(60))

    assert held == {claimed.lease}
    assert claim(inbox, seconds=59, owner="another") == []
    assert settle(inbox, claimed, seconds=59) == {claimed.lease}


def release(inbox, lease, seconds):
    with inbox.transaction(OWNER) as transaction:
        transaction.release([lease], at(seconds))


@pytest.mark.parametrize(
    "lose",
    [
        lambda inbox, _: claim(inbox, seconds=31, owner="another"),
        lambda inbox, _: claim(inbox, 0, seconds=31, owner="another"),
        lambda inbox, lease: release(inbox, lease, 1),
    ],
    ids=["claimed by another worker", "made due by another worker", "released before"],
)
def test_a_lost_lease_cannot_be_renewed_nor_released(inbox, where, lose):
    planned(inbox, "a")
    (stale,) = claim(inbox)
    lose(inbox, stale.lease)
    before = rows(where, "SELECT * FROM run")

    with inbox.transaction(OWNER) as transaction:
        held = transaction.renew([stale.lease], at(99))
    release(inbox, stale.lease, 32)

    assert held == set()
    assert rows(where, "SELECT * FROM run") == before


@pytest.mark.parametrize("idle", [1, 0], ids=["started", "queued"])
def test_a_result_behind_its_lease_counts_while_no_worker_has_claimed_the_run(inbox, where, idle):
    planned(inbox, "a")
    (late,) = claim(inbox, idle=idle)
    claim(inbox, 0, seconds=31, owner="another")
    assert runs(where, "state") == [("due",)]

    assert settle(inbox, late, seconds=32) == {late.lease}

    assert runs(where, "state, attempts") == [("succeeded", 1)]


def test_a_released_run_is_due_at_once_and_its_attempt_not_counted(inbox, where):
    planned(inbox, "a")
    (claimed,) = claim(inbox)

    release(inbox, claimed.lease, 1)

    assert runs(where, "state, attempts, queued") == [("due", 0, 0)]
    (again,) = claim(inbox, seconds=1, owner="another")
    assert (again.attempt, again.token) == (1, claimed.token + 1)
    assert settle(inbox, claimed, seconds=2) == set()


# --- storage --------------------------------------------------------------------------------------


def test_a_storage_failure_in_a_transaction_raises_and_the_next_succeeds(inbox, where):
    planned(inbox, "a")
    change(where, "ALTER TABLE run RENAME TO lost")
    with pytest.raises(InboxUnavailable, match=r"no such table: run|relation \".*\.run\" does not exist"):
        claim(inbox)
    change(where, "ALTER TABLE lost RENAME TO run")

    assert len(claim(inbox)) == 1


def test_a_clock_in_another_zone_means_the_same_moments(inbox, where):
    zone = timezone(timedelta(hours=-7))
    planned(inbox, "a")
    with inbox.transaction(OWNER) as transaction:
        (claimed,) = transaction.claim(1, NOON.astimezone(zone), (NOON + LEASE).astimezone(zone))

    assert value(where, "SELECT due_at FROM run") == "2026-01-15 12:00:30.000000"
    assert claim(inbox, seconds=29, owner="another") == []
    assert claimed.leased_until == NOON + LEASE
