"""What a batch costs: statements, which no load of the machine changes. Source: spec, "Limits"."""

from __future__ import annotations

import json

from sqlalchemy import event as hook

from billhook.sandbox.billing.ingestion import RawEventBatch, ingest
from support.sandbox import Running


def statements_for(sandbox: Running, name: str, count: int, days: int) -> list[str]:
    """The statements that it takes to store a batch of `count` events."""
    events = [
        {
            "name": "api_call",
            "timestamp": f"2026-01-{1 + n % days:02}T09:00:00Z",
            "customerAlias": f"customer-{n % 20}",
            "ref": f"{name}-{n}",
            "data": {"units": n, "host": f"vm-{n}"},
        }
        for n in range(count)
    ]
    batch = RawEventBatch.from_json(json.dumps({"events": events}, separators=(",", ":")).encode())
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    with sandbox.sandbox.service.transaction(writes=True) as tx:
        hook.listen(tx.connection, "before_cursor_execute", note)
        taken = ingest(tx, batch).accepted
        hook.remove(tx.connection, "before_cursor_execute", note)
    assert len(taken) == count
    return statements


def test_a_thousand_events_take_as_many_statements_as_ten(sandbox: Running) -> None:
    for method, property_ in (("sum", "units"), ("unique", "host")):
        meter = {"name": method, "eventName": "api_call", "aggregationMethod": method, "property": property_}
        sandbox.ok("POST", "/_sandbox/meters", meter)

    new = statements_for(sandbox, "new", 20, days=1)
    few = statements_for(sandbox, "few", 20, days=1)
    many = statements_for(sandbox, "many", 1000, days=28)

    assert len(few) == len(many) < 14
    assert len(new) > len(few)  # the control: new aliases take more, so the count can change
