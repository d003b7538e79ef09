"""Replay at the inbox itself: what it leaves alone, and handlers that are newer than a delivery."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from billhook.inbox import ContentKey, RunOptions, RunState
from billhook.inbox.operating.operations import ReplayResult, replay
from support.inbox_view import NOON, change, column, incoming, rows, value
from support.runs import claim, planned, settle

LATER = NOON + timedelta(hours=1)


def put(inbox, name, *handlers, error=None):
    """A delivery planned for these handlers; its id."""
    return planned(inbox, *handlers, key=name, error=error)


def finish(inbox, state=RunState.SUCCEEDED):
    """Whatever is due ends so."""
    settle(inbox, claim(inbox, 100), state)


def always(options=None):
    """A newcomer that takes every delivery, and what it was asked."""
    asked = []

    def newcomer(stored, handlers):
        asked.append((stored.delivery_id, stored.key, sorted(handlers)))
        return options or RunOptions()

    return newcomer, asked


def runs(where):
    return rows(where, "SELECT delivery_id, handler, state FROM run ORDER BY delivery_id, handler")


def states(where):
    return column(where, "SELECT state FROM delivery ORDER BY id")


# --- what failed since a time ---------------------------------------------------------------------


def test_of_a_delivery_only_what_failed_since_the_time_is_replayed(inbox, where):
    both = put(inbox, "both", "early", "late")
    claims = {one.handler: one for one in claim(inbox, 2)}
    settle(inbox, [claims["early"]], RunState.DEAD, 10)
    settle(inbox, [claims["late"]], RunState.DEAD, 100)
    well = put(inbox, "well", "late")
    settle(inbox, claim(inbox, 1, 100), seconds=110)
    since = NOON + timedelta(seconds=50)

    counted = [
        replay(inbox, [both, well], LATER, handler=name, only_failed=True, failed_since=at, dry_run=True).runs
        for name, at in ((None, NOON), (None, since), ("early", since), ("late", since), ("late", LATER))
    ]
    done = replay(inbox, [both, well], LATER, only_failed=True, failed_since=since)

    assert counted == [2, 1, 0, 1, 0]
    assert done == ReplayResult(1, runs=1)
    assert runs(where) == [(both, "early", "dead"), (both, "late", "due"), (well, "late", "succeeded")]


def test_a_dead_run_whose_failures_were_deleted_is_known_by_its_end(inbox, where):
    only = put(inbox, "only", "late")
    finish(inbox, RunState.DEAD)
    change(where, "DELETE FROM failure")

    assert replay(inbox, [only], LATER, failed_since=LATER, dry_run=True).runs == 0
    assert replay(inbox, [only], LATER, failed_since=NOON).runs == 1


# --- a handler that is newer ----------------------------------------------------------------------


def test_backfill_adds_a_run_to_each_delivery_that_was_read_and_has_none(inbox, where):
    done, unheard, has = put(inbox, "done", "old"), put(inbox, "unheard"), put(inbox, "has", "new")
    finish(inbox)
    unfinished, unread = put(inbox, "unfinished", "old"), inbox.put(incoming("unread")).delivery_id
    quarantined, pruned = put(inbox, "quarantined", error="no"), put(inbox, "pruned")
    change(where, "UPDATE delivery SET state = 'pruned' WHERE id = ?", pruned)
    ids = [done, unheard, has, unfinished, unread, quarantined, pruned, 99]
    newcomer, asked = always()
    before = runs(where)
    counted = replay(inbox, ids, LATER, handler="new", backfill=newcomer, dry_run=True)
    assert runs(where) == before
    asked.clear()

    result = replay(inbox, ids, LATER, handler="new", backfill=newcomer)

    assert result == counted == ReplayResult(deliveries=4, runs=1, added=3)
    assert asked == [(done, "done", ["old"]), (unheard, "unheard", []), (unfinished, "unfinished", ["old"])]
    assert runs(where) == [
        (done, "new", "due"),
        (done, "old", "succeeded"),
        (unheard, "new", "due"),
        (has, "new", "due"),
        (unfinished, "new", "due"),
        (unfinished, "old", "due"),
    ]
    assert states(where) == ["planned"] * 4 + ["received", "quarantined", "pruned"]
    due_at = value(where, "SELECT due_at FROM run WHERE delivery_id = ? AND handler = 'new'", done)
    assert due_at == "2026-01-15 13:00:00.000000"
    assert replay(inbox, ids, LATER, handler="new", backfill=newcomer) == ReplayResult()


def test_backfill_skips_deliveries_the_handler_does_not_handle(inbox, where):
    delivery_id = put(inbox, "a", "old")

    assert replay(inbox, [delivery_id], LATER, handler="new", backfill=lambda *_: None) == ReplayResult()
    assert replay(inbox, [delivery_id], LATER, handler="new") == ReplayResult()

    assert runs(where) == [(delivery_id, "old", "due")]


def test_backfilled_runs_keep_their_order_and_find_content_duplicates(inbox, where):
    ids = [put(inbox, name, "old") for name in "abc"]
    finish(inbox)

    def newcomer(stored, _):
        digest = "same" if stored.key in "ac" else "other"
        return RunOptions("k", ContentKey(digest, ("x",), stored.received_at, 60))

    result = replay(inbox, ids, LATER, handler="new", backfill=newcomer)

    assert result == ReplayResult(deliveries=3, added=3)
    assert rows(where, "SELECT state, twin_of FROM run WHERE handler = 'new' ORDER BY delivery_id") == [
        ("due", None),
        ("waiting", None),
        ("discarded", ids[0]),
    ]
    assert states(where) == ["planned", "planned", "done"]


def test_a_dead_delivery_stays_dead_when_its_backfilled_run_is_a_duplicate(inbox, where):
    first, second = put(inbox, "a", "old"), put(inbox, "b", "old")
    finish(inbox, RunState.DEAD)
    newcomer, _ = always(RunOptions(content_key=ContentKey("same", ("x",), NOON, 60)))

    replay(inbox, [first, second], LATER, handler="new", backfill=newcomer)

    assert rows(where, "SELECT id, state FROM delivery ORDER BY id") == [(first, "planned"), (second, "dead")]


# --- a handler that is not there ------------------------------------------------------------------


def test_runs_of_a_missing_handler_are_left_and_counted(inbox, where):
    both, gone = put(inbox, "both", "here", "gone"), put(inbox, "gone", "gone", "other")
    finish(inbox, RunState.DEAD)
    ids, asked = [both, gone], []

    def is_missing(event_type, handler):
        asked.append((event_type, handler))
        return handler != "here"

    counted = replay(inbox, ids, LATER, is_missing=is_missing, dry_run=True)
    done = replay(inbox, ids, LATER, is_missing=is_missing)

    left = Counter({"gone": 2, "other": 1})
    assert done == counted == ReplayResult(deliveries=1, runs=1, missing=left)
    assert set(asked) == {("PingTest", name) for name in ("here", "gone", "other")}
    assert runs(where) == [
        (both, "gone", "dead"),
        (both, "here", "due"),
        (gone, "gone", "dead"),
        (gone, "other", "dead"),
    ]
    assert states(where) == ["planned", "dead"]
    assert replay(inbox, ids, LATER).runs == 3  # control: nobody says that it is missing


def test_replay_counts_add_up():
    one = ReplayResult(1, 2, 3, 4, Counter(gone=1, other=5), 6, 7)
    more = ReplayResult(10, 20, 30, 40, Counter(gone=2), 60, 70)

    assert one + more == ReplayResult(11, 22, 33, 44, Counter(gone=3, other=5), 66, 77)


# --- what is pruned -------------------------------------------------------------------------------


def test_pruned_deliveries_are_not_replayed(inbox, where):
    delivery_id = put(inbox, "a")
    change(where, "UPDATE delivery SET state = 'pruned'")

    for which in ({}, {"all_handlers": True}, {"handler": "h"}):
        assert replay(inbox, [delivery_id], LATER, **which) == ReplayResult(), which

    assert value(where, "SELECT state FROM delivery") == "pruned"


def test_a_delivery_that_is_not_pruned_is_replayed(inbox, where):
    delivery_id = put(inbox, "a")

    assert replay(inbox, [delivery_id], LATER) == ReplayResult(deliveries=1, requeued=1)

    assert value(where, "SELECT state FROM delivery") == "received"


def test_the_first_attempt_of_a_replayed_run_counts(inbox):
    delivery_id = put(inbox, "a", "h")
    (first,) = claim(inbox)
    settle(inbox, [first], RunState.DUE, due=0, uncounted=True)
    finish(inbox, RunState.DEAD)

    replay(inbox, [delivery_id], LATER)

    (again,) = claim(inbox, seconds=3600)
    assert (again.attempt, again.uncounted) == (1, 0)
