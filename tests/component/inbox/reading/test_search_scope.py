"""A search beside deliveries that no worker has read yet: found by their bodies, or counted in the answer."""

from __future__ import annotations

import pytest

from billhook.inbox import DeliveryFilter, RunPlan
from billhook.inbox.reading import search_scope
from billhook.inbox.reading.search_scope import page_with_unread, read_scope
from support.inbox_view import NOON, change, incoming
from support.runs import plan, planned

NAMES = b'{"invoiceId":"inv_42","total":1249.90,"note":"of \\u00e9mile"}'

SEARCHED = "searched: ids, keys and identifying values of deliveries received since {day}"


def found(inbox, text, limit=50, below=None, **filters):
    chosen = page_with_unread(inbox, DeliveryFilter(search=text, **filters), limit, below)
    return [one.key for one in chosen]


def identified(inbox, key, *identifiers):
    return planned(inbox, "h", key=key, identifiers=identifiers)


def test_a_whole_value_in_the_body_of_an_unread_delivery_is_found(inbox):
    inbox.put(incoming("unread", body=NAMES))
    inbox.put(incoming("another", body=b'{"invoiceId":"inv_421"}'))

    for text, expected in {
        "inv_42": ["unread"],
        "1249.90": ["unread"],
        "of émile": ["unread"],
        "inv_4": [],
        "nv_42": [],
        "invoiceId": ["another", "unread"],  # a name is a string too
    }.items():
        assert found(inbox, text) == expected, text
    assert found(inbox, "inv_42", state="dead") == []


def test_read_and_unread_ones_are_one_list_over_pages(inbox):
    identified(inbox, "read 1", "inv_42")
    inbox.put(incoming("unread 1", body=NAMES))
    identified(inbox, "read 2", "inv_42")
    last = inbox.put(incoming("unread 2", body=NAMES)).delivery_id

    assert found(inbox, "inv_42") == ["unread 2", "read 2", "unread 1", "read 1"]
    assert found(inbox, "inv_42", limit=2) == ["unread 2", "read 2"]
    assert found(inbox, "inv_42", limit=2, below=last - 1) == ["unread 1", "read 1"]


def test_what_a_worker_has_read_is_found_by_its_index_alone(inbox):
    planned(inbox, "h", body=NAMES)

    assert found(inbox, "inv_42") == []


@pytest.mark.parametrize("ended", ["page", "_in_bodies"])
def test_one_that_a_worker_reads_during_the_search_is_found(inbox, monkeypatch, ended):
    delivery_id = inbox.put(incoming("read meanwhile", body=NAMES)).delivery_id
    search = getattr(search_scope, ended)

    def then_a_worker_reads(*arguments):
        result = search(*arguments)
        plan(inbox, RunPlan(delivery_id, ("h",), identifiers=("inv_42",)))
        return result

    monkeypatch.setattr(search_scope, ended, then_a_worker_reads)

    assert found(inbox, "inv_42") == ["read meanwhile"]


def test_more_than_are_searched_are_counted(inbox, monkeypatch):
    monkeypatch.setattr(search_scope, "UNREAD_SEARCHED", 2)
    for number in range(3):
        inbox.put(incoming(f"k{number}", body=NAMES))

    assert found(inbox, "inv_42") == ["k2", "k1"]
    scope = read_scope(inbox, DeliveryFilter(search="inv_9"))
    assert scope is not None
    assert scope.unread_text == "3 are not read yet, of which the bodies of the newest 2 were searched"
    assert scope.unread_text in scope.text


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("nothing", "no delivery has been received"),
        ("read", SEARCHED),
        ("unread", SEARCHED + ", and the bodies of 1 that are not read yet"),
    ],
)
def test_the_answer_says_what_was_searched(inbox, stored, text):
    if stored == "read":
        planned(inbox, "h")
    elif stored == "unread":
        inbox.put(incoming("k"))

    scope = read_scope(inbox, DeliveryFilter(search="inv_42"))

    assert scope is not None
    assert scope.text == text.format(day=f"{NOON:%Y-%m-%d}")


def test_it_goes_back_to_the_oldest_whose_content_is_kept(inbox, where):
    planned(inbox, "h", key="pruned")
    planned(inbox, "h", key="kept")
    change(
        where, "UPDATE delivery SET state = 'pruned', received_at = '2026-01-01 00:00:00.000000' WHERE id = 1"
    )
    scope = read_scope(inbox, DeliveryFilter(search="x"))

    assert scope is not None
    assert scope.since == NOON


def test_the_next_steps_fit_what_is_there(inbox):
    identified(inbox, "k", "inv_42")
    inbox.put(incoming("unread", body=b'{"a":"inv_7"}'))

    def steps(selection):
        scope = read_scope(inbox, selection)
        assert scope is not None
        return [command for _, command in scope.next_steps]

    general = ["reconcile --since " + f"{NOON:%Y-%m-%d}", "actions"]
    assert steps(DeliveryFilter(search="inv_9")) == ["deliveries list --contains inv_9", *general]
    assert steps(DeliveryFilter(search="inv_42", state="dead"))[0] == "deliveries list --search inv_42"
    assert steps(DeliveryFilter(search="inv_7"))[0] == "deliveries show 2"
    assert steps(DeliveryFilter(search="a b"))[0] == "deliveries list --contains 'a b'"
    assert read_scope(inbox, DeliveryFilter(state="dead")) is None
