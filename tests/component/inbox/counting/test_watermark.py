"""Figures equal the rows wherever the watermark is; what an action removes stays counted; none falls."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from billhook.inbox import RunOptions, RunPlan, RunState
from billhook.inbox.counting import counts
from billhook.inbox.counting.retention import Cutoffs
from billhook.inbox.operating.operations import discard, erase, replay
from billhook.inbox.postgres import dialect as postgres_dialect
from billhook.inbox.watching.overview import read_totals
from support.figures import advance, totals
from support.inbox_view import NOON, change, incoming, open_inbox, postgres, rows, value
from support.postgres import only_sqlite
from support.processes import run_command, together, until
from support.races import only_postgres
from support.runs import LEASE, claim, handled, plan, planned, result_of, settle

FAR = timedelta(days=400)
ENDS = (RunState.SUCCEEDED, RunState.SUCCEEDED, RunState.DUE, RunState.DEAD, RunState.DISCARDED)


def of_rows(where):
    """The totals, counted from the rows by the test itself."""
    numbers = Counter()
    for came_as, state, conflict_of in rows(
        where, "SELECT coalesce(sent_as, event_type), state, conflict_of FROM delivery"
    ):
        if came_as and conflict_of is None:
            numbers[came_as, "", "accepted"] += 1
            numbers[came_as, "", "quarantined"] += state == "quarantined"
    for handler, state in rows(where, "SELECT handler, state FROM run WHERE finished_at IS NOT NULL"):
        numbers["", handler, state] += 1
    retried = "SELECT handler FROM failure JOIN run ON run.id = run_id WHERE retried = 1"
    for (handler,) in rows(where, retried):
        numbers["", handler, "failed"] += 1
    return +numbers


class History:
    """Deliveries that come, are planned, handled and counted at random, as time goes by."""

    def __init__(self, inbox, seed=1):
        self.inbox = inbox
        self.chance = random.Random(seed)
        self.now = NOON
        self.ids = []

    def step(self):
        self.now += timedelta(seconds=self.chance.choice([0, 1, 60, 900]))
        for _ in range(self.chance.randrange(5)):
            name = self.chance.choice(["PingTest", "PaymentFailed"])
            new = replace(incoming(f"k{len(self.ids)}", at=self.now), event_type=name)
            self.ids.append(self.inbox.put(new).delivery_id)
        self.plan()
        self.handle()

    def plan(self):
        plans = []
        for stored in self.inbox.received(4):
            error = "unreadable" if self.chance.random() < 0.2 else None
            plans.append(RunPlan(stored.delivery_id, () if error else ("f", "g"), error))
        plan(self.inbox, *plans, seconds=self.seconds)

    @property
    def seconds(self):
        return (self.now - NOON).total_seconds()

    def handle(self):
        claims = claim(self.inbox, self.chance.randrange(1, 5), self.seconds)
        self.now += timedelta(seconds=self.chance.random())
        results = []
        for one in claims:
            state = self.chance.choice(ENDS)
            facts = {} if state is RunState.SUCCEEDED else {"error": "e"}
            if state is RunState.DUE:
                facts["due_at"] = self.now + timedelta(seconds=self.chance.choice([0, 100]))
            facts["duration_seconds"] = self.chance.choice([None, 0.004, 3.0])
            results.append(result_of(one, state, self.seconds, **facts))
        with self.inbox.transaction("w") as transaction:
            transaction.settle(results, lambda: self.now)

    def advance(self):
        for _ in range(self.chance.randrange(4)):
            self.inbox.advance_watermark(self.now)

    def some(self):
        return self.chance.sample(self.ids, min(len(self.ids), 4))


# --- the rows -----------------------------------------------------------------------------------------


def others_slow(first, *others):
    """Return parameters of which all but the first are tried with the slow tests alone."""
    return [first, *(pytest.param(one, marks=pytest.mark.slow) for one in others)]


@pytest.mark.parametrize("case", others_slow((0, False), (0, True), (1, False), (1, True), (2, True)))
def test_figures_equal_the_rows_wherever_the_watermark_is(inbox, where, monkeypatch, case):
    """Also when the clock is set back now and then."""
    seed, sets_back = case
    monkeypatch.setattr(counts, "_STEP_LIMIT", 7)
    history = History(inbox, seed)

    for _ in range(25):
        history.step()
        history.advance()
        if sets_back and history.chance.random() < 0.3:
            history.now -= timedelta(seconds=history.chance.choice([2, 10, 100, 4000]))
        assert totals(inbox) == of_rows(where)
    assert value(where, "SELECT delivery_id FROM billhook_watermark") > 0

    advance(inbox, history.now + FAR)
    assert totals(inbox) == of_rows(where)
    # The control: what changes a row unseen is found.
    dead = "SELECT id FROM run WHERE state = 'dead' LIMIT 1"
    change(where, f"UPDATE run SET state = 'discarded' WHERE id = ({dead})")
    assert totals(inbox) != of_rows(where)


def test_durations_and_hours_are_the_same_below_and_above_the_watermark(inbox, where):
    history = History(inbox)
    for _ in range(20):
        history.step()

    before = read_totals(inbox)
    advance(inbox, history.now + timedelta(hours=1))

    assert read_totals(inbox) == before
    counted = sum(one.number for one in before.values())
    assert value(where, "SELECT sum(number) FROM billhook_count") == counted


def test_the_watermark_moves_over_much_in_small_steps(inbox, where, monkeypatch):
    monkeypatch.setattr(counts, "_STEP_LIMIT", 10)
    history = History(inbox)
    for _ in range(20):
        history.step()
    expected = of_rows(where)
    deliveries = value(where, "SELECT count(*) FROM delivery")

    ids = [0]
    while ids[-1] < deliveries:
        inbox.advance_watermark(NOON + FAR)
        ids.append(value(where, "SELECT delivery_id FROM billhook_watermark"))
        assert totals(inbox) == expected

    assert max(b - a for a, b in pairwise(ids)) == 10


def test_the_watermark_goes_no_further_than_was_noted_however_many_rows_are_after_it(
    inbox, where, monkeypatch
):
    """What is above may be of transactions that are under way."""
    monkeypatch.setattr(counts, "_STEP_LIMIT", 2)
    for number in range(5):
        handled(inbox, f"k{number}", handler="f", seconds=10 * number + 1)
    noted = counts.Watermark(NOON + timedelta(seconds=5), 1, 0, 0)

    with inbox.database.write() as connection:
        counts.advance(connection, noted, None)

    finished_at = value(where, "SELECT finished_at FROM billhook_watermark")
    assert finished_at == "2026-01-15 12:00:05.000000"


def test_the_watermark_stays_while_nothing_happens(inbox, where, monkeypatch):
    History(inbox).step()
    advance(inbox, NOON + FAR)

    monkeypatch.setattr(inbox.database, "write", None)

    assert inbox.advance_watermark(NOON + 2 * FAR) is False


@pytest.mark.parametrize("back", [9, 10, 3600])
def test_what_happens_while_the_clock_is_set_back_is_counted(inbox, where, back):
    handled(inbox, "before", handler="f")
    advance(inbox, NOON + timedelta(seconds=8))

    handled(inbox, "set back", 8 - back, "f")

    assert totals(inbox) == of_rows(where)
    advance(inbox, NOON + FAR)
    assert totals(inbox) == of_rows(where)
    assert totals(inbox)["", "f", "succeeded"] == 2


@only_postgres
def test_a_clock_that_is_set_back_between_the_note_and_the_move_loses_nothing(inbox, where):
    """SQLite has one writer: what it has not written when the watermark moves, it writes after that."""
    handled(inbox, "before", handler="f")
    inbox.advance_watermark(NOON + timedelta(seconds=60))  # notes
    now = NOON + timedelta(seconds=10)
    number = inbox.put(incoming("set back", at=now)).delivery_id

    with inbox.transaction("slow") as slow:
        slow.plan([RunPlan(number, ("f",))], now)
        claims = slow.claim(9, now, now + LEASE)
        slow.settle([result_of(one, RunState.SUCCEEDED, 10) for one in claims], lambda: now)
        inbox.advance_watermark(NOON + timedelta(seconds=11))
    advance(inbox, NOON + FAR)

    assert totals(inbox) == of_rows(where)


def test_what_has_just_happened_stays_above_the_watermark(inbox, where):
    handled(inbox)

    advance(inbox, NOON + timedelta(seconds=1))

    assert rows(where, "SELECT what FROM billhook_count") == [("accepted",)]
    advance(inbox, NOON + timedelta(seconds=10))
    assert rows(where, "SELECT what FROM billhook_count ORDER BY what") == [("accepted",), ("succeeded",)]


# --- actions ------------------------------------------------------------------------------------------


def replay_all(inbox, ids, now):
    replay(inbox, ids, now, handler="f")
    replay(inbox, ids, now)


def discard_all(inbox, ids, now):
    discard(inbox, ids, "no", now)


def erase_all(inbox, ids, now):
    erase(inbox, ids, now, discard_unfinished=True)


def prune_all(inbox, ids, now):
    inbox.prune(Cutoffs(NOON + FAR, NOON - FAR, None), min(ids) - 1, len(ids))
    inbox.prune(Cutoffs(NOON + FAR, NOON + FAR, None), max(ids), 2)


ACTIONS = (replay_all, discard_all, erase_all, prune_all)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("action", ACTIONS)
def test_what_an_action_removes_stays_counted(inbox, where, action, counted):
    history = History(inbox, seed=5)
    for _ in range(20):
        history.step()
    if counted:
        advance(inbox, history.now + timedelta(minutes=1))
    before, rows_before = totals(inbox), of_rows(where)

    action(inbox, history.ids, history.now + timedelta(minutes=2))

    removed = rows_before - of_rows(where)
    assert removed
    gained = of_rows(where) - rows_before
    assert totals(inbox) == before + gained
    assert all(what == "discarded" for _, _, what in gained)
    for _ in range(5):
        history.step()
    advance(inbox, history.now + FAR)
    assert totals(inbox) == of_rows(where) + removed


@pytest.mark.parametrize("seed", others_slow(0, 1, 2))
def test_no_figure_falls_whatever_operators_do(inbox, where, monkeypatch, seed):
    monkeypatch.setattr(counts, "_STEP_LIMIT", 7)
    history = History(inbox, seed)
    removed, last = Counter(), Counter()

    for _ in range(25):
        history.step()
        history.advance()
        before = of_rows(where)
        if history.ids and history.chance.random() < 0.5:
            history.chance.choice(ACTIONS)(inbox, history.some(), history.now)
            removed += before - of_rows(where)
        found = totals(inbox)
        # More than these: a delivery below the watermark that is quarantined again is not counted again.
        assert found <= of_rows(where) + removed
        assert found >= last
        last = found

    quarantined = {key for key in last if key[-1] == "quarantined"}
    known = of_rows(where) + removed
    assert {key: last[key] for key in last.keys() - quarantined} == {
        key: known[key] for key in known.keys() - quarantined
    }


def test_a_run_that_is_discarded_with_an_old_time_is_counted(inbox):
    """An operator's command takes the time once, and may run for minutes."""
    later = NOON + timedelta(hours=1)
    waiting, other = planned(inbox, "h", key="waiting"), planned(inbox, "g", key="handled")
    settle(inbox, claim(inbox, only=other), seconds=3600)
    advance(inbox, later + timedelta(minutes=1))

    discard(inbox, [waiting], "no", NOON)

    assert totals(inbox)["", "h", "discarded"] == 1
    advance(inbox, later + timedelta(minutes=2))
    assert totals(inbox)["", "h", "discarded"] == 1


@only_sqlite
def test_new_rows_are_counted_that_have_the_ids_of_deleted_ones(inbox, where):
    history = History(inbox)
    for _ in range(10):
        history.step()
    advance(inbox, NOON + FAR)
    discard_all(inbox, history.ids, history.now)
    inbox.prune(Cutoffs(NOON + FAR, NOON + FAR, None))
    assert value(where, "SELECT count(*) FROM delivery") == 0
    before = totals(inbox)["PingTest", "", "accepted"]

    new = inbox.put(incoming("new")).delivery_id

    assert new == 1
    assert totals(inbox)["PingTest", "", "accepted"] == before + 1


@only_sqlite
def test_rows_that_are_deleted_between_the_note_and_the_move_leave_no_gap(inbox):
    for number in range(3):
        inbox.put(incoming(f"k{number}"))
    with inbox.database.read() as connection:
        noted = counts.note(connection, NOON + FAR)
    discard_all(inbox, [1, 2, 3], NOON)
    inbox.prune(Cutoffs(NOON + FAR, NOON + FAR, None))
    with inbox.database.write() as connection:
        counts.advance(connection, noted.end, None)

    assert inbox.put(incoming("new")).delivery_id == 1

    assert totals(inbox)["PingTest", "", "accepted"] == 4


# --- many at once -------------------------------------------------------------------------------------


@pytest.mark.parametrize("replaying", others_slow(True, False))
def test_each_row_is_counted_once_by_workers_side_by_side(inbox, where, replaying):
    """Beside puts, plans, results, and an operator who replays."""
    inboxes = [open_inbox(where) for _ in range(3)]
    history, seen = History(inbox, 9), []
    works = [lambda one=one: one.advance_watermark(history.now) for one in inboxes[:2]]
    works.append(lambda: seen.append(totals(inbox)))
    if replaying:
        works.append(lambda: replay_all(inboxes[2], history.ids[-20:], history.now))

    def run(number):
        if number < len(works):
            while not stop.is_set():
                works[number]()
            return
        for _ in range(25):
            history.step()
        stop.set()

    stop = threading.Event()
    assert together(len(works) + 1, run) == [None] * (len(works) + 1)

    assert all(after >= before for before, after in pairwise(seen))
    assert value(where, "SELECT sum(number) FROM billhook_count") > 0
    if replaying:
        assert totals(inbox) >= of_rows(where)
    else:
        assert totals(inbox) == of_rows(where)


ADVANCE = """
import sys
from datetime import datetime
from billhook.inbox import Inbox
from billhook.inbox.counting import counts
counts._STEP_LIMIT = 5
inbox = Inbox(sys.argv[1])
now = datetime.fromisoformat(sys.argv[2])
while True:
    inbox.advance_watermark(now)
"""


@pytest.mark.parametrize(
    "failpoint", others_slow("in_watermark:3", "after_watermark:2", "in_watermark", "after_watermark")
)
def test_a_process_that_is_killed_while_it_moves_the_watermark_counts_nothing_twice(
    inbox, where, inbox_url, failpoint
):
    history = History(inbox)
    for _ in range(20):
        history.step()
    expected = of_rows(where)
    command = [sys.executable, "-c", ADVANCE, inbox_url, (NOON + FAR).isoformat()]

    killed = run_command(command, env={**os.environ, "BILLHOOK_FAILPOINT": failpoint})

    assert killed.returncode == -signal.SIGKILL
    assert totals(inbox) == expected
    advance(inbox, NOON + FAR)
    assert totals(inbox) == expected


# --- open transactions of PostgreSQL ------------------------------------------------------------------


@pytest.fixture
def bystander(where):
    """Another process's connection."""
    with closing(postgres(where)) as connection:
        connection.autocommit = False
        yield connection


PUT = """
    INSERT INTO delivery (source, key, event_type, headers, state, received_at, body)
    VALUES ('default', %s, 'PingTest', '{}', 'received', '2026-01-15 12:00:00+00', '')
"""


@only_postgres
def test_a_delivery_of_a_transaction_that_is_open_across_a_move_is_not_lost(inbox, where, bystander):
    bystander.execute(PUT, ["slow"])
    inbox.put(incoming("quick"))
    for _ in range(5):
        inbox.advance_watermark(NOON + FAR)
    assert totals(inbox) == {("PingTest", "", "accepted"): 1}

    bystander.commit()

    assert totals(inbox) == {("PingTest", "", "accepted"): 2}
    advance(inbox, NOON + FAR)
    advance(inbox, NOON + FAR)
    assert totals(inbox) == {("PingTest", "", "accepted"): 2}
    assert value(where, "SELECT delivery_id FROM billhook_watermark") == 2


@only_postgres
def test_a_result_of_a_transaction_that_is_open_across_a_move_is_not_lost(inbox, where, bystander):
    for key in ("slow", "quick"):
        planned(inbox, "h", key=key)
    finish = "UPDATE run SET state = 'succeeded', finished_at = %s WHERE delivery_id = %s"
    bystander.execute(finish, [NOON, 1])
    change(where, finish.replace("%s", "?"), NOON + timedelta(seconds=9), 2)
    for _ in range(5):
        inbox.advance_watermark(NOON + FAR)

    bystander.commit()

    assert totals(inbox)["", "h", "succeeded"] == 2
    for _ in range(2):
        advance(inbox, NOON + FAR)
    assert value(where, "SELECT number FROM billhook_count WHERE what = 'succeeded'") == 2
    # The control: had it been counted before, what commits late is in neither part.
    bystander.execute(finish, [NOON, 1])
    bystander.commit()
    change(where, "UPDATE billhook_watermark SET finished_at = '2030-01-01 00:00:00+00'")
    change(where, "DELETE FROM billhook_count")
    assert totals(inbox)["", "h", "succeeded"] == 0


@only_postgres
def test_the_watermark_moves_when_the_transactions_of_its_note_are_over(inbox, where, bystander):
    """Others that began since do not hold it up: under load there is always one."""
    bystander.execute(PUT, ["first"])
    inbox.put(incoming("second"))
    inbox.advance_watermark(NOON + FAR)
    with closing(postgres(where)) as another:
        another.autocommit = False
        another.execute(PUT, ["third"])
        bystander.commit()

        assert until(lambda: not inbox.advance_watermark(NOON + FAR))

        assert value(where, "SELECT delivery_id FROM billhook_watermark") == 2


@only_postgres
@pytest.mark.parametrize(("own", "up_to"), [(False, 1), (True, 0)])
def test_the_watermark_is_kept_by_its_own_inbox_and_by_no_other_of_the_database(
    inbox, where, bystander, own, up_to
):
    inbox.put(incoming("k1"))
    if not own:  # gone with its transaction
        bystander.execute("CREATE SCHEMA another_inbox")
        bystander.execute("SET LOCAL search_path = another_inbox")
        bystander.execute("CREATE TABLE billhook_watermark AS SELECT 1")
    bystander.execute(
        f"SELECT pg_advisory_xact_lock({postgres_dialect._COUNTS_OF_INBOX}) FROM billhook_watermark"
    )

    for _ in range(5):
        inbox.advance_watermark(NOON + FAR)

    assert value(where, "SELECT delivery_id FROM billhook_watermark") == up_to


# --- what happens again ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "counted", [(), ("first",), ("first", "second")], ids=lambda when: "+".join(when) or "-"
)
def test_a_delivery_that_is_quarantined_again_is_counted_again_whenever_it_was_counted(inbox, counted):
    delivery_id = inbox.put(incoming("k")).delivery_id
    unreadable = RunPlan(delivery_id, (), "unreadable")
    plan(inbox, unreadable)
    if "first" in counted:
        advance(inbox, NOON + FAR)

    replay(inbox, [delivery_id], NOON)
    if "second" in counted:
        advance(inbox, NOON + FAR)
    plan(inbox, unreadable)

    assert totals(inbox)["PingTest", "", "quarantined"] == 2
    advance(inbox, NOON + FAR)
    assert totals(inbox)["PingTest", "", "quarantined"] == 2


@pytest.mark.parametrize("counted", [False, True], ids=["-", "counted"])
def test_a_run_that_is_superseded_again_is_counted_again_whenever_it_was_counted(inbox, counted):
    old, new = (inbox.put(incoming(key)).delivery_id for key in ("old", "new"))
    newest = {"f": RunOptions(order_key="x", newest_only=True)}
    plan(inbox, RunPlan(old, ("f",), options=newest), RunPlan(new, ("f",), options=newest))
    if counted:
        advance(inbox, NOON + FAR)

    replay(inbox, [old], NOON, handler="f")

    assert totals(inbox)["", "f", "discarded"] == 2
    advance(inbox, NOON + FAR)
    assert totals(inbox)["", "f", "discarded"] == 2
