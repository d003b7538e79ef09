"""What the cycles of a contract cost, and what of that is billed already.

All that belongs to a cycle is rated, whenever it arrived; what invoices have for it is subtracted, and the
difference is billed. The specification does not define late usage:

| usage arrives | it is billed by |
|---|---|
| before its cycle is billed | the invoice of the cycle |
| before that invoice is approved | the same invoice, which is rewritten |
| later | the contract's next invoice, or one at the month's end if none follows |

All else treats it as any usage: it draws credits when it arrives, and crosses the limits of its own cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import cast

from sqlalchemy import func, select

from billhook.fields.types import BillingStatus
from billhook.resources import BillingCycle
from billhook.sandbox.billing.contracts import contracts, customers
from billhook.sandbox.billing.credits import credit_grants
from billhook.sandbox.billing.invoicing import invoices
from billhook.sandbox.billing.invoicing.invoices import InvoiceRecord
from billhook.sandbox.billing.invoicing.line_items import ContractCycle
from billhook.sandbox.billing.invoicing.metered_items import ChangedCycle, settle, settle_all
from billhook.sandbox.billing.usage import cycles, daily_usage, meters, money
from billhook.sandbox.billing.usage.cycles import ContractRecord
from billhook.sandbox.billing.usage.daily_usage import TimeSpan, UsageKey, day_end, day_start
from billhook.sandbox.billing.usage.rating import Charge
from billhook.sandbox.storage.columns import in_texts
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.tables import contract as contract_table
from billhook.sandbox.storage.tables import invoice

Billed = Mapping[str, Charge]
"""What invoices have for the lines of a cycle, by the lines' keys."""


def statement(tx: Transaction, cycle: ContractCycle) -> list[Charge]:
    """Return the charges of a cycle that is not billed yet, and those for credits that the contract granted.

    Draws credits for usage that has not drawn them yet.
    """
    smallest = money.smallest_unit(cycle.contract.billed_in)
    # Credits have their own price: they are charged in lines of their own, whether used or not.
    granted = credit_grants.credit_charges(tx, cycle.contract, cycle.end, smallest)
    return [*_charges(tx, cycle, {}), *granted]


def late_charges(tx: Transaction, contract: ContractRecord, end: datetime) -> list[Charge]:
    """Return the differences for usage before `end` that arrived after the contract's last invoice."""
    newest = select(func.max(invoice.c.seq)).where(invoice.c.contract_id == contract.id)
    number = tx.scalar(newest)
    if number is None:
        return []
    since = daily_usage.first_change(tx, contract.customer_id, number, end)
    if since is None:
        return []
    found = []
    for cycle, billed in _billed(tx, contract.id, since).items():
        span = f"late usage of {cycle[0]:%Y-%m-%d} to {cycle[1]:%Y-%m-%d}"
        for _, difference in _differences(tx, ContractCycle(contract, *cycle), billed):
            found.append(replace(difference, product_name=f"{difference.product_name}, {span}"))
    return found


def contracts_with_late_usage(tx: Transaction) -> list[ContractRecord]:
    """Return the contracts that get no further invoice and have usage that came after their last one."""
    columns = contract_table.c
    # A contract that is active gets another invoice, which bills it.
    over = (columns.status != "Active") | columns.deleted_at.is_not(None)
    newest = select(func.max(invoice.c.seq)).where(invoice.c.contract_id == columns.id)
    # Correlated by hand: SQLAlchemy looks at the next outer query only.
    number = newest.correlate(contract_table).scalar_subquery()
    return contracts.CONTRACTS.all(tx, over, daily_usage.changed_after(columns.customer_id, number))


def settle_present(tx: Transaction, contract: ContractRecord) -> None:
    """Emit the events for usage in the contract's present cycle, and draw credits for it."""
    # An Inactive customer is neither metered nor billed: no events, no credits drawn.
    if not customers.inactive_customers(tx, [contract.customer_id]):
        settle(tx, ContractCycle(contract, *cycles.cycle_at(contract, tx.now)))


def handle_usage_changed(tx: Transaction, changed: Collection[UsageKey]) -> None:
    """Handle changed rows of daily usage, whenever that usage was.

    Emit the events of each cycle that it belongs to, and draw credits for it, so that late usage is charged
    only for the rest. Then rewrite the cycles' invoices that are not approved yet. It costs one query if no
    customer has a contract, and rates only the products that the meters measure.
    """
    if not changed:
        return
    days = [day for _, _, day, _ in changed]
    owners = {customer_id for customer_id, *_ in changed}
    found = contracts.ever_in_force(tx, owners, day_start(min(days)), day_end(max(days)))
    if not found:
        return
    inactive = customers.inactive_customers(tx, owners)
    product_of = meters.products_of(tx, {meter_id for _, meter_id, *_ in changed})
    unsettled = []
    for contract in found:
        if contract.customer_id in inactive:
            continue
        own = {
            (product_of[meter_id], day)
            for owner, meter_id, day, _ in changed
            if owner == contract.customer_id and meter_id in product_of
        }
        products = {product_id for product_id, _ in own}
        spans = _cycles_of_days(tx, contract, {day for _, day in own})
        past = [each for each in spans if each[1] <= tx.now]
        billed = _billed(tx, contract.id, min(past)[0]) if past else {}
        for span in spans:
            # A cycle that is over without a bill is never billed: its customer was Inactive.
            if span[1] > tx.now or span in billed:
                cycle = ContractCycle(contract, *span)
                unsettled.append(ChangedCycle(cycle, products, billed.get(span, {}).values()))
    settle_all(tx, unsettled)
    rewrite_drafts(tx, owners, day_start(min(days)))


def _cycles_of_days(tx: Transaction, contract: ContractRecord, days: Collection[int]) -> list[TimeSpan]:
    """Return the cycles, begun by now, whose amounts depend on the usage of these days, the oldest first.

    These are the cycles of the days, and as many later ones as may share a commitment with them.
    """
    start, end = contracts.term(contract)
    sold = contracts.sold_products(tx, contract) if days else ()
    commitments = [
        part.commitment for each in sold for part in (each.product, each.group) if part is not None
    ]
    period = cycles.cycle_period(contract)
    shared = max((cycles.commitment_cycles(each, period) for each in commitments), default=1)
    found = set[TimeSpan]()
    for day in days:
        first, last = max(day_start(day), start), day_end(day)
        if not first <= last or first >= end:
            continue
        later, cycle = 0, cycles.cycle_at(contract, first)
        while cycle[0] <= tx.now and later < shared:
            found.add(cycle)
            if cycle[1] >= end:
                break
            cycle = cycles.cycle_at(contract, cycle[1])
            later += cycle[0] > last
    return sorted(found)


def rewrite_drafts(tx: Transaction, customer_ids: Collection[str], since: datetime) -> None:
    """Rewrite the invoices that are not approved, of cycles that end after `since`.

    It costs one query if all of these cycles are still to be billed. Emits Overage for a product whose usage
    has gone beyond its commitment.
    """
    drafts_of_all = invoices.INVOICES.all(
        tx,
        in_texts(invoice.c.customer_id, customer_ids),
        invoice.c.billing_status == BillingStatus.NONE.value,
        invoice.c.cycle_end > since,
    )
    for (contract_id, start, end), found in groupby(sorted(drafts_of_all, key=_cycle_of), _cycle_of):
        # A cycle can have several invoices (issuedSeparately), and one of them may be approved.
        # The keys of the lines that each of them bills for its own cycle.
        drafts = [
            (each, {str(charge.line_key) for charge in each.charges if charge.cycle == (start, end)})
            for each in found
        ]
        keys = set().union(*(keys for _, keys in drafts))
        billed = _billed(tx, contract_id, start).get((start, end), {})
        cycle = ContractCycle(contracts.CONTRACTS.get(tx, contract_id), start, end)
        differences = list(_differences(tx, cycle, {key: billed[key] for key in keys}))
        for draft, own in drafts:
            mine = [(charge, difference) for charge, difference in differences if charge.line_key in own]
            if mine:
                rewritten = invoices.add_to_lines(tx, draft, [difference for _, difference in mine])
                for charge, difference in mine:
                    if difference.exceeded:
                        invoices.raise_overage(tx, rewritten, charge)


def _cycle_of(billed: InvoiceRecord) -> tuple[str, datetime, datetime]:
    cycle = cast("BillingCycle", billed.billing_cycle)
    return str(billed.contract_id), cast("datetime", cycle.start_time), cast("datetime", cycle.end_time)


def _billed(tx: Transaction, contract_id: str, since: datetime) -> Mapping[TimeSpan, Billed]:
    """Return what a contract's invoices have for each cycle that ends after `since`, the oldest first."""
    cycles: dict[TimeSpan, dict[str, Charge]] = {}
    where = invoice.c.contract_id == contract_id, invoice.c.cycle_end > since
    for each in invoices.INVOICES.all(tx, *where):
        for charge in each.charges:
            if charge.cycle is not None and charge.cycle[1] > since:
                billed, key = cycles.setdefault(charge.cycle, {}), str(charge.line_key)
                billed[key] = billed[key].plus(charge) if key in billed else charge
    return dict(sorted(cycles.items()))


def _differences(tx: Transaction, cycle: ContractCycle, billed: Billed) -> Iterator[tuple[Charge, Charge]]:
    """Yield what the lines cost, each with its difference to what is billed for it, where there is one."""
    for charge in _charges(tx, cycle, billed) if billed else ():
        difference = charge.minus(billed[str(charge.line_key)])
        if not difference.is_zero:
            yield charge, difference


def _charges(tx: Transaction, cycle: ContractCycle, billed: Billed) -> list[Charge]:
    """Return what the lines of a cycle cost at the usage of now; of those that are billed, if any are.

    Draws credits for usage that neither credits nor invoices have paid for.
    """
    smallest, found = money.smallest_unit(cycle.contract.billed_in), []
    for line in settle(tx, cycle, billed=billed.values()):
        if billed and line.key not in billed:
            continue
        # After all credits are drawn: what is left belongs to the invoice.
        unpaid = {
            usage.key: usage.priced.unpaid()
            for usage in line.usages
            if usage.sold.product.consumes_credit_product_ids
        }
        found.append(replace(line.charge(smallest), cycle=(cycle.start, cycle.end), unpaid=unpaid))
    return found
