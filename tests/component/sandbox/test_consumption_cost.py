"""What it costs to look at the usage of a batch: statements, which no load of the machine changes."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import event, select

from billhook.sandbox.billing import metered_items
from billhook.sandbox.storage.tables.usage import meter
from support.sandbox import Running, running
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


def test_usage_of_a_thousand_customers_without_a_contract_is_one_look_up() -> None:
    with running() as sandbox:
        calls = meter_of(sandbox, metered(sandbox))

        statements = statements_for(sandbox, {(f"cus_{n}", calls) for n in range(1000)})

    assert len(statements) == 1


def test_usage_that_did_not_change_is_no_look_up() -> None:
    with running() as sandbox:
        assert statements_for(sandbox, ()) == []


def test_usage_is_looked_at_without_its_events_and_however_much_there_is() -> None:
    with running() as sandbox:
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


def test_usage_of_one_product_reads_that_of_no_other() -> None:
    with running() as sandbox:
        products = [metered(sandbox, f"call{n}") for n in range(12)]
        one, all_of_them = Customer.of(sandbox, "one"), Customer.of(sandbox, "all")
        one.buy({"catalogProductId": products[0], "commitment": {"units": 10}})
        all_of_them.buy(*({"catalogProductId": each, "commitment": {"units": 10}} for each in products))
        calls = meter_of(sandbox, products[0])

        of_one = statements_for(sandbox, {(one.id, calls)})
        of_twelve = statements_for(sandbox, {(all_of_them.id, calls)})

    assert len(of_one) == len(of_twelve)


def test_another_contract_of_a_customer_costs_each_of_the_others_nothing() -> None:
    with running() as sandbox:
        product = metered(sandbox)
        acme = Customer.of(sandbox)
        changed = {(acme.id, meter_of(sandbox, product))}
        costs = []
        for _ in range(4):
            acme.buy({"catalogProductId": product, "commitment": {"units": 10}})
            costs.append(len(statements_for(sandbox, changed)))

    assert costs[3] - costs[2] == costs[2] - costs[1] > 0
