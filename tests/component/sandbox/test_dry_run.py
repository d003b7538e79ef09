"""The dry run of a batch. Source: spec, "Endpoints", POST /events/dry-run and its rules."""

from __future__ import annotations

from typing import Any

from billhook.sandbox.storage.tables import metadata
from support.sandbox import Running

PATH = "/events/dry-run"


def event(ref: str, **changes: Any) -> dict[str, Any]:
    """A good event."""
    plain = {"name": "api_call", "timestamp": "2026-01-10T09:00:00Z", "customerAlias": "acme", "ref": ref}
    return {**plain, "data": {"units": 3, "host": "vm-7", "region": "eu"}, **changes}


def meter(sandbox: Running, method: str, **changes: Any) -> None:
    """A meter of api_call that is named by its method."""
    plain = {"name": method, "eventName": "api_call", "aggregationMethod": method}
    sandbox.ok("POST", "/_sandbox/meters", {**plain, **changes})


def rows(sandbox: Running) -> dict[str, list[Any]]:
    """All that is stored."""
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        return {table.name: list(tx.connection.execute(table.select())) for table in metadata.sorted_tables}


def test_dry_run_an_event_that_matches_a_customer_has_the_customers_id(sandbox: Running) -> None:
    """Source: spec, the dry-run rules, row 1."""
    customer = sandbox.ok("POST", "/_sandbox/customers", {"name": "Acme", "aliases": ["acme"]})
    answer = sandbox.ok("POST", PATH, {"events": [event("r-1")]})

    assert answer == {
        "events": [
            {"event": event("r-1"), "matchedCustomer": customer["customer"]["id"], "meterWithValues": []}
        ],
        "invalidEvents": [],
    }


def test_dry_run_has_the_value_of_a_matching_meter(sandbox: Running) -> None:
    """Source: spec, the dry-run rules, rows 3 and 4; meterWithValues."""
    for method in ("sum", "max", "last"):
        meter(sandbox, method, property="units")
    meter(sandbox, "count", filters=[{"property": "region", "operator": "equals", "value": "eu"}])
    meter(sandbox, "unique", property="host")

    answer = sandbox.ok("POST", PATH, {"events": [event("r-1"), event("r-2", name="other")]})

    here, other = (each["meterWithValues"] for each in answer["events"])
    assert [(each["name"], each["value"], each["instanceValue"]) for each in here] == [
        ("sum", 3, None), ("max", 3, None), ("last", 3, None), ("count", 1, None), ("unique", 1, "vm-7"),
    ]  # fmt: skip
    assert all(each["eventName"] == "api_call" for each in here)
    assert [each["aggregationMethod"] for each in here] == ["sum", "max", "last", "count", "unique"]
    assert other == []


def test_dry_run_stores_nothing(sandbox: Running) -> None:
    """Source: spec, "Endpoints", POST /events/dry-run: stores nothing."""
    batch = {"events": [event("r-1"), event("r-2", customerAlias="new")]}
    meter(sandbox, "sum", property="units")
    meter(sandbox, "unique", property="host")
    before = rows(sandbox)

    answer = sandbox.ok("POST", PATH, batch)
    after_dry_run = rows(sandbox)
    sandbox.ok("PUT", "/events", batch)

    assert [each["matchedCustomer"] for each in answer["events"]] == [None, None]
    assert after_dry_run == before
    changed = {name for name, stored in rows(sandbox).items() if stored != before[name]}
    assert changed >= {"event", "customer", "alias", "raised", "usage_day", "usage_instance"}
