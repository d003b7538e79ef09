"""What it costs to look at the usage of a batch: statements, which no load of the machine changes."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import event, select

from billhook.sandbox.billing import metered_items
from billhook.sandbox.storage.tables.usage import meter
from support.sandbox import Running
from support.scenarios import Customer, metered


def statements_for(sandbox: Running, changed: Collection[tuple[str, str]]) -> list[str]:
    """The statements that telling of this change takes."""
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    with sandbox.sandbox.service.transaction(writes=True) as tx:
        event.listen(tx.connection, "before_cursor_execute", note)
        metered_items.handle_usage_changed(tx, changed)
        event.remove(tx.connection, "before_cursor_execute", note)
    return statements


def meter_of(sandbox: Running, product: str) -> str:
    with sandbox.sandbox.service.transaction(writes=False) as tx:
        found = select(meter.c.id).where(meter.c.catalog_product_id == product)
        return str(tx.connection.execute(found).scalar_one())


def test_usage_of_a_thousand_customers_without_a_contract_is_one_look_up(sandbox: Running) -> None:
    calls = meter_of(sandbox, metered(sandbox))

    statements = statements_for(sandbox, {(f"cus_{n}", calls) for n in range(1000)})

    assert len(statements) == 1


def test_usage_is_looked_at_without_its_events_and_however_much_there_is(sandbox: Running) -> None:
    product = metered(sandbox)
    acme = Customer.of(sandbox)
    acme.buy({"catalogProductId": product, "commitment": {"units": 10**6}})
    changed = {(acme.id, meter_of(sandbox, product))}

    acme.use(1)
    few = statements_for(sandbox, changed)
    acme.use(*[1] * 1000)
    acme.use(*[1] * 1000)
    many = statements_for(sandbox, changed)

    assert len(few) == len(many) > 1
    assert not [statement for statement in many if "FROM event" in statement]
