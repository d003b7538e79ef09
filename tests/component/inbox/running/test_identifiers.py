"""Identifying values: stored when a delivery is planned, shown in lists, found by indexes, erased."""

from __future__ import annotations

import itertools
from datetime import timedelta

from sqlalchemy import select

from billhook.inbox import DeliveryFilter, RunPlan
from billhook.inbox.operating.operations import erase, replay
from billhook.inbox.reading.deliveries import details, id_batches, page, summaries
from billhook.inbox.reading.searches import neighbours
from billhook.inbox.tables.schema import delivery
from billhook.inbox.watching.issue_updates import update_issues
from billhook.inbox.watching.issues import IssueState, change_issue, list_issues
from billhook.inbox.watching.occurrences import IssueKind
from support.inbox_view import NOON, change, incoming, rows
from support.postgres import only_sqlite
from support.query_plans import fill
from support.runs import plan, planned

LATER = NOON + timedelta(days=3)
COLUMNS = "SELECT identifier_1, identifier_2, identifier_3 FROM delivery WHERE id = ?"


def put(inbox, key, *identifiers, handlers=(), error=None):
    """A delivery that is planned and about these values; its id."""
    return planned(inbox, *handlers, key=key, error=error, identifiers=identifiers)


def found(inbox, text, limit=50, below=None, **others):
    return [one.id for one in page(inbox, DeliveryFilter(search=text, **others), limit, below)]


def test_a_plan_stores_what_each_delivery_is_about(inbox):
    ids = [inbox.put(incoming(key)).delivery_id for key in ("k1", "k2", "k3")]
    about = [("cus_1", "inv_1", "12.50"), ("cus_2",), ()]
    plan(inbox, *(RunPlan(one, ("h",), identifiers=own) for one, own in zip(ids, about, strict=True)))

    assert [one.identifiers for one in summaries(inbox, ids)] == about
    assert [one.summary.identifiers for one in details(inbox, ids)] == about


def test_a_delivery_is_found_by_its_id_its_key_and_each_value_whole(inbox):
    first = put(inbox, "k1", "cus_1", "inv_1", "12.50")
    second = put(inbox, "k2", "cus_1", "inv_2")
    waiting = inbox.put(incoming("k3")).delivery_id

    assert found(inbox, "cus_1") == [second, first]
    assert found(inbox, "inv_1") == found(inbox, "12.50") == found(inbox, "k1") == [first]
    assert found(inbox, str(waiting)) == found(inbox, "k3") == [waiting]
    assert found(inbox, "cus") == found(inbox, "CUS_1") == found(inbox, "999") == found(inbox, "9" * 40) == []


SELECTIONS = [
    DeliveryFilter(search=text, **others)
    for text in ("cus_1", "2")
    for others in (
        {},
        {"state": "planned"},
        {"handler": "h"},
        {"event_type": "PingTest"},
        {"key": "k7"},
        {"state": "dead"},
    )
]


def test_a_search_in_parts_selects_what_the_conditions_select(inbox, monkeypatch):
    monkeypatch.setattr("billhook.inbox.running.filters._PARTS", (2, 3))
    for number in range(14):
        about = ("cus_1", "2", "cus_1")[number % 3 :] if number != 5 else ("cus_2",)
        put(inbox, f"k{number}" if number else "cus_1", *about, handlers=("h",) if number % 5 else ())

    for selection, limit in itertools.product(SELECTIONS, (1, 3, 50)):
        with inbox.database.read() as connection:
            query = select(delivery.c.id).where(*selection.conditions()).order_by(delivery.c.id)
            plain = list(connection.execute(query).scalars())
            for middle in (1, 9, 14):
                newer = [one for one in plain if one > middle]
                older = [one for one in reversed(plain) if one < middle]
                assert selection.ids(connection, limit, above=middle, oldest_first=True) == newer[:limit]
                assert selection.ids(connection, limit, below=middle) == older[:limit]
        assert [one for batch in id_batches(inbox, selection, limit) for one in batch] == plain
        assert neighbours(inbox, selection, 7) == (
            next((one for one in plain if one > 7), None),
            next((one for one in reversed(plain) if one < 7), None),
        )


@only_sqlite
def test_a_value_of_many_deliveries_is_not_read_to_its_end_for_a_page(inbox, where):
    fill(where, 20_000)
    change(where, "UPDATE delivery SET identifier_1 = 'cus_1'")
    steps = []

    with inbox.database.read() as connection:
        driver = connection.connection.driver_connection
        driver.set_progress_handler(lambda: steps.append(1), 1_000)
        DeliveryFilter(search="cus_1", handler="h0").ids(connection, 2, above=9_999, oldest_first=True)
        driver.set_progress_handler(None, 0)

    assert len(steps) < 100


def test_a_long_value_is_found_by_the_text_that_was_sent(inbox):
    delivery_id = put(inbox, "k1", "x" * 99 + "…")

    assert found(inbox, "x" * 500) == [delivery_id]


def test_a_delivery_that_is_read_again_is_about_what_it_is_read_as(inbox, where):
    delivery_id = put(inbox, "k1", "cus_1", "inv_1")
    replay(inbox, [delivery_id], NOON)
    plan(inbox, RunPlan(delivery_id, error="not readable"))

    assert rows(where, COLUMNS, delivery_id) == [(None, None, None)]


def test_an_issue_says_what_its_deliveries_are_about_until_they_are_erased(inbox):
    delivery_id = put(inbox, "k1", "cus_1", error="not readable")
    update_issues(inbox, NOON)
    (issue,) = (one for one in list_issues(inbox) if one.kind is IssueKind.QUARANTINE)
    assert issue.identifiers == {delivery_id: ("cus_1",)}
    change_issue(inbox, issue.id, IssueState.ACKNOWLEDGED, NOON, who="ann", why="cus_1 asked")

    erase(inbox, [delivery_id], NOON)

    (issue,) = (one for one in list_issues(inbox) if one.kind is IssueKind.QUARANTINE)
    assert (issue.identifiers, issue.why) == ({}, None)
