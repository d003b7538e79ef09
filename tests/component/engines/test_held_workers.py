"""Workers that an operator holds: they start no run, and the others go on as if they were not there."""

from __future__ import annotations

import threading

import pytest

from billhook import Handlers
from billhook.engines import Worker
from billhook.events import PingTest
from billhook.extension import get_state
from billhook.inbox.operating.holds import hold_worker, resume_worker
from billhook.inbox.reading.worker_list import WorkerState, list_workers
from billhook.inbox.watching.disagreements import read_disagreement, read_left_out
from support.apps import inbox_at
from support.engines import inbox_of, noting, runs, send, states
from support.inbox_view import rows
from support.processes import until

pytestmark = pytest.mark.usefixtures("inbox_url")


@pytest.fixture
def worker_of():
    """Make workers whose polls a test makes one by one; they are closed at the end."""
    made = []

    def make(app, threads=2):
        state = get_state(app)
        worker = Worker(state.inbox, state.dispatcher, threads=threads, lease_seconds=30)
        made.append(worker)
        worker._poll_once()
        return worker

    yield make
    for worker in made:
        worker.detach()
        worker.close()


def handlers_of(calls, *names):
    group = Handlers()
    for name in names:
        group.on(PingTest, name=name)(lambda event, delivery, name=name: calls.append((name, delivery.id)))
    return group


def poll(worker, number=3) -> None:
    for _ in range(number):
        worker._poll_once()


def test_a_held_worker_plans_and_claims_nothing_until_it_is_resumed(stored_only, worker_of):
    calls = []
    app = stored_only(noting(calls))
    inbox, now = inbox_of(app)
    worker = worker_of(app)

    held = hold_worker(inbox, worker._owner, now)
    again = hold_worker(inbox, worker._owner, now)
    send(app, 2)
    poll(worker)
    while_held = (states(app), list_workers(inbox, now)[0].state, worker._poll_once() > 0)
    resumed = resume_worker(inbox, worker._owner)
    not_again = resume_worker(inbox, worker._owner)
    until(lambda: worker._poll_once() is not None and len(calls) == 2)

    assert (held, again, resumed, not_again) == (True, False, True, False)
    assert while_held == (["received"] * 2, WorkerState.HELD, True)  # it sleeps, and does not poll at once
    assert list_workers(inbox, now)[0].state is WorkerState.RUNNING


def test_what_it_runs_goes_on_and_what_it_has_not_started_is_left_to_others(stored_only, worker_of):
    entered, go = threading.Event(), threading.Event()
    handlers, number = Handlers(), 40

    @handlers.on(PingTest, name="slow")
    def slow(event, delivery):
        if delivery.id > number:
            entered.set()
            assert go.wait(30)

    app = stored_only(handlers)
    inbox, now = inbox_of(app)
    worker = worker_of(app, threads=1)
    send(app, number)  # quick ones, after which it claims more than it has threads
    until(lambda: worker._poll_once() is not None and states(app) == ["done"] * number, 20)
    send(app, 3, first=number + 1)
    poll(worker, 2)
    assert entered.wait(10)
    before = [state for _, state, _ in runs(app)][number:]
    hold_worker(inbox, worker._owner, now)
    poll(worker)
    left = [state for _, state, _ in runs(app)][number:]
    go.set()
    until(lambda: worker._poll_once() is not None and states(app).count("done") == number + 1)
    poll(worker)

    assert before == ["running"] * 3  # two of them wait in its queue for the thread
    assert left == ["running", "due", "due"]
    assert states(app)[number:] == ["done", "planned", "planned"]


def test_a_refresh_of_its_row_keeps_it_held(stored_only, worker_of):
    app = stored_only(noting([]))
    inbox, now = inbox_of(app)
    worker = worker_of(app)
    hold_worker(inbox, worker._owner, now)

    worker._registration.write(now)

    assert rows(inbox_at(app), "SELECT held_at IS NOT NULL FROM billhook_worker") in ([(1,)], [(True,)])


def test_the_list_of_a_held_worker_does_not_decide_and_no_other_fails_its_runs(stored_only, worker_of):
    calls = []
    old = stored_only(handlers_of(calls, "note"), name="old")
    inbox, now = inbox_of(old)
    older = worker_of(old)
    new = stored_only(handlers_of(calls, "note", "second"), name="new")
    newer = worker_of(new)
    send(old, 1)
    poll(older)
    left = states(old)
    newer._poll_once()
    until(lambda: newer._poll_once() is not None and states(old) == ["done"])
    send(old, 1, first=2)

    hold_worker(inbox, newer._owner, now)
    until(lambda: older._poll_once() is not None and states(old) == ["done", "done"])
    with inbox.database.read() as connection:
        disagreement, left_out = read_disagreement(connection, now), read_left_out(connection, now)

    assert left == ["received"]  # the newest list plans it otherwise
    assert calls[2] == ("note", 2)
    assert (disagreement, left_out) == (None, [])


def test_runs_of_a_handler_that_a_held_worker_alone_has_wait_for_it(stored_only, worker_of):
    calls = []
    old = stored_only(handlers_of(calls, "note"), name="old")
    inbox, now = inbox_of(old)
    handlers = handlers_of(calls, "note")

    @handlers.on(PingTest, name="second", retry=[0, 0])
    def second(event, delivery):
        calls.append(("second", delivery.attempt))
        if delivery.attempt == 1:
            hold_worker(inbox, newer._owner, now)
            raise OSError

    new = stored_only(handlers, name="new")
    older, newer = worker_of(old), worker_of(new)  # whose list is written last is the newest
    send(new, 1)
    until(lambda: newer._poll_once() is not None and ("second", "due", 1) in runs(new))
    poll(older, 5)
    waiting = [each for each in runs(old) if each[0] == "second"]
    resume_worker(inbox, newer._owner)
    until(lambda: newer._poll_once() is not None and states(new) == ["done"])

    assert waiting == [("second", "due", 1)]  # no attempt that fails for the lack of the handler
    assert [each for each in calls if each[0] == "second"] == [("second", 1), ("second", 2)]
