"""Lists. Source: spec, "Endpoints", the pagination shape; "Limits"."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

from support.sandbox import INVALID, Running, check_refused
from support.scenarios import contract, customer, fee


def add(sandbox: Running, *names: str) -> None:
    """Products of these names."""
    for name in names:
        sandbox.ok("POST", "/catalogProducts", {"name": name, "externalId": name})


def page(sandbox: Running, limit: int, cursor: str | None = None) -> Any:
    more = "" if cursor is None else f"&cursor={quote(cursor)}"
    return sandbox.ok("GET", f"/catalogProducts?limit={limit}{more}")


def names(*pages: Any) -> str:
    return "".join(each["name"] for one in pages for each in one["catalogProducts"])


def cursor_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_a_list_is_read_page_by_page_in_the_order_in_which_its_things_came(sandbox: Running) -> None:
    """Source: spec, "Endpoints", the pagination shape."""
    add(sandbox, *"abcde")
    first = page(sandbox, 2)
    second = page(sandbox, 2, first["nextCursor"])
    third = page(sandbox, 2, second["nextCursor"])
    whole = page(sandbox, 5)

    assert [names(each) for each in (first, second, third, whole)] == ["ab", "cd", "e", "abcde"]
    assert [each["hasMore"] for each in (first, second, third, whole)] == [True, True, False, False]
    assert [each["total"] for each in (first, second, third, whole)] == [5, 5, 5, 5]
    assert third["nextCursor"] is None
    assert whole["nextCursor"] is None


def test_a_limit_is_a_whole_number_from_1_to_1000_and_any_other_is_refused(sandbox: Running) -> None:
    """Source: spec, "Limits"; "Endpoints": limit is a number."""
    good = ["1", "1000", "2.0", "1e1"]
    bad = ["0", "-1", "1001", "1.5", "ten", "", "null", "true", "[1]", "1e600", "9" * 700, "NaN", "%00"]
    statuses = {limit: sandbox.call("GET", f"/catalogProducts?limit={limit}").status for limit in good}
    answers = {limit: sandbox.call("GET", f"/catalogProducts?limit={limit}") for limit in bad}

    assert statuses == dict.fromkeys(good, 200)
    assert {limit: answer.error() for limit, answer in answers.items()} == dict.fromkeys(bad, INVALID)
    assert {answer.json["param"] for answer in answers.values()} == {"limit"}


HOSTILE_CURSORS = (
    "", "x", "=", "1", "None", "null", "ü", "%00", "%FF", "../..", "' OR 1=1 --", "A" * 10_000,
    cursor_of("after:1"), cursor_of("customer:1"), cursor_of("catalog_product:-1"),
    cursor_of("catalog_product:01"), cursor_of("catalog_product:1 "), cursor_of("catalog_product:"),
    cursor_of("catalog_product:1.0"), cursor_of("catalog_product:" + "9" * 20),
    cursor_of("catalog_product:٣"), cursor_of("catalog_product:1") + "=",
    cursor_of("catalog_product:catalog_product:1"), "\N{PILE OF POO}",
)  # fmt: skip


def test_an_invalid_cursor_is_refused(sandbox: Running) -> None:
    answers = {
        cursor: sandbox.call("GET", f"/catalogProducts?cursor={quote(cursor, safe='%')}")
        for cursor in HOSTILE_CURSORS
    }
    control = sandbox.call("GET", f"/catalogProducts?cursor={cursor_of('catalog_product:1')}")

    assert {cursor: answer.error() for cursor, answer in answers.items()} == dict.fromkeys(answers, INVALID)
    assert {answer.json["param"] for answer in answers.values()} == {"cursor"}
    assert control.status == 200


LISTS = (
    "/contracts?", "/customFields?", "/invoices?", "/credits?customerId={owner}&", "/_sandbox/customers?",
    "/_sandbox/meters?", "/_sandbox/creditProducts?", "/_sandbox/subscriptions?",
    "/_sandbox/deliveries?eventType=CustomerCreated&", "/_sandbox/raised?eventType=CustomerCreated&",
)  # fmt: skip


def test_every_other_list_goes_by_the_same_rules(sandbox: Running) -> None:
    """Source: spec, "Endpoints", the pagination shape."""
    for number, kind in enumerate(("CustomerCreated", "Overage", "PaymentFailed")):
        name = f"n{number}"
        sandbox.ok("POST", "/webhook", {"callbackUrl": "http://127.0.0.1:9/", "eventType": kind})
        owner = customer(sandbox, customFields=[{"customFieldName": name, "valueType": "String"}])
        contract(sandbox, owner, startDate="2025-12-10", products=[fee(1)])
        sandbox.ok("POST", "/_sandbox/creditProducts", {"name": name})
        meter = {"name": name, "eventName": name, "aggregationMethod": "count"}
        sandbox.ok("POST", "/_sandbox/meters", meter)
    for amount in (1, 2, 3):
        sandbox.ok("POST", "/_sandbox/credits/grant", {"customerId": owner, "creditAmount": amount})

    for path in (path.format(owner=owner) for path in LISTS):
        whole = sandbox.ok("GET", path)
        first = sandbox.ok("GET", f"{path}limit=2")
        second = sandbox.ok("GET", f"{path}limit=2&cursor={first['nextCursor']}")
        wrong = [sandbox.call("GET", f"{path}{query}") for query in ("limit=0", "cursor=x")]

        [key] = set(whole) - {"total", "hasMore", "nextCursor"}
        ids = [[each["id"] for each in one[key]] for one in (whole, first, second)]
        assert ids == [ids[0], ids[0][:2], ids[0][2:]], path
        assert len(set(ids[0])) == 3, path
        assert [(one["total"], one["hasMore"]) for one in (whole, first, second)] == [
            (3, False), (3, True), (3, False),
        ], path  # fmt: skip
        check_refused(wrong, ["limit", "cursor"])
