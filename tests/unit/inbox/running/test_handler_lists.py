"""Which event types get the same by two lists of handlers."""

from __future__ import annotations

import pytest

from billhook.inbox.running.handler_lists import EVERY_TYPE, HandlerList, TypeFilter

A = HandlerList({"A": {"first": ()}, "B": {}, "": {}}, {})


def with_types(**by_type):
    return HandlerList({**A.by_type, **by_type}, {})


@pytest.mark.parametrize(
    ("newer", "alike"),
    [
        (A, EVERY_TYPE),
        (HandlerList(A.by_type, {"first": ("former",)}), EVERY_TYPE),  # its runs are the same
        (with_types(A={"first": (), "second": ()}), TypeFilter(frozenset({"A", ""}), but=True)),
        (with_types(A={}), TypeFilter(frozenset({"A", ""}), but=True)),
        (with_types(A={"renamed": ()}), TypeFilter(frozenset({"A", ""}), but=True)),
        (with_types(A={"first": ("eu",)}), TypeFilter(frozenset({"A", ""}), but=True)),
        (with_types(C={}), TypeFilter(frozenset({"C", ""}), but=True)),  # a type that only one knows
        (HandlerList({**A.by_type, "": {"any": ()}}, {}), TypeFilter(frozenset({"A", "B"}))),
    ],
    ids=["same", "alias", "more", "removed", "renamed", "sources", "type", "unknown types"],
)
def test_types_that_are_planned_alike(newer, alike):
    assert A.plans_as(newer) == alike
    assert newer.plans_as(A) == alike


ORDERED = HandlerList({"A": {"first": ()}, "B": {}, "C": {}, "": {}}, {}, {"first": "customer_id"})


@pytest.mark.parametrize(
    ("newer", "alike"),
    [
        (HandlerList(ORDERED.by_type, {}, {"first": "customer_id"}), EVERY_TYPE),
        (HandlerList(ORDERED.by_type, {}, {"first": "invoice_id"}), {"A", ""}),
        (HandlerList(ORDERED.by_type, {}), {"A", ""}),
        # The earlier deliveries of all its types are planned first, by one process.
        (HandlerList({**ORDERED.by_type, "B": {"first": ()}}, {}, ORDERED.ordered), {"A", "B", ""}),
        (HandlerList({**ORDERED.by_type, "D": {"first": ()}}, {}, ORDERED.ordered), {"A", "D", ""}),
    ],
    ids=["same", "another field", "not ordered", "another type", "a new type"],
)
def test_types_of_ordered_handlers_that_are_planned_alike(newer, alike):
    expected = alike if alike is EVERY_TYPE else TypeFilter(frozenset(alike), but=True)
    assert ORDERED.plans_as(newer) == expected
    assert newer.plans_as(ORDERED) == expected


@pytest.mark.parametrize("event_type", ["A", "B", "C", ""])
def test_a_filter_says_which_types_it_has(event_type):
    assert TypeFilter(frozenset({"A", ""}), but=True).has(event_type) == (event_type in ("B", "C"))
    assert TypeFilter(frozenset({"A", "B"})).has(event_type) == (event_type in ("A", "B"))
    assert EVERY_TYPE.has(event_type)


def test_a_list_is_its_content_in_any_order():
    one = HandlerList({"B": {}, "A": {"x": ("b", "a"), "y": ()}, "": {}}, {"y": (), "x": ("o", "m")})
    other = HandlerList({"": {}, "A": {"y": (), "x": ("a", "b")}, "B": {}}, {"x": ("m", "o")})

    assert one.digest == other.digest != A.digest
    parsed = HandlerList.parse(one.content)
    assert (parsed.content, parsed.plans_as(one)) == (one.content, EVERY_TYPE)


def test_a_list_calls_runs_by_names_and_aliases_of_the_type():
    listed = HandlerList({"A": {"new": ()}, "B": {}, "": {"any": ()}}, {"new": ("old",)})

    assert {name for name in ("new", "old", "any") if listed.calls(name, "A")} == {"new", "old"}
    assert {name for name in ("new", "old", "any") if listed.calls(name, "B")} == set()
    assert {name for name in ("new", "old", "any") if listed.calls(name, "Other")} == {"any"}
    assert (listed.names, listed.stored_names) == ({"new", "any"}, {"new", "old", "any"})
    assert [listed.knows(each) for each in ("A", "B", "", "Other")] == [True, True, False, False]
