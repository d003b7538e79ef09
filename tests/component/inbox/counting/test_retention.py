"""Letting go of old deliveries: what goes, what is left of it, what stays, and what looking for it costs."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from billhook.inbox import DeliveryState, PutStatus, RunPlan, RunState
from billhook.inbox.counting import retention
from billhook.inbox.counting.retention import BATCH_LIMIT, Cutoffs
from billhook.inbox.operating.operations import replay
from billhook.inbox.tables.schema import delivery
from support.inbox_view import NOON, change, column, incoming, open_inbox, rows, value
from support.query_plans import statements
from support.runs import claim, plan, settle
from support.templates import new_inbox

DAY = timedelta(days=1)


def put(inbox, key, state, *, days, handlers=("h",), timed=True):
    """A delivery that was received so many days before NOON, and how it stands; its id."""
    new = incoming(key, body=b'{"a": 1}', at=NOON - days * DAY)
    delivery_id = inbox.put(new if timed else replace(new, signed_at=None)).delivery_id
    if state == "received":
        return delivery_id
    if state == "quarantined":
        plan(inbox, RunPlan(delivery_id, error="unreadable"))
    else:
        plan(inbox, RunPlan(delivery_id, handlers, identifiers=("cus_1",)))
    if state in ("dead", "done"):
        end = RunState.DEAD if state == "dead" else RunState.SUCCEEDED
        settle(inbox, claim(inbox, only=delivery_id), end)
    return delivery_id


def prune_all(inbox, days, key_days=None, **options):
    """Everything that a retention of so many days lets go, in as many batches as it takes."""
    after, emptied, deleted = 0, Counter(), Counter()
    while True:
        went = inbox.prune(Cutoffs.of(NOON, days, key_days), after, **options)
        emptied.update(went.emptied)
        deleted.update(went.deleted)
        assert went.after >= after
        after = went.after
        if went.over:
            return emptied, deleted


def states(where):
    return dict(rows(where, "SELECT key, state FROM delivery ORDER BY id"))


def filled(inbox):
    """One in each state, of each age."""
    for days in (100, 10, 5, 0):
        for state in ("received", "planned", "done", "dead", "quarantined"):
            put(inbox, f"{state}-{days}", state, days=days)


# --- what goes and what stays ---------------------------------------------------------------------


def test_pruning_deletes_only_old_finished_deliveries_with_their_runs(inbox, where):
    filled(inbox)

    went = prune_all(inbox, 30)

    assert went == ({}, {"done": 1, "dead": 1, "quarantined": 1})
    left = states(where)
    assert {key for key in left if key.endswith("-100")} == {"received-100", "planned-100"}
    assert len(left) == 20 - 3
    assert set(left.values()) == {"received", "planned", "done", "dead", "quarantined"}
    assert value(where, "SELECT count(*) FROM run") == 4 + 3 + 3
    assert value(where, "SELECT count(*) FROM failure") == 3


def test_a_short_retention_keeps_only_keys_for_a_week(inbox, where):
    filled(inbox)

    went = prune_all(inbox, 1)

    assert went == (
        {"done": 1, "dead": 1, "quarantined": 1},
        {"done": 2, "dead": 2, "quarantined": 2},
    )
    pruned = rows(
        where,
        "SELECT key, source, event_type, received_at, body, headers, error, identifier_1 FROM delivery "
        "WHERE state = 'pruned' ORDER BY id",
    )
    received_at = "2026-01-10 12:00:00.000000"
    assert pruned == [
        (f"{state}-5", "default", "PingTest", received_at, b"", "{}", None, None)
        for state in ("done", "dead", "quarantined")
    ]
    kept_whole = "SELECT key FROM delivery WHERE state <> 'pruned' AND length(body) = 8 ORDER BY id"
    assert column(where, kept_whole) == [
        "received-100", "planned-100", "received-10", "planned-10", "received-5", "planned-5",
        "received-0", "planned-0", "done-0", "dead-0", "quarantined-0",
    ]  # fmt: skip
    assert value(where, "SELECT count(*) FROM run") == 4 + 1 + 1
    assert value(where, "SELECT count(*) FROM failure") == 1


def test_a_retention_of_zero_days_keeps_only_keys(inbox, where):
    put(inbox, "k", "done", days=0.001)

    assert prune_all(inbox, 0) == ({"done": 1}, {})

    assert inbox.put(incoming("k", body=b'{"a": 1}')).status is PutStatus.DUPLICATE
    assert states(where) == {"k": "pruned"}
    assert inbox.put(incoming("k", event_type="InvoiceApproved")).status is PutStatus.CONFLICT
    assert inbox.put(incoming("k", body=b"other")).status is PutStatus.CONFLICT


def test_a_kept_key_is_deleted_after_a_week(inbox, where):
    put(inbox, "k", "done", days=5)
    prune_all(inbox, 1)

    later = [inbox.prune(Cutoffs.of(NOON + days * DAY, 1)) for days in (1.9, 2.1)]

    assert [went.deleted for went in later] == [{}, {"pruned": 1}]
    assert states(where) == {}
    assert inbox.put(incoming("k")).status is PutStatus.ACCEPTED


# --- what signed no time can be sent again at any time --------------------------------------------


@pytest.mark.parametrize(
    ("timed", "status"),
    [(False, PutStatus.DUPLICATE), (True, PutStatus.ACCEPTED)],  # its signature would be stale by then
    ids=["untimed", "control: timed"],
)
def test_the_key_of_an_untimed_delivery_is_kept_after_the_retention(inbox, where, timed, status):
    put(inbox, "captured", "done", days=1_000, timed=timed)
    prune_all(inbox, 30)
    kept = rows(where, "SELECT state, body, headers, error, length(key) > 0 FROM delivery")
    again = incoming("captured", body=b'{"a": 1}', at=NOON)

    assert inbox.put(again if timed else replace(again, signed_at=None)).status is status
    assert kept == ([] if timed else [("pruned", b"", "{}", None, True)])
    assert value(where, "SELECT count(*) FROM run") == 0


def test_keys_without_a_signed_time_are_pruned_after_the_days_named(inbox, where):
    for days in (39, 41):
        put(inbox, f"untimed-{days}", "done", days=days, timed=False)
        put(inbox, f"timed-{days}", "done", days=days)

    assert prune_all(inbox, 30, 40) == ({"done": 1}, {"done": 3})
    assert states(where) == {"untimed-39": "pruned"}


def test_keys_without_a_signed_time_are_kept_as_long_as_their_delivery():
    for days, key_days, kept in ((30, 7, 30), (1, 7, 7), (1, 8, 8), (0, 365, 365)):
        limits = Cutoffs.of(NOON, days, key_days)
        assert NOON - limits.delete_untimed_before == kept * DAY, (days, key_days)


def test_pruning_by_state_deletes_only_those_states(inbox, where):
    filled(inbox)
    prune_all(inbox, 1, states=[DeliveryState.DEAD])

    assert prune_all(inbox, 1, states=[DeliveryState.DONE]) == ({"done": 1}, {"done": 2})

    left = states(where)
    assert left["dead-5"] == left["done-5"] == "pruned"
    assert left["quarantined-100"] == "quarantined"


def test_a_dry_run_counts_the_same_and_changes_nothing(inbox, where):
    filled(inbox)
    before = [rows(where, f"SELECT * FROM {table} ORDER BY id") for table in ("delivery", "run", "failure")]

    counted = prune_all(inbox, 1, dry_run=True)

    after = [rows(where, f"SELECT * FROM {table} ORDER BY id") for table in ("delivery", "run", "failure")]
    assert after == before
    assert counted == prune_all(inbox, 1)


def test_a_delivery_with_an_unfinished_run_is_not_pruned(inbox, where):
    for state in ("waiting", "due", "running"):
        delivery_id = put(inbox, state, "done", days=100, handlers=("a", "b"))
        unfinished = "UPDATE run SET state = ? WHERE handler = 'b' AND delivery_id = ?"
        change(where, unfinished, state, delivery_id)

    assert prune_all(inbox, 1) == ({}, {})
    assert states(where) == {"waiting": "done", "due": "done", "running": "done"}


def test_a_delivery_replayed_during_pruning_is_kept(inbox, where):
    delivery_id = put(inbox, "k", "dead", days=100)
    limits = Cutoffs.of(NOON, 1)
    with inbox.database.read() as connection:
        found, _, _ = retention.find(connection, limits, 0, 10)
    replay(inbox, [delivery_id], NOON)

    with inbox.database.write() as connection:
        went = retention.prune(connection, found, limits)

    assert [row.id for row in found] == [delivery_id]
    assert went == []
    assert states(where) == {"k": "planned"}


def test_two_that_prune_the_same_do_it_once(inbox, where):
    put(inbox, "young", "done", days=5)
    put(inbox, "old", "done", days=100)
    limits = Cutoffs.of(NOON, 1)
    with inbox.database.read() as connection:
        found, _, _ = retention.find(connection, limits, 0, 10)

    went = []
    for _ in range(2):
        with inbox.database.write() as connection:
            rows = retention.prune(connection, found, limits)
            went.append(retention.counted(rows, limits, 0, over=True).total)

    assert went == [2, 0]
    assert states(where) == {"young": "pruned"}


def test_pruning_skips_locked_deliveries(postgres_url):
    inbox = open_inbox(new_inbox(postgres_url))
    locked, free = (put(inbox, key, "done", days=100) for key in ("locked", "free"))

    with inbox.database.write() as connection:
        connection.execute(select(delivery.c.id).where(delivery.c.id == locked).with_for_update())
        went = []
        thread = threading.Thread(target=lambda: went.append(prune_all(inbox, 1)))
        thread.start()
        thread.join(5)
        assert not thread.is_alive()

    assert went == [({}, {"done": 1})]
    assert locked < free
    assert states(postgres_url) == {"locked": "done"}
    assert prune_all(inbox, 1) == ({}, {"done": 1})


# --- how much at a time ---------------------------------------------------------------------------


def many(inbox, where, count, *, days, state="done"):
    """So many of one age, in one state."""
    for start in range(0, count, 250):
        keys = range(start, min(count, start + 250))
        inbox.database.insert_new([incoming(f"{days}-{key}", at=NOON - days * DAY) for key in keys])
    change(where, "UPDATE delivery SET state = ? WHERE state = 'received'", state)


def test_pruning_batches_have_the_limits_size_and_continue(inbox, where):
    many(inbox, where, 250, days=100)

    after, found = 0, []
    for _ in range(3):
        went = inbox.prune(Cutoffs.of(NOON, 30), after, limit=100)
        after = went.after
        found.append((went.total, went.over))

    assert found == [(100, False), (100, False), (50, True)]


def test_no_batch_is_larger_than_five_hundred(inbox, where):
    many(inbox, where, 1200, days=100)

    went = inbox.prune(Cutoffs.of(NOON, 30), limit=10_000)

    assert (went.total, went.over) == (BATCH_LIMIT, False)


def count_queries(inbox, days, after=0):
    """How many reads one pass takes."""
    with statements(inbox) as asked:
        while True:
            went = inbox.prune(Cutoffs.of(NOON, days), after, dry_run=True)
            after = went.after
            if went.over:
                break
    return len([one for one in asked if re.match(r"SELECT (\w+\.)?delivery", one)])


OLD_AND_YOUNG = [(100, "planned"), (5, "done")]


@pytest.mark.parametrize(
    ("stored", "days", "reads"),
    [
        (OLD_AND_YOUNG, 30, 3000 / BATCH_LIMIT + 1),  # none of the old ones may go
        (OLD_AND_YOUNG, 1, 6000 / BATCH_LIMIT + 1),  # the last read finds the end
        ([(5, "done")], 3, 3000 / BATCH_LIMIT + 1),
        ([(5, "done")], 30, 1),
    ],
)
def test_a_pass_reads_each_old_row_once(inbox, where, stored, days, reads):
    for age, state in stored:
        many(inbox, where, 3000, days=age, state=state)

    assert count_queries(inbox, days) == reads


def test_a_pass_that_found_nothing_old_begins_at_the_first_row_again(inbox, where):
    many(inbox, where, 10, days=5)

    assert inbox.prune(Cutoffs.of(NOON, 30)).after == 0  # what is young now will be old


def test_a_delivery_from_the_future_does_not_stop_pruning(inbox, where):
    put(inbox, "from the future", "done", days=-1000)
    put(inbox, "old", "done", days=100)

    assert prune_all(inbox, 30) == ({}, {"done": 1})
    assert states(where) == {"from the future": "done"}
