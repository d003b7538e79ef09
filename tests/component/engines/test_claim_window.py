"""How many runs one worker claims ahead of its threads: few of slow handlers, many of quick ones."""

from __future__ import annotations

import itertools
import math
import threading
import time

import pytest

from billhook import Handlers
from billhook.engines.cycle import UNSTORABLE_SECONDS
from billhook.engines.lease_table import LeaseTable
from billhook.engines.pacing import FIRST_ROWS
from billhook.errors import InboxUnavailable
from billhook.events import CustomerCreated, PingTest, sample
from billhook.extension import get_state
from billhook.inbox import InboxTransaction, Lease
from support.apps import inbox_at
from support.engines import handling, worker_of_slow_runs
from support.inbox_view import NOON, change, incoming, rows, value
from support.processes import until
from support.query_plans import fill_unread
from support.runs import planned

THREADS = 2


def count(app, state):
    [(number,)] = rows(inbox_at(app), f"SELECT count(*) FROM run WHERE state = '{state}'")
    return number


def runs_claimed_while_slow(running) -> int:
    """The most that are claimed at once, of 60 runs that end one by one; the other workers' share is due."""
    handlers, may_end = Handlers(), threading.Semaphore(0)

    @handlers.on(PingTest, name="h")
    def handle(event):
        may_end.acquire()

    # No lease ends meanwhile: its run would be claimed still, and not held any more.
    app = running(handlers, start_now=False, BILLHOOK_LEASE_SECONDS=300)
    state = get_state(app)
    for number in range(60):
        state.inbox.put(incoming(f"m{number}"))
    worker = state.worker(THREADS)
    thread = threading.Thread(target=worker.run, args=(5.0,), daemon=True)
    thread.start()
    most = 0
    try:
        for ended in range(30):
            until(lambda ended=ended: count(app, "succeeded") == ended)
            most = max(most, until(lambda: count(app, "running")))
            may_end.release()
    finally:
        may_end.release(60)
        worker.stop()
        thread.join(20)
    return most


def test_a_worker_with_slow_handlers_leaves_runs_to_other_workers(running):
    assert runs_claimed_while_slow(running) <= 2 * THREADS


def test_a_window_that_grew_with_every_commit_would_be_noticed(running, monkeypatch):
    record = LeaseTable.record_commit

    def growing(table, settled, renewed, leased_until, **others):
        table.window = min(table.window * 2, 2_000)
        record(table, settled, renewed, leased_until, **others)

    monkeypatch.setattr(LeaseTable, "record_commit", growing)

    assert runs_claimed_while_slow(running) > 2 * THREADS


def test_the_window_follows_the_runs_that_finish_between_two_commits():
    table = LeaseTable(threads=8, lease_seconds=60, held=set())
    sizes = []
    for settled in (0, 1, 4, 5, 8, 9, 64, 64, 100, 1_000, 1_000):
        table.record_commit(
            [Lease(number, 1) for number in range(settled)], None, NOON, orphans_checked=False
        )
        sizes.append(table.window)

    assert sizes == [8, 16, 16, 32, 32, 64, 128, 256, 512, 1024, 1024]


def test_the_window_shrinks_when_a_lease_has_to_be_renewed(running):
    """Handlers are slow then, and other workers can claim what this one would only hold."""
    worker, may_end = worker_of_slow_runs(running, 1, THREADS)
    worker._poll()
    worker._leases.window, worker._leases._renew_at = 64, 0.0

    worker._poll()
    may_end.set()
    worker.close()

    assert worker._leases.window == THREADS


def test_at_a_renewal_a_worker_keeps_as_many_queued_runs_as_ended_since_the_last_one(running):
    worker, may_end = worker_of_slow_runs(running, 5, THREADS)
    worker._leases.window = 5
    worker._poll()
    until(lambda: worker._handlers._queue.qsize() == 5 - THREADS)
    worker._leases.finished_since_renewal, worker._leases._renew_at = 1, 0.0

    worker._poll()
    may_end.set()
    worker.close()

    assert len(worker._leases.runs) == THREADS + 1


def test_closing_a_worker_ends_the_threads_of_its_handlers(running):
    worker = get_state(running(Handlers(), start_now=False)).worker(THREADS)
    threads = [each.thread for each in worker._handlers._threads]

    worker.close()

    for thread in threads:
        thread.join(20)
    assert [thread.is_alive() for thread in threads] == [False] * THREADS


def test_only_what_a_transaction_has_left_unchanged_is_read_again(running, monkeypatch):
    """A database that skips an update says nothing; else a poll costs no look at what it wrote."""
    app, looks = running(handling(lambda event: None, name="h"), start_now=False), []
    inbox = get_state(app).inbox
    monkeypatch.setattr(inbox, "count_skipped", lambda *what: looks.append(what) or 0)
    delivery_id = inbox.put(incoming("m")).delivery_id
    worker = get_state(app).worker(THREADS)
    with monkeypatch.context() as skipping:
        skipping.setattr(InboxTransaction, "plan", lambda *_: [])
        worker._poll()

    until(lambda: worker._poll() is not None and count(app, "succeeded") == 1)
    worker.close()

    assert looks == [({delivery_id}, set())]


def test_runs_are_written_as_claimed_when_they_are_made(running, monkeypatch):
    """Made due and then claimed, each would cost a write more."""
    app, plan, left = (
        running(handling(lambda event: None, name="h"), start_now=False),
        InboxTransaction.plan,
        [],
    )

    def noting(transaction, *plans):
        planned_here = plan(transaction, *plans)
        left.append(len(transaction.left_to_claim))
        return planned_here

    monkeypatch.setattr(InboxTransaction, "plan", noting)
    get_state(app).inbox.put(incoming("m"))
    worker = get_state(app).worker(THREADS)

    worker._poll()
    worker.close()

    assert left == [1]


@pytest.fixture
def with_two_results(running):
    """An app, and its worker that has the results of two attempts to settle."""
    app = running(handling(lambda event: None, name="h"), start_now=False, BILLHOOK_LEASE_SECONDS=300)
    for key in ("a", "b"):
        get_state(app).inbox.put(incoming(key))
    worker = get_state(app).worker(THREADS)
    worker._poll()
    until(lambda: len(worker._handlers._finished) == 2)
    worker._collect()
    yield app, worker
    worker.close()


def raising(*_, **__):
    raise InboxUnavailable("away")


def test_results_are_settled_one_by_one_only_while_the_inbox_can_be_written(with_two_results, monkeypatch):
    """Else it is for none of them that their transaction failed."""
    app, worker = with_two_results
    with monkeypatch.context() as away:
        away.setattr(get_state(app).inbox, "check_writable", raising)
        worker._settle_one_by_one()
    kept = len(worker._unsettled), count(app, "running")

    worker._settle_one_by_one()

    assert kept == (2, 2)
    assert (worker._unsettled, len(worker._leases.runs), count(app, "succeeded")) == ([], 0, 2)


def test_a_result_that_cannot_be_stored_alone_keeps_its_lease_until_it_can(with_two_results, monkeypatch):
    app, worker = with_two_results
    with monkeypatch.context() as refusing:
        refusing.setattr(get_state(app).inbox, "transaction", raising)
        worker._settle_one_by_one()
        pause = worker._retry_unstorable()
    held = len(worker._unstorable), len(worker._leases.runs)
    worker._unstorable_at = 0.0

    assert (held, 0 < pause <= UNSTORABLE_SECONDS) == ((2, 2), True)
    assert worker._retry_unstorable() == math.inf
    assert (worker._unstorable, len(worker._leases.runs), count(app, "succeeded")) == ([], 0, 2)


def test_after_a_transaction_that_failed_a_worker_looks_for_claims_that_it_does_not_know(
    running, monkeypatch
):
    """Its COMMIT may have succeeded while the reply was lost."""
    state = get_state(running(handling(lambda event: None, name="h"), start_now=False))
    state.inbox.put(incoming("m"))
    worker, released = state.worker(THREADS), []
    with monkeypatch.context() as failing:
        failing.setattr(state.inbox, "transaction", raising)
        worker._poll()
    monkeypatch.setattr(InboxTransaction, "release_orphaned", lambda *_: released.append(1))

    worker._poll()
    worker.close()

    assert released == [1]


def test_a_worker_sleeps_while_it_gathers_work(running):
    worker = get_state(running(Handlers(), start_now=False)).worker(THREADS)
    worker._next_poll_at = time.monotonic() + 0.3

    began = time.thread_time()
    worker._sleep(0.0)
    used = time.thread_time() - began
    worker.close()

    assert time.monotonic() >= worker._next_poll_at
    assert used < 0.1


def test_a_poll_without_work_wakes_nothing_up(running):
    """Else an idle worker would poll again at once, for ever."""
    worker = get_state(running(Handlers(), start_now=False)).worker(THREADS)

    worker._poll()
    is_set = worker._wakeup._is_set
    worker.close()

    assert not is_set


@pytest.mark.parametrize(("commit_seconds", "longest"), [(60.0, 5.0), (0.0, 0.0)])
def test_after_a_slow_commit_receivers_write_first(running, monkeypatch, commit_seconds, longest):
    """With the control: a poll that is slow for want of processor time makes no pause."""
    monkeypatch.setattr("billhook.engines.pacing.SLOW_SECONDS", 0.0)
    monkeypatch.setattr("billhook.engines.pacing.SLOW_FACTOR", 1e9)
    state = get_state(running(Handlers(), start_now=False))
    told = property(lambda _: commit_seconds, lambda *_: None)  # whatever its own commits take
    monkeypatch.setattr(type(state.inbox.database), "commit_seconds", told, raising=False)
    worker = state.worker(THREADS)

    worker._poll()
    pause = max(0.0, worker._next_poll_at - time.monotonic())
    worker.close()

    assert longest - 4.0 < pause <= longest


@pytest.mark.parametrize(
    ("deliveries", "threads", "gathers"),
    [(8, 9, True), (7, 9, False), (8, 8, False), (FIRST_ROWS, 60, False)],
)
def test_under_load_a_worker_gathers_work_unless_it_has_enough(
    running, monkeypatch, deliveries, threads, gathers
):
    """It has enough where it claimed all that it could, and where more is unread than it has read."""
    monkeypatch.setattr("billhook.engines.worker.GATHER_SECONDS", 60.0)
    app = running(handling(lambda event: None, name="h"), start_now=False)
    fill_unread(inbox_at(app), deliveries)
    worker = get_state(app).worker(threads)

    worker._poll()
    pause = worker._next_poll_at - time.monotonic()
    worker.close()

    assert (pause > 30) is gathers  # after a slow commit it is 5 s at most


def test_results_that_are_about_to_be_settled_make_room_for_claims():
    table = LeaseTable(threads=2, lease_seconds=60, held=set())
    table.runs = dict.fromkeys([Lease(1, 1), Lease(2, 1)])

    assert [table.capacity(), table.capacity([Lease(1, 1), Lease(3, 1)])] == [0, 1]


@pytest.mark.parametrize(
    ("threads", "runs_alone"), [(1, 0), (2, 1)], ids=["no thread is free", "a suspect runs"]
)
def test_a_worker_reads_no_delivery_that_it_could_not_claim(running, monkeypatch, threads, runs_alone):
    handlers, may_end = Handlers(), threading.Event()
    handlers.on(PingTest, name="h")(lambda event: may_end.wait(60))
    app = running(handlers, start_now=False, BILLHOOK_LEASE_SECONDS=300)
    inbox = get_state(app).inbox
    planned(inbox, "h")
    change(inbox_at(app), f"UPDATE run SET runs_alone = {runs_alone}")
    poll, limits = inbox.poll, []
    monkeypatch.setattr(
        inbox, "poll", lambda limit, *more, **named: limits.append(limit) or poll(limit, *more, **named)
    )
    worker = get_state(app).worker(threads)

    worker._poll()
    worker._poll()
    may_end.set()
    worker.close()

    assert limits == [FIRST_ROWS, 0]


def test_while_a_suspect_waits_its_turn_new_deliveries_are_read(running):
    handlers, may_end = Handlers(), threading.Event()
    handlers.on(PingTest, name="h")(lambda event: may_end.wait(60))
    app = running(handlers, start_now=False, BILLHOOK_LEASE_SECONDS=300)
    inbox = get_state(app).inbox
    planned(inbox, "h")
    change(inbox_at(app), "UPDATE run SET runs_alone = 1")
    worker = get_state(app).worker(4)

    for number in range(2):
        inbox.put(incoming(f"m{number}"))
        worker._poll()
    may_end.set()
    is_active = worker._suspects.active
    worker.close()

    assert (is_active, count(app, "running"), count(app, "due")) == (True, 2, 1)


def test_a_run_for_the_thread_of_a_result_that_is_settled_with_its_claim_is_not_queued(running):
    """It starts at once, so that it is an attempt if it kills its worker."""
    handlers, may_end = Handlers(), threading.Event()
    handlers.on(PingTest, name="h")(lambda event, delivery: delivery.key == "m0" or may_end.wait(60))
    app = running(handlers, start_now=False, BILLHOOK_LEASE_SECONDS=300)
    for number in range(2):
        get_state(app).inbox.put(incoming(f"m{number}"))
    worker = get_state(app).worker(1)

    until(lambda: worker._poll() is not None and count(app, "succeeded") == 1)
    started = rows(inbox_at(app), "SELECT state, queued FROM run ORDER BY id")
    may_end.set()
    worker.close()

    assert started == [("succeeded", 0), ("running", 0)]


@pytest.mark.usefixtures("inbox_url")
def test_a_worker_plans_few_deliveries_until_it_can_claim_each_run_as_it_is_made(running):
    """Each run that is made due instead costs a write more; at the start some are, while the window grows."""
    calls, unread = [], [4_000]
    app = running(handling(calls.append, name="h"), start_now=False, BILLHOOK_LEASE_SECONDS=300)
    fill_unread(inbox_at(app), unread[0])
    most = get_state(app).inbox.database.plan_rows
    worker = get_state(app).worker(8)
    while unread[-1] > 1_000:
        worker._poll()
        claimed = count(app, "running") + count(app, "succeeded")
        until(lambda claimed=claimed: len(calls) == claimed)
        unread.append(value(inbox_at(app), "SELECT count(*) FROM delivery WHERE state = 'received'"))
    due = count(app, "due")
    worker.close()

    planned = [before - after for before, after in itertools.pairwise(unread)]
    assert (planned[0], planned[1:6], planned[-1], due) == (FIRST_ROWS, [most // 4] * 5, most, 0)


@pytest.mark.usefixtures("inbox_url")
def test_a_worker_polls_at_once_after_a_full_batch_and_after_claims_that_leave_capacity(running):
    """Else it would read no more, and have idle threads beside runs that are due, for up to two seconds."""
    handlers, may_end = Handlers(), threading.Event()
    for name, event in (("a", PingTest), ("b", CustomerCreated)):
        handlers.on(event, name=name, at_most=10)(lambda event: may_end.wait(60))
    app = running(handlers, start_now=False, BILLHOOK_LEASE_SECONDS=300)
    fill_unread(inbox_at(app), FIRST_ROWS, "Unhandled")
    worker = get_state(app).worker(8)

    unhandled = [worker._poll() == 0.0 for _ in range(2)]
    fill_unread(inbox_at(app), 7)
    get_state(app).inbox.put(
        incoming("b", event_type="CustomerCreated", body=sample(CustomerCreated).to_json())
    )
    claimed = [(worker._poll() == 0.0, count(app, "running")) for _ in range(2)]
    may_end.set()
    worker.close()

    assert unhandled == [True, False]
    assert claimed == [(True, 5), (False, 8)]  # a like number of each handler at first, then all it can


def test_after_a_claim_of_one_run_a_worker_polls_at_once_too(running):
    """Another may be due: a claim takes few of each handler."""
    worker, may_end = worker_of_slow_runs(running, 1, THREADS)

    pauses = [worker._poll() for _ in range(2)]
    may_end.set()
    worker.close()

    assert (pauses[0], pauses[1] > 0.0) == (0.0, True)


@pytest.mark.usefixtures("inbox_url")
@pytest.mark.parametrize(("most_bytes", "expected"), [(4_000, 4), (900, 1)])
@pytest.mark.parametrize("engine", ["worker", "inline"])
def test_a_worker_reads_no_more_large_bodies_at_once_than_fit_or_one(
    running, monkeypatch, engine, most_bytes, expected
):
    monkeypatch.setattr("billhook.engines.pacing.FIRST_ROWS", 5)
    monkeypatch.setattr("billhook.engines.pacing.PLAN_BYTES", most_bytes)
    planned = []
    app = running(handling(lambda event: None, name="h"), start_now=False)
    state = get_state(app)
    for number in range(20):
        state.inbox.put(incoming(f"m{number}", body=b'{"x":"%s"}' % (b"y" * (992 if number < 15 else 1))))
    plan = state.dispatcher.plan
    monkeypatch.setattr(state.dispatcher, "plan", lambda stored: planned.append(len(stored)) or plan(stored))
    if engine == "inline":
        state.handle_due()
    else:
        worker = state.worker(THREADS)
        until(lambda: worker._poll() is not None and count(app, "succeeded") == 20)
        worker.close()

    assert [number for number in planned if number][:4] == [5, *[expected] * 3]
