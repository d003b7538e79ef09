"""What has stalled without an error: calls that do not return, held workers, and a handler that is gone."""

from __future__ import annotations

import pytest

from billhook.inbox import WorkerRecord
from billhook.inbox.operating.holds import hold_worker, resume_worker
from billhook.inbox.running.handler_lists import HandlerList
from billhook.inbox.watching.conditions import Facts
from billhook.inbox.watching.judgement import judge
from support.inbox_view import PING
from support.runs import at, claim, handled, planned, settle

MINUTE, HOUR = 60, 3_600
BOTH = HandlerList({PING: {"book": []}, "Paid": {"dun": []}}, {})
LACKING = HandlerList({PING: {"book": []}, "Paid": {}}, {})
RENAMED = HandlerList({PING: {"book": []}, "Paid": {"remind": []}}, {})


def found(inbox, name, seconds):
    """The sentences of a condition."""
    return [one.text for one in judge(Facts(inbox, at(seconds))).holding if one.condition.name == name]


def begun(inbox, number=1, seconds=0, **options):
    for each in range(number):
        planned(inbox, "book", key=f"k{each}", seconds=seconds)
    return claim(inbox, number, seconds, **options)


@pytest.mark.parametrize(
    ("number", "minutes", "sentences"),
    [
        (1, 9, []),
        (1, 25, ["1 call of book has not returned for 25 min"]),
        (3, 25, ["3 calls of book have not returned, the oldest for 25 min"]),
    ],
)
def test_a_call_that_does_not_return_is_named_after_ten_minutes(inbox, number, minutes, sentences):
    begun(inbox, number)
    assert found(inbox, "hanging", minutes * MINUTE) == sentences


def test_a_call_that_takes_as_long_as_others_of_its_handler_does_not_hang(inbox):
    settle(inbox, begun(inbox), seconds=20 * MINUTE, duration_seconds=20 * MINUTE)
    planned(inbox, "book", key="next", seconds=30 * MINUTE)
    claim(inbox, 1, 30 * MINUTE)

    assert found(inbox, "hanging", 85 * MINUTE) == []
    assert found(inbox, "hanging", 95 * MINUTE) == ["1 call of book has not returned for 1 h 5 min"]


def test_what_a_worker_has_claimed_and_not_called_does_not_hang(inbox):
    begun(inbox, 3, idle=1)
    assert found(inbox, "hanging", 25 * MINUTE) == ["1 call of book has not returned for 25 min"]


def alive(inbox, *owners, seconds=0, has=None, pid=None):
    for owner in owners:
        record = WorkerRecord(owner, "worker", 2, at(0), host="vm", pid=pid)
        inbox.record_worker(record, at(seconds), has, read_at=None if has is None else at(seconds))


def test_a_held_worker_is_named_until_it_is_resumed(inbox):
    alive(inbox, "one", "other")
    assert found(inbox, "held", 1) == []

    hold_worker(inbox, "one", at(1))
    part = found(inbox, "held", 2)
    hold_worker(inbox, "other", at(2))
    whole = found(inbox, "held", 3)
    resume_worker(inbox, "one")
    resume_worker(inbox, "other")

    assert (part, whole) == (
        ["1 of 2 workers is held"],
        ["all 2 workers are held, and start no run"],
    )
    assert found(inbox, "held", 4) == []


def test_a_held_worker_that_is_gone_is_not_named(inbox):
    alive(inbox, "one")
    hold_worker(inbox, "one", at(1))
    assert found(inbox, "held", 2) == ["the only worker is held, and starts no run"]
    assert found(inbox, "held", 2 * MINUTE) == []


@pytest.mark.parametrize(
    ("now_has", "sentences"),
    [
        (LACKING, ["no process has dun any more, and 2 deliveries of Paid got no handler"]),
        (RENAMED, []),
        (BOTH, []),
    ],
)
def test_a_deployment_that_lacks_a_handler_is_named_with_what_got_none(inbox, now_has, sentences):
    alive(inbox, "old", has=BOTH)
    handled(inbox, "before", handler="dun", event_type="Paid")
    alive(inbox, "new", seconds=5 * MINUTE, has=now_has)
    for key in ("a", "b"):
        planned(inbox, key=key, event_type="Paid", seconds=5 * MINUTE)

    assert found(inbox, "left-out", 5 * MINUTE + 1) == sentences


def test_a_handler_that_is_gone_is_named_for_a_day_and_not_before_a_delivery_comes(inbox):
    alive(inbox, "old", has=BOTH)
    handled(inbox, "before", handler="dun", event_type="Paid")
    alive(inbox, "new", seconds=5 * MINUTE, has=LACKING)
    none_came = found(inbox, "left-out", 5 * MINUTE + 1)
    planned(inbox, key="a", event_type="Paid", seconds=5 * MINUTE)
    one_came = found(inbox, "left-out", 5 * MINUTE + 1)
    alive(inbox, "new", seconds=25 * HOUR, has=LACKING)

    assert (none_came, len(one_came)) == ([], 1)
    assert found(inbox, "left-out", 25 * HOUR) == []
