"""Two releases of an app on one inbox: the newest list of handlers decides what a delivery gets."""

from __future__ import annotations

from datetime import timedelta

import pytest

from billhook import Handlers, signals
from billhook.engines import Worker
from billhook.events import CustomerCreated, PaymentFailed, PingTest
from billhook.events.base import Event, _registered
from billhook.extension import get_state
from billhook.inbox import WorkerRecord
from billhook.inbox.watching.disagreements import read_disagreement
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import list_issues
from billhook.inbox.watching.judgement import Facts, judge
from support.apps import deliver, inbox_at
from support.engines import inbox_of, plan, plan_and_claim, runs, send, states
from support.inbox_view import rows, value
from support.processes import until

pytestmark = pytest.mark.usefixtures("inbox_url")


def handlers_of(calls, *names, of=PingTest, **options):
    """Return handlers with these names, which note their calls."""
    group = Handlers()
    for name in names:
        group.on(of, name=name, **options)(
            lambda event, delivery, name=name: calls.append((name, delivery.id))
        )
    return group


@pytest.fixture
def releases(stored_only):
    """Make two apps on one inbox: the list of the second is the newer one."""

    def make(old, new, **config):
        first = stored_only(old, name="old", **config)
        get_state(first).handle_due()  # writes its list
        second = stored_only(new, name="new", **config)
        get_state(second).handle_due()
        return first, second

    return make


@pytest.fixture
def worker_of(request):
    """Make workers whose polls a test makes one by one; they are closed at the end."""
    made = []

    def make(app):
        state = get_state(app)
        made.append(Worker(state.inbox, state.dispatcher, threads=2, lease_seconds=30))
        return made[-1]

    yield make
    for worker in made:
        worker.detach()
        worker.close()


def test_what_the_newest_list_plans_otherwise_an_older_process_leaves(releases):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    send(old, 3)

    assert get_state(old).handle_due() == 0
    assert states(old) == ["received"] * 3
    assert get_state(new).handle_due() == 6
    assert calls == [(name, number) for number in (1, 2, 3) for name in ("note", "second")]


def test_what_both_plan_alike_either_plans(releases):
    calls = []
    old, _ = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    send(old, 1, "CustomerCreated")

    get_state(old).handle_due()

    assert states(old) == ["done"]


def test_code_that_is_restarted_is_no_newer_than_it_was(releases, stored_only):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    again = stored_only(handlers_of(calls, "note"), name="again")
    get_state(again).handle_due()
    send(old, 1)

    assert [get_state(app).handle_due() for app in (again, old, new)] == [0, 0, 2]


def test_after_a_roll_back_the_older_list_decides(releases):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    send(old, 1)
    get_state(new).close()

    assert get_state(old).handle_due() == 1
    assert calls == [("note", 1)]


def test_a_killed_process_decides_for_a_minute(releases, frozen_clock):
    calls = []
    old, _ = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    frozen_clock.advance(seconds=59)
    send(old, 1)

    assert get_state(old).handle_due() == 0
    frozen_clock.advance(seconds=2)
    assert get_state(old).handle_due() == 1


@pytest.mark.parametrize("change_of", ["types", "sources", "renamed", "removed and added", "added"])
def test_each_change_of_a_list_is_left_to_those_who_have_it(releases, change_of):
    calls = []
    newer = {
        "types": lambda: handlers_of(calls, "note", of=CustomerCreated),
        "sources": lambda: handlers_of(calls, "note", sources=["default"]),
        "renamed": lambda: handlers_of(calls, "notes", aliases=["note"]),
        "removed and added": lambda: handlers_of(calls, "second"),
        "added": lambda: handlers_of(calls, "note", "any"),
    }[change_of]()
    old, new = releases(handlers_of(calls, "note"), newer)
    send(old, 1)

    assert get_state(old).handle_due() == 0
    get_state(new).handle_due()
    assert states(old) == ["done"]
    expected = {"types": [], "renamed": ["notes"], "removed and added": ["second"], "added": ["any", "note"]}
    assert [name for name, *_ in runs(new)] == expected.get(change_of, ["note"])


def test_types_that_share_an_ordered_handler_with_one_that_is_left_are_left_too(releases):
    calls = []

    def ordered(*more):
        group = Handlers()
        group.on(PaymentFailed, CustomerCreated, name="book", ordered_by="customer_id")(
            lambda event: calls.append(event.type)
        )
        for name in more:
            group.on(PaymentFailed, name=name)(lambda event: None)
        return group

    old, new = releases(ordered(), ordered("second"))
    send(old, 1, "PaymentFailed")
    send(old, 1, "CustomerCreated")
    send(old, 1, "PingTest")

    get_state(old).handle_due()
    assert states(old) == ["received", "received", "done"]
    get_state(new).handle_due()
    assert calls == ["PaymentFailed", "CustomerCreated"]


def test_the_types_of_an_ordered_handler_are_left_where_the_newest_list_gives_it_another(releases):
    calls = []

    def ordered(*types):
        group = Handlers()
        group.on(*types, name="book", ordered_by="customer_id")(lambda event: calls.append(event.type))
        return group

    old, new = releases(ordered(PaymentFailed), ordered(PaymentFailed, CustomerCreated))
    send(old, 1, "CustomerCreated")
    send(old, 1, "PaymentFailed")

    get_state(old).handle_due()
    assert states(old) == ["received", "received"]
    get_state(new).handle_due()
    assert calls == ["CustomerCreated", "PaymentFailed"]


def test_an_unknown_type_is_left_where_its_handlers_differ(releases):
    calls = []

    def unknown(*names):
        group = handlers_of(calls, "note")
        for name in names:
            group.on_unknown(name=name)(lambda event, delivery, name=name: calls.append((name, delivery.id)))
        return group

    old, new = releases(unknown(), unknown("any"))
    send(old, 1, "PingTest")
    deliver(old, b"{}", "Invented", message_id="msg_1")

    get_state(old).handle_due()
    assert states(old) == ["done", "received"]
    get_state(new).handle_due()
    assert calls == [("note", 1), ("any", 2)]


def test_a_run_is_left_to_a_live_process_that_has_its_handler(releases, frozen_clock):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second", retry=[]))
    send(old, 1)
    plan(new, frozen_clock.now())

    assert get_state(old).handle_due() == 1  # its own
    assert get_state(new).handle_due() == 1
    assert calls == [("note", 1), ("second", 1)]
    assert [row[2] for row in runs(new)] == [1, 1]


def test_a_run_that_no_live_process_has_fails_and_that_costs_its_handler_no_attempt(releases, frozen_clock):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second", retry=[]))
    send(old, 1)
    plan(new, frozen_clock.now())
    frozen_clock.advance(seconds=61)

    assert get_state(old).handle_due() == 2
    assert runs(old, "handler, state, attempts, uncounted_attempts")[1] == ("second", "due", 1, 1)
    frozen_clock.advance(seconds=660)
    assert get_state(new).handle_due() == 1
    assert calls == [("note", 1), ("second", 1)]


def test_a_run_of_a_type_that_only_a_newer_process_calls_is_left_to_it(releases, frozen_clock):
    calls = []
    both = Handlers()
    both.on(PingTest, CustomerCreated, name="note")(lambda event, delivery: calls.append(event.type))
    old, new = releases(handlers_of(calls, "note"), both)
    send(old, 1, "CustomerCreated")
    plan(new, frozen_clock.now())

    assert get_state(old).handle_due() == 0
    assert get_state(new).handle_due() == 1


def test_a_lost_run_of_a_type_that_only_a_newer_process_calls_is_left_to_it(
    releases, worker_of, frozen_clock
):
    both = Handlers()
    both.on(PingTest, CustomerCreated, name="note")(lambda event: None)
    old, new = releases(handlers_of([], "note"), both)
    send(old, 1, "CustomerCreated")
    plan_and_claim(new, "a worker that dies", frozen_clock.now())
    frozen_clock.advance(seconds=31)
    worker = worker_of(old)
    worker._poll_once()  # its lease has ended

    for _ in range(3):
        frozen_clock.advance(seconds=6)
        record_alive(new, frozen_clock)
        worker._poll_once()

    assert runs(old, "state, attempts, runs_alone") == [("due", 1, 1)]


def test_after_a_minute_without_a_plan_those_that_are_there_plan_and_an_issue_says_so(
    releases, worker_of, frozen_clock, inbox
):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    worker_of(new)._poll_once()  # alive, and from here on held
    send(old, 2)
    for _ in range(6):
        frozen_clock.advance(seconds=10)
        record_alive(new, frozen_clock)
        attempts = get_state(old).handle_due()

    assert attempts == 2
    assert [name for name, *_ in runs(old)] == ["note", "note"]
    update_issues(get_state(old).inbox, frozen_clock.now())
    (issue,) = list_issues(get_state(old).inbox)
    assert (issue.kind, issue.subject, issue.deliveries) == ("missed", "second", 2)
    # And from now on at once, until it plans again.
    send(old, 1, first=3)
    assert get_state(old).handle_due() == 1
    send(old, 1, first=4)
    get_state(new).handle_due()
    send(old, 1, first=5)
    assert get_state(old).handle_due() == 0


def attempts_while_alive(old, new, clock):
    """How many attempts a process makes every ten seconds of a minute while the newer one is alive."""
    attempts = []
    for _ in range(7):
        record_alive(new, clock)
        attempts.append(get_state(old).handle_due())
        clock.advance(seconds=10)
    return attempts


def record_alive(app, clock):
    """Record that a process of the app is alive, as one does that hangs, or is restarted again and again."""
    state = get_state(app)
    record = WorkerRecord(f"{app.name} at {clock.now()}", "worker", 2, clock.now())
    state.inbox.record_worker(record, clock.now(), state.dispatcher.lists.read())


def test_a_backlog_of_the_night_is_no_minute_of_the_newest(stored_only, frozen_clock):
    calls = []
    old = stored_only(handlers_of(calls, "note"), name="old")
    get_state(old).handle_due()
    new = stored_only(handlers_of(calls, "note", "second"), name="new")
    get_state(new).handle_due()
    send(old, 1)
    frozen_clock.advance(seconds=8 * 3600)  # nobody was there
    record_alive(new, frozen_clock)

    assert get_state(old).handle_due() == 0
    frozen_clock.advance(seconds=30)
    record_alive(new, frozen_clock)
    assert get_state(old).handle_due() == 0
    frozen_clock.advance(seconds=31)
    record_alive(new, frozen_clock)
    assert get_state(old).handle_due() == 1


def test_a_clock_that_is_set_back_is_no_minute_of_the_newest(releases, frozen_clock):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    frozen_clock.advance(seconds=100)
    send(old, 1)
    frozen_clock.advance(seconds=-40)

    assert attempts_while_alive(old, new, frozen_clock) == [0, 0, 0, 0, 0, 0, 1]


def test_the_newest_plans_again_though_it_planned_while_a_clock_was_ahead(releases, frozen_clock):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    frozen_clock.advance(seconds=200)
    send(old, 1)
    get_state(new).handle_due()
    frozen_clock.advance(seconds=-200)
    send(old, 1, first=2)
    for _ in range(7):
        record_alive(new, frozen_clock)
        get_state(old).handle_due()
        frozen_clock.advance(seconds=10)
    assert calls == [("note", 1), ("second", 1), ("note", 2)]

    send(old, 1, first=3)
    get_state(new).handle_due()
    send(old, 1, first=4)

    assert get_state(old).handle_due() == 0


def test_workers_that_disagree_are_told_with_their_releases(releases, inbox, frozen_clock):
    calls = []
    old, new = releases(handlers_of(calls, "note"), handlers_of(calls, "note", "second"))
    shared, now = inbox_of(new)
    with shared.database.read() as connection:
        assert read_disagreement(connection, now) == "workers disagree: second is known to 1 of 2"
    held = judge(Facts(shared, now, engine="inline"))
    assert held.holds("workers-disagree")
    get_state(old).close()
    with shared.database.read() as connection:
        assert read_disagreement(connection, now) is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"aliases": ["former"]}, None),  # deliveries get the same
        ({"ordered_by": "customer_id"}, "workers disagree: note has another order at 1 of 2"),
    ],
)
def test_workers_disagree_where_deliveries_get_something_else(releases, options, told):
    calls = []
    _, new = releases(
        handlers_of(calls, "note", of=PaymentFailed), handlers_of(calls, "note", of=PaymentFailed, **options)
    )
    shared, now = inbox_of(new)
    with shared.database.read() as connection:
        assert read_disagreement(connection, now) == told


def test_a_handler_that_the_newest_list_lacks_is_an_issue_after_five_minutes(releases, frozen_clock):
    calls = []
    old, new = releases(handlers_of(calls, "note", "mine"), handlers_of(calls, "note", "theirs"))
    shared = get_state(old).inbox

    def left_out():
        update_issues(shared, frozen_clock.now())
        return [(one.subject, one.state) for one in list_issues(shared) if one.kind == "left-out"]

    seen = []
    for _ in range(11):
        frozen_clock.advance(seconds=30)
        for app in (old, new):
            record_alive(app, frozen_clock)
        seen.append(left_out())
    assert seen == [[]] * 9 + [[("mine", "open")]] * 2
    frozen_clock.advance(seconds=61)
    record_alive(new, frozen_clock)  # alone
    assert left_out() == [("mine", "resolved")]


def test_a_list_that_changes_is_written_before_the_next_plan(stored_only, frozen_clock):
    calls = []
    app = stored_only(handlers_of(calls, "note"))
    get_state(app).handle_due()

    def plain(sender, *, event, delivery):
        calls.append(("plain", delivery.id))

    signals.ping_test.connect(plain, sender=app)
    send(app, 1)
    get_state(app).handle_due()

    assert value(inbox_at(app), "SELECT count(*) FROM billhook_handler_list") == 2
    assert [name for name, _ in calls] == ["note", "plain"]


def test_a_stopping_worker_counts_no_more(stored_only, worker_of, frozen_clock):
    app = stored_only(handlers_of([], "note"))
    worker = worker_of(app)
    worker._poll_once()
    assert rows(inbox_at(app), "SELECT list_id IS NOT NULL FROM billhook_worker") in ([(1,)], [(True,)])

    worker.stop()
    worker._drain(0.0)

    assert rows(inbox_at(app), "SELECT list_id FROM billhook_worker") == [(None,)]


def test_an_inline_process_leaves_no_row_and_is_no_worker(shop):
    app = shop(handlers_of([], "note"))
    send(app, 1)
    shared, now = inbox_of(app)

    assert value(inbox_at(app), "SELECT count(*) FROM billhook_worker") == 1
    assert not judge(Facts(shared, now + timedelta(minutes=5), engine="inline")).holds("lost-worker")
    get_state(app).dispatcher.lists.stop()
    assert value(inbox_at(app), "SELECT count(*) FROM billhook_worker") == 0


@pytest.fixture
def order():
    """An event type of a user's own, which is read by a run."""

    class Order(Event):
        pass

    yield Order
    del _registered["Order"]


def test_what_was_read_is_left_where_a_newer_process_has_it_to_plan_by_then(
    stored_only, worker_of, order, frozen_clock
):
    calls = []
    old = stored_only(handlers_of(calls, "note", of=order), name="old")
    worker = worker_of(old)
    deliver(old, b"{}", "Order", message_id="msg_1")
    worker._poll_once()
    until(lambda: worker._own_readers._pool._finished)  # read, and not settled yet
    new = stored_only(handlers_of(calls, "note", "second", of=order), name="new")
    get_state(new).handle_due()

    worker._poll_once()

    assert runs(old) == [("reading Order", "due", 0)]
    assert get_state(new).handle_due() == 2
    assert [name for name, _ in calls] == ["note", "second"]


def test_a_reading_is_left_to_the_newest_though_nothing_else_waits(
    releases, stored_only, worker_of, order, frozen_clock
):
    calls = []
    old, new = releases(handlers_of(calls, "note", of=order), handlers_of(calls, "note", "second", of=order))
    deliver(old, b"{}", "Order", message_id="msg_1")
    plan(new, frozen_clock.now())
    again = stored_only(handlers_of(calls, "note", of=order), name="again")

    worker_of(again)._poll_once()

    assert runs(old) == [("reading Order", "due", 0)]
    assert [get_state(app).handle_due() for app in (old, new)] == [0, 2]


def test_a_reading_that_was_lost_with_its_worker_is_left_to_the_newest_too(
    releases, worker_of, order, frozen_clock
):
    old, new = releases(handlers_of([], "note", of=order), handlers_of([], "note", "second", of=order))
    deliver(old, b"{}", "Order", message_id="msg_1")
    plan_and_claim(new, "a worker that dies", frozen_clock.now())
    frozen_clock.advance(seconds=31)
    worker = worker_of(old)
    worker._poll_once()  # its lease has ended
    frozen_clock.advance(seconds=6)
    record_alive(new, frozen_clock)

    worker._poll_once()

    assert runs(old, "handler, state, attempts, runs_alone") == [("reading Order", "due", 1, 1)]


def test_a_reading_that_waits_for_a_minute_for_the_newest_is_read_by_those_that_are_there(
    releases, order, frozen_clock
):
    calls = []
    old, new = releases(handlers_of(calls, "note", of=order), handlers_of(calls, "note", "second", of=order))
    deliver(old, b"{}", "Order", message_id="msg_1")
    plan(new, frozen_clock.now())  # and then it hangs

    assert attempts_while_alive(old, new, frozen_clock) == [0, 0, 0, 0, 0, 0, 1]
    assert calls == [("note", 1)]
    assert rows(inbox_at(old), "SELECT missed, missed_names FROM billhook_handler_list WHERE missed > 0") == [
        (1, '{"second": 1}')
    ]


def test_each_handler_is_told_with_the_deliveries_that_it_lacks_itself(releases, frozen_clock):
    newer = handlers_of([], "note", "second")
    newer.on(PaymentFailed, name="dun")(lambda event: None)
    old, new = releases(handlers_of([], "note"), newer)
    send(old, 3, "PingTest")
    send(old, 1, "PaymentFailed")
    for _ in range(7):  # the newer ones are alive, and plan nothing
        record_alive(new, frozen_clock)
        get_state(old).handle_due()
        frozen_clock.advance(seconds=10)
    shared = get_state(old).inbox
    update_issues(shared, frozen_clock.now())

    missed = [one for one in list_issues(shared) if one.kind == "missed"]
    assert {one.subject: one.deliveries for one in missed} == {"second": 3, "dun": 1}
