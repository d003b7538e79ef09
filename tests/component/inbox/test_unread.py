"""The statement that finds the first of each type in a backlog. On every database."""

from __future__ import annotations

import random
import re
from collections import defaultdict

import pytest

from billhook.inbox import NewDelivery, RoundRobin
from support.inbox_view import NOON, change, incoming
from support.query_plans import fill, query_plans

BACKLOG = [("A", "a")] * 9 + [("B", "a"), ("A", "b"), ("B", "a"), ("B", "a"), ("", "a"), ("A", "b")]


@pytest.fixture
def backlog(inbox):
    for number, (event_type, source) in enumerate(BACKLOG, start=1):
        new = NewDelivery(source, f"k{number}", event_type, b"{}", "{}", None, NOON, type_field="t")
        inbox.put(new)
    return inbox


def read(inbox, limit, turns):
    return [int(one.key[1:]) for one in inbox.poll(limit, turns=turns)[0]]


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

    seen = [{one.event_type for one in inbox.poll(6, turns=turns)[0]} for _ in range(12)]

    assert set().union(*seen) == {f"T{number:02}" for number in range(12)}


def test_what_it_finds_are_the_first_of_each(inbox):
    order = random.Random(1)
    types, sources = ["", "A", "B", "É", "a b"], ["x", "y"]
    waiting = defaultdict(list)
    for number in range(150):
        event_type, source = order.choice(types), order.choice(sources)
        new = NewDelivery(source, f"k{number}", event_type, b"{}", "{}", None, NOON, type_field="t")
        waiting[event_type, source].append(inbox.put(new).delivery_id)
    firsts = {delivery_id for ids in waiting.values() for delivery_id in ids[:3]}

    found = {one.delivery_id for one in inbox.poll(100, turns=RoundRobin(unordered, of_each=3))[0]}

    oldest = [number for number in range(1, 151) if number not in firsts][: 100 - len(firsts)]
    assert found == firsts | set(oldest)


def test_a_backlog_is_not_read_to_find_the_first_of_each(inbox, where):
    fill(where, 20_000)
    change(where, "UPDATE delivery SET state = 'received' WHERE id > 15000")
    change(where, "ANALYZE delivery")

    plans = query_plans(inbox, lambda: inbox.poll(100, turns=RoundRobin(unordered)))

    assert sum("delivery_turn_idx" in plan for plan in plans) == 1
    assert not re.search(r"(?i)seq scan on delivery|^scan delivery$", "\n".join(plans), re.MULTILINE)
