"""Which deliveries of a backlog are planned next: some of each type, and of each queue the beginning."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billhook.inbox import StoredDelivery
from billhook.inbox.running.unread import merge
from support.inbox_view import NOON

ORDERED = {"": -1, "C": 0, "D": 0, "E": 1}
"""C and D share an ordered handler, E has one of its own, A and B have none."""


def stored(delivery_id, event_type, source="s"):
    return StoredDelivery(delivery_id, source, f"k{delivery_id}", event_type, b"", "{}", None, NOON)


def first_of_each(waiting, of_each, at_most):
    """Return what the statement finds: the first of each type and source, by type and source."""
    by_type = defaultdict(list)
    for one in sorted(waiting):
        by_type[one.event_type, one.source].append(one)
    found = [one for key in sorted(by_type) for one in by_type[key][:of_each]]
    return found[:at_most], len(found) < at_most


def chosen(types, limit=6, of_each=2, queues=ORDERED.get, at_most=100):
    """Return the ids that are planned next where deliveries of these types wait, the oldest first."""
    waiting = [stored(number, *each.split("/")) for number, each in enumerate(types, start=1)]
    found, complete = first_of_each(waiting, of_each, at_most)
    taken = merge(waiting[:limit], found, of_each, queues, limit, complete=complete)
    return [one.delivery_id for one in taken]


@pytest.mark.parametrize(
    ("types", "planned"),
    [
        (["A"] * 9, [1, 2, 3, 4, 5, 6]),
        # Others come in their turn, and the rest of the batch are the oldest.
        (["A"] * 9 + ["B"], [1, 2, 3, 4, 5, 10]),
        (["A"] * 9 + ["B"] * 3 + ["E"], [1, 2, 3, 10, 11, 13]),
        # The same type from another source is another queue.
        (["A/a"] * 9 + ["A/b"], [1, 2, 3, 4, 5, 10]),
        # Behind the second C there may be another before the D, which must not pass it.
        (["C"] * 9 + ["D"], [1, 2, 3, 4, 5, 6]),
        (["A"] * 8 + ["C", "D", "C", "C", "D"], [1, 2, 3, 9, 10, 11]),
        (["C/a"] * 9 + ["D/b"], [1, 2, 3, 4, 5, 10]),
        # What may be in a body, of the same source, is behind what an ordered handler gets, and before it.
        (["C"] * 9 + [""], [1, 2, 3, 4, 5, 6]),
        ([""] * 9 + ["E"], [1, 2, 3, 4, 5, 6]),
        ([""] * 9 + ["A"], [1, 2, 3, 4, 5, 10]),
        (["/a"] * 9 + ["/b"], [1, 2, 3, 4, 5, 10]),
    ],
)
def test_a_batch_has_some_of_each_queue_and_the_oldest(types, planned):
    assert chosen(types) == planned


def test_types_in_bodies_are_a_queue_like_others_where_no_handler_is_ordered():
    assert chosen([""] * 9 + ["C"], queues=lambda _: None) == [1, 2, 3, 4, 5, 10]


def test_a_part_of_the_types_tells_nothing_of_a_queue_that_may_have_others():
    types = [*["A"] * 9, "C", "D"]

    assert chosen(types, at_most=3) == [1, 2, 3, 4, 5, 6]
    assert chosen([*["B"] * 9, "A"], at_most=2) == [1, 2, 3, 4, 5, 10]


waits = st.lists(
    st.tuples(st.sampled_from(["", "A", "B", "C", "D", "E"]), st.sampled_from(["s", "t"])), max_size=40
)


@given(waits, st.integers(1, 8), st.integers(1, 4), st.integers(1, 12))
def test_each_queue_is_planned_in_the_order_of_receipt(types, limit, of_each, at_most):
    waiting = [stored(number, *each) for number, each in enumerate(types, start=1)]
    planned = []
    while waiting:
        found, complete = first_of_each(waiting, of_each, at_most)
        taken = merge(waiting[:limit], found, of_each, ORDERED.get, limit, complete=complete)
        assert len(taken) <= max(limit, len(found))
        assert taken
        planned += taken
        waiting = [one for one in waiting if one not in taken]

    queues = defaultdict(list)
    for one in planned:
        ordered = ORDERED.get(one.event_type)
        # The body of one without a type may have any of those that an ordered handler gets.
        for queue in (one.event_type,) if ordered is None else (0, 1) if ordered == -1 else (ordered,):
            queues[one.source, queue].append(one.delivery_id)
    assert all(before < after for ids in queues.values() for before, after in pairwise(ids))
