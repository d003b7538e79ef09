"""What waits although somebody could have begun it: each delivery once, the longest waiting first."""

from __future__ import annotations

from dataclasses import replace

from billhook.inbox import RunPlan
from billhook.inbox.running.due import PendingDelivery
from billhook.inbox.tables.records import HandlerLimits
from support.inbox_view import change, incoming, rows
from support.runs import at, claim
from support.runs import plan as plan_as


def put(inbox, key, seconds=0.0):
    return inbox.put(replace(incoming(key), received_at=at(seconds))).delivery_id


def plan(inbox, delivery_id, *handlers, seconds=0.0):
    plan_as(inbox, RunPlan(delivery_id, handlers), seconds=seconds)


def pending_at(inbox, seconds, *, unread=None, limit=10):
    received_before = at(seconds if unread is None else unread)
    found, times = inbox.pending({}, received_before=received_before, now=at(seconds), limit=limit)
    return found, times.after(at(seconds))


def test_unplanned_deliveries_are_pending_after_a_delay(inbox):
    first, second = put(inbox, "a"), put(inbox, "b", seconds=5)

    assert pending_at(inbox, -1)[0] == []
    assert pending_at(inbox, 4)[0] == [PendingDelivery(first, at(0), fresh=True)]
    assert pending_at(inbox, 5)[0] == [
        PendingDelivery(first, at(0), fresh=True),
        PendingDelivery(second, at(5), fresh=True),
    ]


def test_a_delivery_waits_once_since_a_run_was_due_or_a_lease_ended_and_a_later_one_is_foretold(inbox):
    delivery_id = put(inbox, "a")
    plan(inbox, delivery_id, "h1", "h2", "h3", seconds=3)
    due = PendingDelivery(delivery_id, at(3), fresh=True)

    assert pending_at(inbox, 2) == ([], at(3))
    assert pending_at(inbox, 3) == ([due], None)
    claim(inbox, 1, 3)
    assert pending_at(inbox, 32)[0] == [due]
    assert pending_at(inbox, 33)[0] == [PendingDelivery(delivery_id, at(33), fresh=False)]
    claim(inbox, 2, 4)
    assert pending_at(inbox, 32) == ([], at(33))


def test_pending_deliveries_are_the_longest_waiting_up_to_the_limit(inbox):
    late, run, early = put(inbox, "a", 9), put(inbox, "b"), put(inbox, "c", 1)
    plan(inbox, run, "h", seconds=5)

    assert [one.delivery_id for one in pending_at(inbox, 10)[0]] == [early, run, late]
    assert [one.delivery_id for one in pending_at(inbox, 10, limit=2)[0]] == [early, run]


def test_a_backlog_of_one_type_hides_no_other_whose_message_was_lost(inbox):
    busy = [put(inbox, f"busy {number}") for number in range(30)]
    due = put(inbox, "due")
    plan(inbox, due, "h")
    for event_type in ("InvoiceApproved", "CustomerCreated"):
        inbox.put(replace(incoming(event_type, event_type=event_type), received_at=at(50)))
    approved, created = due + 1, due + 2

    found = [one.delivery_id for one in pending_at(inbox, 60, limit=26)[0]]
    assert found == [*busy[:24], approved, created]
    # Too young for its message to be lost.
    assert [one.delivery_id for one in pending_at(inbox, 60, unread=40, limit=26)[0]] == busy[:26]
    # With room for each, the longest waiting.
    assert [one.delivery_id for one in pending_at(inbox, 60, limit=33)[0]] == [*busy, due, approved, created]


def test_waiting_and_finished_runs_are_not_pending(inbox, where):
    for number, state in enumerate(("waiting", "succeeded", "discarded", "dead")):
        plan(inbox, put(inbox, state), f"h{number}")
        change(where, "UPDATE run SET state = ? WHERE handler = ?", state, f"h{number}")

    assert rows(where, "SELECT count(*) FROM run") == [(4,)]
    assert pending_at(inbox, 100) == ([], None)


def test_only_as_many_wait_as_their_handler_has_room_for_beside_what_runs(inbox):
    ids = [put(inbox, key) for key in "abcd"]
    for delivery_id in ids:
        plan(inbox, delivery_id, "h")
    claim(inbox, 1)
    limits = {"h": HandlerLimits(("h",), at_most=3)}

    found, _ = inbox.pending(limits, received_before=at(1), now=at(1), limit=10)

    assert [one.delivery_id for one in found] == ids[1:3]
    assert {one.limited_handler for one in found} == {"h"}
