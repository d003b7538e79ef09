"""Adding stored events up. Source: spec, "Endpoints", POST /v2/events/aggregation."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

from support.sandbox import Running

PATH = "/v2/events/aggregation"
FIRST = datetime(2025, 12, 30, tzinfo=UTC)
PERIOD = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-02-10T06:30:00Z"}
METHODS = ("count", "sum", "max", "last", "unique")
IN_EUROPE = [{"property": "region", "operator": "in", "value": ["eu", "ch"]}]


def event(number: int, at: datetime, alias: str, **data: Any) -> dict[str, Any]:
    timestamp = at.isoformat().replace("+00:00", "Z")
    return {
        "name": "call",
        "ref": f"r-{number}",
        "timestamp": timestamp,
        "customerAlias": alias,
        "data": data,
    }


def customer(sandbox: Running, alias: str) -> str:
    """A new customer's id."""
    made = sandbox.ok("POST", "/_sandbox/customers", {"name": alias, "aliases": [alias]})
    return str(made["customer"]["id"])


def meter(sandbox: Running, method: str, **changes: Any) -> None:
    """A meter on `units` with the method as its key."""
    given = {"name": method, "key": method, "eventName": "call", "aggregationMethod": method}
    sandbox.ok("POST", "/_sandbox/meters", {**given, "property": "units", **changes})


def asked(customer_id: str, group_by: str, *keys: str, **changes: Any) -> dict[str, Any]:
    meters = [{"key": key, "eventName": "call"} for key in keys]
    return {"customerId": customer_id, "period": PERIOD, "meters": meters, "groupBy": group_by, **changes}


def points(sandbox: Running, request: dict[str, Any]) -> dict[str, dict[str, Decimal]]:
    """The figures by group, exactly as they stand in the answer."""
    answer = sandbox.call("POST", PATH, request)
    assert answer.status == 200, answer.body
    read = json.loads(answer.body, parse_float=Decimal, parse_int=Decimal)
    groups = [point["group"] for point in read["dataPoints"]]
    assert groups == sorted(set(groups))
    return {point["group"]: point["values"] for point in read["dataPoints"]}


def many(count: int) -> list[dict[str, Any]]:
    """Events of two customers over two months, with units that binary fractions cannot hold."""
    chance = random.Random(11)
    made = []
    for number in range(count):
        at = FIRST + timedelta(minutes=chance.randrange(60 * 24 * 60))
        units: Any = chance.randrange(-3000, 90000) / 1000
        if number % 17 == 0:
            units = chance.choice(["7", None, True])
        region = chance.choice(["eu", "ch", "us", None])
        made.append(event(number, at, chance.choice(["acme", "zeta"]), units=units, region=region))
    return made


GROUPS: dict[str, Callable[[dict[str, Any], datetime], str]] = {
    "hour": lambda _, at: f"{at:%Y-%m-%dT%H}:00:00Z",
    "day": lambda _, at: f"{at:%Y-%m-%d}",
    "week": lambda _, at: f"{at - timedelta(days=at.weekday()):%Y-%m-%d}",
    "month": lambda _, at: f"{at:%Y-%m}",
    "customer": lambda event, _: event["customerAlias"],
    "eventName": lambda event, _: event["name"],
    "data.region": lambda event, _: event["data"]["region"] or "",
}


def by_hand(events: list[dict[str, Any]], group_by: str) -> dict[str, dict[str, Decimal]]:
    """The same in Python, event by event."""
    grouped: defaultdict[str, list[tuple[datetime, int, Any]]] = defaultdict(list)
    for number, one in enumerate(events):
        at = datetime.fromisoformat(one["timestamp"])
        inside = PERIOD["startTime"] <= one["timestamp"] < PERIOD["endTime"]
        if inside and one["data"]["region"] in ("eu", "ch"):
            grouped[GROUPS[group_by](one, at)].append((at, number, one["data"]["units"]))
    found = {}
    for group, rows in grouped.items():
        numbers = [(at, n, Decimal(str(units))) for at, n, units in rows if type(units) in (int, float)]
        plain = [units for *_, units in numbers]
        found[group] = {
            "count": Decimal(len(rows)),
            "sum": sum(plain, Decimal(0)),
            "max": max(plain, default=Decimal(0)),
            "last": max(numbers)[2] if numbers else Decimal(0),
            "unique": Decimal(len({f"{type(units)}{units}" for *_, units in rows if units is not None})),
        }
    return found


def test_aggregation_equals_a_calculation_in_python(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /v2/events/aggregation; each method, each groupBy."""
    events = many(700)
    ids = {alias: customer(sandbox, alias) for alias in ("acme", "zeta")}
    for method in METHODS:
        meter(sandbox, method, filters=IN_EUROPE)
    sandbox.ok("PUT", "/events", {"events": events})

    for group_by in GROUPS:
        request = asked(ids["acme"], group_by, *METHODS, customerIdPattern="*")
        expected = by_hand(events, group_by)
        if group_by == "customer":
            expected = {ids[alias]: figures for alias, figures in expected.items()}
        assert points(sandbox, request) == expected, group_by

    assert len(by_hand(events, "week")) == 7


def test_aggregation_is_of_the_customer_or_also_of_those_that_fit_the_pattern(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /v2/events/aggregation, customerId and customerIdPattern."""
    patterns = {
        None: {"a-eu": 1},
        "a-*": {"a-eu": 1, "a-us": 2},
        "*-eu": {"a-eu": 1, "b-eu": 4},
        "A-*": {"a-eu": 1},
        "a_us": {"a-eu": 1},
        "?-eu": {"a-eu": 1},
        "[ab]-*": {"a-eu": 1, "[ab]-x": 8},
        "100%": {"a-eu": 1, "100%": 16},
        "*": {"a-eu": 1, "a-us": 2, "b-eu": 4, "[ab]-x": 8, "100%": 16, "\\*": 32},
        "\\*": {"a-eu": 1, "\\*": 32},
    }
    ids = {alias: customer(sandbox, alias) for alias in ("a-eu", "a-us", "b-eu", "[ab]-x", "100%", "\\*")}
    events = [
        event(n, FIRST + timedelta(days=9), alias)
        for n, alias in enumerate(alias for count, alias in enumerate(ids) for _ in range(2**count))
    ]
    sandbox.ok("PUT", "/events", {"events": events})

    for pattern, expected in patterns.items():
        more = {} if pattern is None else {"customerIdPattern": pattern}
        found = points(sandbox, asked(ids["a-eu"], "customer", "calls", **more))
        assert found == {ids[alias]: {"calls": count} for alias, count in expected.items()}, pattern


def test_aggregation_goes_by_the_meters_of_the_event_if_there_are_any(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /v2/events/aggregation, meters of key and eventName; "per meter".

    Without a meter events are counted; a single one has any key, and counts from its creation on; among
    several the key decides.
    """
    acme = customer(sandbox, "acme")
    at = FIRST + timedelta(days=5)

    def send(first: int) -> None:
        events = [event(n, at, "acme", units=5) for n in range(first, first + 3)]
        sandbox.ok("PUT", "/events", {"events": events})

    send(0)
    without = points(sandbox, asked(acme, "month", "calls"))
    meter(sandbox, "sum")
    send(3)
    single = sandbox.ok("POST", PATH, asked(acme, "day", "sum", "calls"))
    meter(sandbox, "max")
    send(6)
    several = points(sandbox, asked(acme, "month", "sum", "max"))
    wrong = sandbox.call("POST", PATH, asked(acme, "month", "sum", "calls"))

    assert without == {"2026-01": {"calls": 3}}
    assert single == {
        "dataPoints": [{"group": "2026-01-04", "values": {"sum": 15, "calls": 15}}],
        "period": PERIOD,
        "groupBy": "day",
    }
    assert several == {"2026-01": {"sum": 30, "max": 5}}
    assert (wrong.status, wrong.json["param"]) == (400, "meters")
    assert wrong.json["message"].endswith("give one of sum, max")


FILTERS: list[tuple[str, Any, list[int]]] = [
    ("equals", 2, [1, 2]),
    ("in", ["2", 1, True], [0, 3, 4]),
    ("notEquals", 2, [0, 3, 4, 5, 6]),
    ("greaterThan", 1.5, [1, 2]),
    ("lessThan", 2, [0]),
    ("exists", None, [0, 1, 2, 3, 4]),
    ("exists", True, [0, 1, 2, 3, 4]),
    ("exists", False, [5, 6]),
]


def test_aggregation_each_operator_of_a_filter_holds_for_what_the_meter_counts(sandbox: Running) -> None:
    """Source: spec, "Endpoints", Meters: filters; their operators are not shown."""
    data: list[dict[str, Any]] = [{"tag": tag} for tag in (1, 2, 2.0, "2", True, None)]
    acme = customer(sandbox, "acme")
    for number, (operator, value, _) in enumerate(FILTERS):
        held = {"property": "tag", "operator": operator, "value": value}
        meter(sandbox, "count", key=str(number), filters=[held])
    at = FIRST + timedelta(days=5)
    batch = [event(n, at, "acme", **each) for n, each in enumerate([*data, {}])]
    dry = sandbox.ok("POST", "/events/dry-run", {"events": batch})["events"]
    sandbox.ok("PUT", "/events", {"events": batch})

    found = points(sandbox, asked(acme, "month", *(str(number) for number in range(len(FILTERS)))))

    for number, (*_, expected) in enumerate(FILTERS):
        counted = [n for n, each in enumerate(dry) if each["meterWithValues"][number]["value"]]
        assert counted == expected, FILTERS[number]
        assert found["2026-01"][str(number)] == len(expected), FILTERS[number]


SUMS = [
    ["1e-10", "2e-10"],
    ["12345678901234567890"],
    ["4611686018427387904"] * 3,
    ["10000000000000000000000000", "0.125", "-0.0000000001", "7"],
    ["0.1"] * 10,
]
TOLD_APART = ("12345678901234567890", "12345678901234567891", "1", "1.0", '"1"', "-9223372036854775808")


def test_figures_keep_every_digit_and_equal_numbers_are_one(sandbox: Running) -> None:
    """SQLite's integers end at 2 ** 63 and its fractions have 15 digits: nothing goes by them."""
    acme = customer(sandbox, "acme")
    for method in ("sum", "max", "last", "unique"):
        meter(sandbox, method)
    at = FIRST + timedelta(days=5)
    batches = [*SUMS, [*TOLD_APART]]
    events = [
        event(10 * n + m, at + timedelta(days=n), "acme", units=f"<{value}>")
        for n, values in enumerate(batches)
        for m, value in enumerate(values)
    ]
    text = json.dumps({"events": events}).replace('"<', "").replace('>"', "").replace('\\"', '"')
    assert sandbox.call("PUT", "/events", text.encode()).json["invalidEvents"] == []

    *sums, of_day = points(sandbox, asked(acme, "day", "sum", "max", "last", "unique")).values()
    by_value = points(sandbox, asked(acme, "data.units", "unique"))

    numbers = [[Decimal(value) for value in values] for values in SUMS]
    with localcontext(prec=100):
        assert sums == [
            {"sum": sum(each), "max": max(each), "last": each[-1], "unique": len(set(each))}
            for each in numbers
        ]
    assert (of_day["max"], of_day["unique"]) == (Decimal(TOLD_APART[1]), 5)
    assert {name: each["unique"] for name, each in by_value.items()} == {
        f"{Decimal(value).normalize():f}": 2 if value in ("1", "1.0") else 1
        for value in [*{value for values in SUMS for value in values}, *TOLD_APART[:4], TOLD_APART[5]]
    }
