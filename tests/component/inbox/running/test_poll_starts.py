"""Polls and claims that begin later in the indexes than at their beginnings. On every database."""

from __future__ import annotations

import pytest

from billhook.inbox import PollStart, RoundRobin
from support.inbox_view import incoming
from support.runs import LEASE, OWNER, at, claim, planned


@pytest.fixture
def inbox_with_runs(inbox):
    """Runs that are due since 0, 10 and 20 s, and under way until 30 and 40 s."""
    for seconds in (0, 10):
        planned(inbox, "busy", key=f"busy {seconds}", seconds=seconds)
        claim(inbox, seconds=seconds)
    for name, seconds in (("h", 0), ("h", 10), ("other", 20)):
        planned(inbox, name, key=f"{name} {seconds}", seconds=seconds)
    return inbox


def begun(inbox, delivery_id=0, due=0.0, leased=0.0, names=("busy", "h", "other")):
    start = PollStart(delivery_id, at(due), at(leased), tuple(names))
    unread, times = inbox.poll(10, start=start, turns=RoundRobin(lambda _: None))
    return [one.delivery_id for one in unread.deliveries], times


@pytest.mark.parametrize("number", [3, 12])  # as many as are read at most: in turn
def test_a_poll_finds_the_deliveries_from_its_start_on(inbox, number):
    ids = [inbox.put(incoming(f"k{n}", event_type="AB"[n % 2])).delivery_id for n in range(number)]

    assert begun(inbox)[0] == ids[:10]
    assert begun(inbox, ids[1])[0] == ids[1:11]
    assert begun(inbox, ids[-1] + 1)[0] == []


def test_a_poll_finds_the_runs_from_its_start_on_of_the_names_that_it_is_given(inbox_with_runs):
    whole = inbox_with_runs.poll(10)[1]
    everything = begun(inbox_with_runs)[1]

    assert everything._replace(due_from=None) == whole
    assert whole.names == {"busy", "h", "other"}
    assert (whole.first_due_at, whole.lease_ends_at) == (at(0), at(30))
    assert begun(inbox_with_runs, due=5)[1].due == {"h": at(10), "other": at(20)}
    assert begun(inbox_with_runs, names=["other"])[1].due == {"other": at(20)}
    assert begun(inbox_with_runs, leased=35)[1].lease_ends_at == at(40)
    assert begun(inbox_with_runs, names=["h"])[1].lease_ends_at is None


def test_a_claim_after_such_a_poll_begins_there_too(inbox_with_runs):
    times = begun(inbox_with_runs, due=5)[1]
    with inbox_with_runs.transaction(OWNER) as transaction:
        claimed = transaction.claim(10, at(25), at(25) + LEASE, times=times)

    assert [one.delivery.key for one in claimed] == ["h 10", "other 20"]
    assert [one.delivery.key for one in claim(inbox_with_runs, seconds=25)] == ["h 0"]
