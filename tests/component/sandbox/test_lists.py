"""Lists. Source: spec, "Endpoints", the pagination shape; "Limits"."""

from __future__ import annotations

import base64
from urllib.parse import quote

from support.sandbox import INVALID, Running, check_refused
from support.scenarios import contract, customer, fee


def cursor_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


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
    "x", "=", "1", "None", "null", "ü", "%00", "%FF", "../..", "' OR 1=1 --", "A" * 10_000,
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
    events = "/events?startTime=2026-01-01&endTime=2026-02-01&cursor="
    for text in ("catalog_product:1", "event:1", "event:01:2", "event:1:02"):  # these have two numbers
        answers[text] = sandbox.call("GET", f"{events}{cursor_of(text)}")
    control = sandbox.call("GET", f"/catalogProducts?cursor={cursor_of('catalog_product:1')}")
    other = sandbox.call("GET", f"{events}{cursor_of('event:-1:2')}")

    assert {cursor: answer.error() for cursor, answer in answers.items()} == dict.fromkeys(answers, INVALID)
    assert {answer.json["param"] for answer in answers.values()} == {"cursor"}
    assert (control.status, other.status) == (200, 200)


LISTS = (
    "/catalogProducts?", "/contracts?", "/customFields?", "/invoices?", "/credits?customerId={owner}&",
    "/_sandbox/customers?", "/_sandbox/meters?", "/_sandbox/creditProducts?", "/_sandbox/subscriptions?",
    "/_sandbox/deliveries?eventType=CustomerCreated&", "/_sandbox/raised?eventType=CustomerCreated&",
)  # fmt: skip


def test_every_list_is_read_page_by_page_in_the_order_in_which_its_things_came(sandbox: Running) -> None:
    """Source: spec, "Endpoints", the pagination shape."""
    for number, kind in enumerate(("CustomerCreated", "Overage", "PaymentFailed")):
        name = f"n{number}"
        sandbox.ok("POST", "/webhook", {"callbackUrl": "http://127.0.0.1:9/", "eventType": kind})
        owner = customer(sandbox, customFields=[{"customFieldName": name, "valueType": "String"}])
        contract(sandbox, owner, startDate="2025-12-10", products=[fee(1)])
        for path in ("/catalogProducts", "/_sandbox/creditProducts"):
            sandbox.ok("POST", path, {"name": name})
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
        for one in (whole, first, second):
            assert (one["total"], one["hasMore"], one["nextCursor"] is None) == (
                3,
                one is first,
                one is not first,
            )
        assert sandbox.ok("GET", f"{path}cursor=") == whole, path
        check_refused(wrong, ["limit", "cursor"])


def test_a_list_of_an_unknown_customer_is_an_empty_one(sandbox: Running) -> None:
    ways = [
        f"{path}?{name}={value}"
        for path, names in {
            "/contracts": ("customerId", "customerExternalId"),
            "/invoices": ("customerId",),
            "/credits": ("customerId",),
            "/events": ("startTime=2026-01-01&endTime=2026-02-01&customerAlias",),
        }.items()
        for name in names
        for value in ("nobody", "", "%F0%9F%92%A9", "a" * 300)
    ]

    for way in ways:
        answer = sandbox.ok("GET", way)
        (items,) = (value for name, value in answer.items() if isinstance(value, list))
        assert (items, answer["total"], answer["hasMore"], answer["nextCursor"]) == ([], 0, False, None), way
