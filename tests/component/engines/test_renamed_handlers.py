"""A handler that is renamed, with its old name in `aliases`, is one handler: on both kinds of database."""

from __future__ import annotations

import pytest

from billhook import Handlers
from billhook.engines.dispatcher import handler_limits
from billhook.events import InvoicePaymentStatusChanged
from billhook.extension import get_state
from billhook.handlers import ConnectedHandlers, connect
from billhook.inbox import DeliveryFilter, RunOptions, WorkerRecord
from billhook.inbox.operating.operations import replay
from billhook.inbox.operating.takeover import take_over
from billhook.inbox.reading.deliveries import count, page, with_runs
from billhook.inbox.running.due import next_times
from billhook.inbox.running.handler_lists import HandlerList
from billhook.inbox.running.leases import LOST
from billhook.inbox.tables.handler_names import present_names
from billhook.inbox.tables.records import fingerprint
from billhook.inbox.watching.handler_backlogs import read_handler_backlogs
from billhook.inbox.watching.occurrences import read_occurrences
from support.apps import deliver, inbox_at
from support.engines import inbox_of, plan, plan_and_claim, runs, status_changed
from support.inbox_view import change, rows

pytestmark = pytest.mark.usefixtures("inbox_url")


class Sender:
    """Stands for an app: signals need an object they can refer to weakly."""


def named(name, calls, *, broken=(), **options):
    """Handlers with one of this name, which notes the status of each invoice and fails for some."""
    handlers = Handlers()

    @handlers.on(InvoicePaymentStatusChanged, name=name, **options)
    def note(event):
        if event.billing_status in broken:
            raise ValueError(event.billing_status)
        calls.append(event.billing_status)

    return handlers


@pytest.fixture
def renamed(stored_only):
    """Make the app before and after its handler `old` is called `new`, and what it calls: with these options.

    A control makes it without the alias: then the two are strangers.
    """

    def make(alias=True, **options):
        calls = []
        before = stored_only(named("old", calls, **options))
        after = named("new", calls, **options, **({"aliases": ["old"]} if alias else {}))
        return before, stored_only(after), calls

    return make


def changed(app, status="Paid", invoice="inv_1", **more):
    return deliver(app, status_changed(invoice, status), "InvoicePaymentStatusChanged", **more)


def handle(app):
    get_state(app).handle_due()


def recorded(app):
    """Return the inbox and its time, with the list of the app's handlers written."""
    inbox, now = inbox_of(app)
    get_state(app).dispatcher.lists.require(now, is_worker=False)
    return inbox, now


# --- identity and order -------------------------------------------------------------------------------


@pytest.mark.parametrize(("alias", "called"), [(True, ["Paid"]), (False, ["Paid", "Paid"])])
def test_content_that_the_former_name_has_handled_is_a_duplicate(renamed, alias, called):
    before, after, calls = renamed(alias, identity=("invoice_id", "billing_status"))
    changed(before)
    handle(before)

    changed(after)
    handle(after)

    assert calls == called


@pytest.mark.parametrize(("alias", "state"), [(True, "waiting"), (False, "due")])
def test_the_order_goes_on_under_the_new_name(renamed, frozen_clock, alias, state):
    before, after, calls = renamed(alias, ordered_by="invoice_id", broken=["Pending"])
    changed(before, "Pending")
    handle(before)

    changed(after, "Overdue")
    recorded(after)
    plan(after, frozen_clock.now())

    assert runs(after, "handler, state") == [("old", "due"), ("new", state)]
    for _ in range(3):
        frozen_clock.advance(seconds=601)
        handle(after)
    assert calls == ["Overdue"]
    if alias:
        assert runs(after) == [("old", "dead", 3), ("new", "succeeded", 1)]


@pytest.mark.parametrize(("alias", "state"), [(True, "discarded"), (False, "due")])
def test_only_the_newest_counts_over_a_rename(renamed, frozen_clock, alias, state):
    before, after, calls = renamed(alias, ordered_by="invoice_id", newest_only=True)
    changed(before, "Pending")
    plan(before, frozen_clock.now())

    changed(after, "Paid")
    handle(after)

    assert runs(after, "handler, state") == [("old", state), ("new", "succeeded")]
    assert calls == ["Paid"]


def test_what_waits_under_the_new_name_goes_on_when_older_code_settles_the_run_before_it(
    renamed, frozen_clock
):
    """Code from before the rename does not know of the new name itself."""
    before, after, calls = renamed(True, ordered_by="invoice_id")
    recorded(before)
    changed(before, "Pending")
    plan(before, frozen_clock.now())
    recorded(after)
    changed(after, "Paid")
    plan(after, frozen_clock.now())
    assert runs(after, "handler, state") == [("old", "due"), ("new", "waiting")]

    handle(before)

    assert runs(after, "handler, state") == [("old", "succeeded"), ("new", "due")]
    handle(after)
    assert calls == ["Pending", "Paid"]


def test_of_two_orders_that_a_roll_back_made_none_waits_for_the_other(renamed, frozen_clock):
    """Though the process that settles a run still has both names in one."""
    before, after, calls = renamed(True, ordered_by="invoice_id", broken=["Overdue"])
    recorded(after)
    changed(after, "Pending")
    changed(after, "Paid")
    plan(after, frozen_clock.now())
    recorded(before)
    changed(before, "Overdue")
    handle(before)
    assert runs(after) == [("new", "due", 0), ("new", "waiting", 0), ("old", "due", 1)]

    handle(after)

    assert calls == ["Pending", "Paid"]


def test_what_waits_under_the_new_name_goes_on_after_a_roll_back(renamed, frozen_clock):
    """It waited behind a run under the old name, of which it is no neighbour any more."""
    before, after, _ = renamed(True, ordered_by="invoice_id")
    changed(before, "Pending")
    plan(before, frozen_clock.now())
    changed(after, "Paid")
    recorded(after)
    plan(after, frozen_clock.now())
    assert runs(after, "handler, state") == [("old", "due"), ("new", "waiting")]

    frozen_clock.advance(seconds=90)  # the newer process is gone
    recorded(before)

    assert runs(before, "handler, state") == [("old", "due"), ("new", "due")]


@pytest.mark.parametrize(("alias", "called"), [(True, ["Paid"]), (False, ["Paid", "Paid"])])
def test_older_code_sees_what_the_newer_name_has_handled(renamed, frozen_clock, alias, called):
    """It plans where the newest has not planned for a minute."""
    before, after, calls = renamed(alias, identity=("invoice_id", "billing_status"))
    recorded(before)
    recorded(after)
    changed(after)
    handle(after)
    changed(before)
    plan(before, frozen_clock.now())

    handle(before)

    assert calls == called


# --- limits, in processes of both releases ------------------------------------------------------------


@pytest.mark.parametrize("is_early", [True, False])
def test_older_code_calls_no_handler_that_is_paused_under_its_new_name(renamed, frozen_clock, is_early):
    """Also if the pause is older than the rename."""
    before, after, calls = renamed(True)
    inbox, now = recorded(before)
    changed(before)
    plan(before, now)
    if is_early:
        inbox.pause_handler("new", "closed", now)
    recorded(after)
    if not is_early:
        inbox.pause_handler("new", "closed", now)

    handle(before)
    assert calls == []

    inbox.resume_handler("old")
    handle(before)
    assert calls == ["Paid"]


def test_a_rename_pauses_the_new_name_of_a_handler_that_is_paused(renamed):
    before, after, _ = renamed(True)
    inbox, now = recorded(before)
    inbox.pause_handler("old", "closed", now)

    recorded(after)

    assert rows(inbox_at(after), "SELECT name, paused_why FROM billhook_handler ORDER BY name") == [
        ("new", "closed"),
        ("old", "closed"),
    ]


def have_newer_code_handle_one(before, after, now):
    """Have a run of newer code be under way, and one of older code wait."""
    recorded(before)
    recorded(after)
    changed(after, "Pending")
    plan_and_claim(after, "another worker", now)
    changed(before, "Paid")
    plan(before, now)


@pytest.mark.parametrize(("alias", "called"), [(True, []), (False, ["Paid"])])
def test_at_most_counts_what_newer_code_has_under_way(renamed, frozen_clock, alias, called):
    before, after, calls = renamed(alias, at_most=1)
    have_newer_code_handle_one(before, after, frozen_clock.now())

    handle(before)

    assert calls == called


@pytest.mark.parametrize(("alias", "due"), [(True, []), (False, ["old"])])
def test_older_code_takes_none_for_due_while_newer_code_has_as_many_under_way_as_may(
    renamed, frozen_clock, alias, due
):
    """Else it would have suspects wait for it."""
    before, after, _ = renamed(alias, at_most=1)
    have_newer_code_handle_one(before, after, frozen_clock.now())

    inbox, _ = inbox_of(before)
    with inbox.database.read() as connection:
        assert [*next_times(connection, inbox.limits()).due] == due


@pytest.mark.parametrize(("alias", "paused"), [(True, ["new"]), (False, [])])
def test_failures_in_a_row_are_those_of_both_releases(renamed, frozen_clock, alias, paused):
    before, after, _ = renamed(alias, pause_after=2, broken=["Pending"])
    inbox, now = recorded(before)
    changed(before, "Pending")
    plan(before, now)
    recorded(after)
    handle(before)
    assert inbox.paused_handlers() == []

    changed(after, "Pending", "inv_2")
    plan(after, frozen_clock.now())
    handle(after)

    assert [each.name for each in inbox.paused_handlers()] == paused


def test_a_name_that_another_handler_has_now_is_no_former_name(inbox):
    sender, taken = Sender(), Handlers()
    taken.on(InvoicePaymentStatusChanged, name="old")(lambda event: None)
    for each in (named("new", [], aliases=["old", "older"]), taken):
        connect(each.freeze(), sender)

    limits = handler_limits(ConnectedHandlers(sender))

    assert {name: each.names for name, each in limits.items()} == dict.fromkeys(
        ["new", "older"], ("new", "older")
    )


# --- commands and pages -------------------------------------------------------------------------------


@pytest.mark.parametrize(("alias", "found"), [(True, 1), (False, 0)])
@pytest.mark.parametrize("name", ["new", "old"])
def test_lists_find_a_handler_by_each_of_its_names(renamed, frozen_clock, name, alias, found):
    before, after, _ = renamed(alias)
    changed(before)
    handle(before)
    inbox, now = recorded(after)
    found = found if name == "new" else 1

    assert count(inbox, DeliveryFilter(handler=name)) == found
    assert count(inbox, DeliveryFilter(handler=name, handled_since=now.replace(year=2000))) == found
    assert count(inbox, DeliveryFilter(without_handler=name)) == 1 - found


@pytest.mark.parametrize(("alias", "status"), [(True, "paused"), (False, "retrying")])
def test_a_run_under_the_former_name_is_paused_with_its_handler(renamed, alias, status):
    before, after, _ = renamed(alias, broken=["Paid"])
    changed(before)
    handle(before)
    inbox, now = recorded(after)
    inbox.pause_handler("new", None, now)

    (one,) = with_runs(inbox, page(inbox, DeliveryFilter(), 9))
    its_run = status if alias else "due"
    assert (one.status, [each.status for each in one.runs]) == (status, [its_run])
    assert [count(inbox, DeliveryFilter(state=each)) for each in (status, "waiting")] == [1, 0]
    inbox.resume_handler("old" if alias else "new")
    assert inbox.paused_handlers() == []


@pytest.mark.parametrize(("alias", "number"), [(True, 1), (False, 0)])
def test_a_replay_by_handler_has_runs_under_the_former_name(renamed, alias, number):
    before, after, calls = renamed(alias)
    changed(before)
    handle(before)
    inbox, now = recorded(after)

    assert replay(inbox, [1], now, handler="new").runs == number

    handle(after)
    assert calls == ["Paid"] * (1 + number)
    assert runs(after, "handler") == [("old",)]  # what is stored keeps its name


@pytest.mark.parametrize(("alias", "number"), [(True, 1), (False, 0)])
def test_another_handler_takes_over_what_is_stored_under_the_former_name(renamed, alias, number):
    before, after, _ = renamed(alias)
    changed(before)
    handle(before)
    inbox, now = recorded(after)

    def plain(stored, had):
        return RunOptions()

    done = take_over(inbox, [1], now, handler="new", to="other", to_names=["other"], options=plain)

    assert done.runs == number
    assert runs(after, "handler") == [("other" if alias else "old",)]


@pytest.mark.parametrize(("alias", "names"), [(True, {"new": 2}), (False, {"new": 1, "old": 1})])
def test_figures_are_under_the_present_name(renamed, frozen_clock, alias, names):
    before, after, _ = renamed(alias, broken=["Paid"])
    for app in (before, after):
        changed(app, invoice="inv_1" if app is before else "inv_2")
        handle(app)
    inbox, now = recorded(after)

    counts = inbox.read_counts("handler", "what")
    failed = {key.handler: sums.number for key, sums in counts.items() if key.what == "failed"}
    with inbox.database.read() as connection:
        backlogs = {each.name: each.retrying for each in read_handler_backlogs(connection, now, {})}

    assert (failed, backlogs) == (names, names)


def test_after_a_roll_back_newer_code_shows_no_run_as_paused_that_is_attempted(renamed):
    before, after, _ = renamed(True)
    inbox, now = recorded(after)
    changed(after)
    plan(after, now)
    get_state(after).dispatcher.lists.stop()
    recorded(before)[0].pause_handler("old", None, now)

    with inbox.database.read() as connection:
        (of_it,) = read_handler_backlogs(connection, now, inbox.limits())
    handle(before)

    assert (of_it.name, of_it.paused, of_it.waiting) == ("new", 0, 1)
    assert runs(before) == [("new", "due", 1)]


@pytest.mark.parametrize(("alias", "subjects"), [(True, {"new"}), (False, {"new", "old"})])
def test_one_bug_of_runs_under_both_names_is_one_issue(renamed, frozen_clock, alias, subjects):
    before, after, _ = renamed(alias, broken=["Paid"])
    changed(before)
    if alias:
        plan(before, frozen_clock.now())
    else:
        handle(before)
    changed(after)
    handle(after)
    inbox, now = recorded(after)

    found = read_occurrences(inbox, now)
    assert {each.subject for each in found} == subjects
    assert len(found) == len(subjects)


# --- who knows of it ----------------------------------------------------------------------------------


def lists(name, *aliases):
    return HandlerList({"PingTest": {name: ()}}, {name: aliases})


def test_a_run_that_killed_its_worker_is_of_the_issue_of_its_lost_attempts_over_a_rename(renamed):
    before, after, _ = renamed(True)
    changed(before)
    plan(before, inbox_of(before)[1])
    change(inbox_at(before), "UPDATE run SET attempts = 3")

    handle(after)

    assert rows(inbox_at(after), "SELECT fingerprint FROM failure") == [(fingerprint("old", LOST),)]


def test_the_newest_list_says_what_a_former_name_is(inbox, frozen_clock):
    now = frozen_clock.now()

    def seen(owner, own):
        inbox.record_worker(WorkerRecord(owner, "worker", 1, now), now, own)
        with inbox.database.read() as connection:
            return present_names(connection)

    assert seen("a", lists("old")) == {}
    assert seen("b", lists("new", "old")) == {"old": "new"}
    assert seen("a", lists("old")) == {"old": "new"}  # beside newer code
    inbox.record_stopping("b")
    assert seen("a", lists("old")) == {}  # rolled back
    assert seen("c", lists("newest", "new", "old")) == {"new": "newest", "old": "newest"}
    assert seen("d", lists("newest", "new")) == {"new": "newest"}
    assert seen("e", lists("another")) == {"new": "newest"}
