"""The statement that finds the first of each type in a backlog. On every database."""

from __future__ import annotations

import pytest

from billhook.inbox import NewDelivery, RoundRobin
from support.inbox_view import NOON, incoming

BACKLOG = [("A", "a")] * 9 + [("B", "a"), ("A", "b"), ("B", "a"), ("B", "a"), ("", "a"), ("A", "b")]


@pytest.fixture
def backlog(inbox):
    for number, (event_type, source) in enumerate(BACKLOG, start=1):
        new = NewDelivery(source, f"k{number}", event_type, b"{}", "{}", None, NOON, type_field="t")
        inbox.put(new)
    return inbox


def read(inbox, limit, turns):
    return [int(one.key[1:]) for one in inbox.poll(limit, turns=turns)[0].deliveries]


def unordered(event_type):
    return None


def test_a_batch_has_some_of_each_type_and_source_and_of_the_oldest(backlog):
    for limit, of_each, expected in [
        (1, 10, [1]),
        (10, 1, [1, 2, 3, 4, 5, 6, 7, 10, 11, 14]),
        (12, 2, [*range(1, 9), 10, 11, 14, 15]),
        (14, 1, [*range(1, 15)]),
        (len(BACKLOG) + 1, 10, [*range(1, len(BACKLOG) + 1)]),
    ]:
        assert read(backlog, limit, RoundRobin(unordered, of_each=of_each)) == expected, limit


def test_types_that_are_too_many_for_a_batch_take_turns(inbox):
    for number in range(12):
        for event_type in ("T00", f"T{number:02}"):
            inbox.put(incoming(f"{event_type} {number}", event_type=event_type))
    turns = RoundRobin(unordered)

    seen = [{one.event_type for one in inbox.poll(6, turns=turns)[0].deliveries} for _ in range(12)]

    assert set().union(*seen) == {f"T{number:02}" for number in range(12)}
