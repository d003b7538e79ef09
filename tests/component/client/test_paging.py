"""Lists: every page, one page, and pages that lead nowhere."""

from __future__ import annotations

import itertools
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from billhook.client import ListingPage
from billhook.errors import InvalidRequest, UnexpectedResponse
from billhook.resources import CreditLedgerEntry, Invoice, sample
from support.billing_service import Service, Taken, answered, error

INVOICE = json.loads(sample(Invoice).to_json())


def invoices(count: int) -> list[dict[str, Any]]:
    return [{**INVOICE, "id": f"inv_{number}"} for number in range(count)]


def listing(service: Service, items: list[dict[str, Any]], default: int = 10) -> None:
    """GET /invoices by cursors, as the specification has them."""

    def page(taken: Taken):
        query = parse_qs(urlsplit(taken.target).query)
        start = int(query.get("cursor", ["c/0&"])[0].strip("c/&"))
        size = int(query.get("limit", [str(default)])[0])
        end = start + size
        more = end < len(items)
        body = {"invoices": items[start:end], "total": len(items), "hasMore": more}
        return answered(200, {**body, "nextCursor": f"c/{end}&" if more else ""})

    service.always("GET /invoices", page)


def test_a_list_iterates_over_all_pages(service, client):
    for count, pages in ((0, 1), (1, 1), (10, 1), (11, 2), (35, 4)):
        listing(service, invoices(count))
        before = len(service.lines())

        found = [invoice.id for invoice in client.invoices.list()]

        assert found == [f"inv_{number}" for number in range(count)]
        assert len(service.lines()) - before == pages


def test_filters_and_limit_are_sent_with_every_page(service, client):
    listing(service, invoices(5))

    list(client.invoices.list(billing_status="Overdue", issued_after="2026-01-01T00:00:00Z", limit=2))

    same = "GET /invoices?limit=2&billingStatus=Overdue&issuedAfter=2026-01-01T00%3A00%3A00Z"
    lines = [sorted(line.partition("?")[2].split("&")) for line in service.lines()]
    wanted = sorted(same.partition("?")[2].split("&"))
    assert lines == [wanted, sorted([*wanted, "cursor=c%2F2%26"]), sorted([*wanted, "cursor=c%2F4%26"])]


def test_a_page_is_fetched_with_its_first_item(service, client):
    listing(service, invoices(30))

    found = client.invoices.list()
    before = service.lines()
    taken = [invoice.id for invoice in itertools.islice(found, 10)]
    after = len(service.lines())
    next(found)

    assert (before, len(taken), after, len(service.lines())) == ([], 10, 1, 2)


def test_a_page_has_the_cursor_of_the_next(service, client):
    listing(service, invoices(25))
    found = client.invoices.list(limit=20)

    first = found.page()
    second = found.page(first.next_cursor)

    assert [len(page.items) for page in (first, second)] == [20, 5]
    assert (first.total, first.has_more, first.next_cursor) == (25, True, "c/20&")
    assert (second.total, second.has_more) == (25, False)
    assert isinstance(first, ListingPage)
    assert len(list(found)) == 25  # the iteration begins at the beginning


def test_an_empty_cursor_is_the_first_page(service, client):
    listing(service, invoices(15))

    first, again = client.invoices.list().page(), client.invoices.list().page("")

    assert again == first
    assert service.lines() == ["GET /invoices"] * 2


def test_iteration_continues_after_an_error_without_losing_items(service, client):
    listing(service, invoices(25))
    found = client.invoices.list()
    first = [next(found).id for _ in range(10)]
    service.answer("GET /invoices", error(400, "invalid_request_error", "not_today"))

    with pytest.raises(InvalidRequest, match="not_today"):
        next(found)

    assert [*first, *(invoice.id for invoice in found)] == [f"inv_{number}" for number in range(25)]


def stuck(cursors):
    """Pages that say each time that there is more."""
    left = iter(cursors)
    return lambda _: answered(
        200, {"invoices": [INVOICE], "total": 9, "hasMore": True, "nextCursor": next(left)}
    )


def test_cursors_that_lead_nowhere_are_not_followed_for_ever(service, client):
    for cursors in (["a", "a"], ["a", "b", "a"], [""], [None]):
        service.always("GET /invoices", stuck(cursors))
        before = len(service.lines())

        told = "it says that there is more and gives no new cursor to it"
        with pytest.raises(UnexpectedResponse, match=told):
            list(client.invoices.list())

        assert len(service.lines()) - before == len(cursors)


def test_a_cursor_that_fits_in_no_address_is_the_services_mistake_and_not_the_callers(service, client):
    service.always("GET /invoices", stuck(["c" * 70_000]))

    told = "its cursor has 70000 characters, and no address takes that"
    with pytest.raises(UnexpectedResponse, match=told):
        list(client.invoices.list())


def test_an_empty_page_with_more_behind_it_is_not_the_end(service, client):
    last = {"invoices": [INVOICE], "total": 1, "hasMore": False, "nextCursor": ""}
    first = {"invoices": [], "total": 1, "hasMore": True, "nextCursor": "b"}
    service.answer("GET /invoices", answered(200, first), answered(200, last))

    assert len(list(client.invoices.list())) == 1


def test_empty_pages_are_not_followed_for_ever_either(service, client):
    cursors = (f"c{number}" for number in itertools.count())
    service.always(
        "GET /invoices",
        lambda _: answered(200, {"invoices": [], "total": 9, "hasMore": True, "nextCursor": next(cursors)}),
    )

    told = "100 pages on end are empty, and it says that there is more"
    with pytest.raises(UnexpectedResponse, match=told):
        list(client.invoices.list())

    assert len(service.lines()) == 100


# --- a list that tells no hasMore -----------------------------------------------------------------


def test_a_cursor_means_another_page_unless_has_more_is_false(service, client):
    entry = json.loads(sample(CreditLedgerEntry).to_json())
    service.answer("GET /credits", answered(200, {"entries": [entry, entry]}))
    page = client.credits.list("cus_1").page()
    assert (len(page.items), page.total, page.has_more, page.next_cursor) == (2, None, False, None)
    first = {"entries": [entry], "nextCursor": "c2"}
    for last in ({}, {"nextCursor": None}, {"nextCursor": ""}, {"hasMore": False, "nextCursor": "c"}):
        service.answer("GET /credits", answered(200, first), answered(200, {"entries": [entry], **last}))
        assert len(list(client.credits.list("cus_1042"))) == 2

    service.answer("GET /credits", answered(200, {**first, "hasMore": False}))
    assert len(list(client.credits.list("cus_1042"))) == 1
