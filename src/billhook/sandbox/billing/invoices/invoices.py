"""Invoices: issue them, store them, and carry negative totals forward.

An invoice below zero is issued for zero, and the rest reduces the contract's next one: what happens to it is
not specified. `approval` and `payments` change an invoice's state. Source: spec, "Resources and their
fields", Invoice; "Endpoints", Invoices and POST /credits/top-up; "Events", Overage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

from sqlalchemy import delete, func, insert, select

from billhook.events import Overage
from billhook.fields.types import BillingStatus
from billhook.resources import BillingCycle, CreditGrant, Customer, RevenueBreakdown
from billhook.sandbox.billing import customers, money, scheduled_jobs
from billhook.sandbox.billing.contracts import contracts
from billhook.sandbox.billing.contracts.cycles import ContractRecord
from billhook.sandbox.billing.invoices.invoice_records import InvoiceRecord, LineItemView
from billhook.sandbox.billing.money import EXACT, ZERO
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.storage.repository import Repository, to_document
from billhook.sandbox.storage.tables.billing import carried_forward, invoice
from billhook.sandbox.storage.transaction import Transaction, new_id
from billhook.sandbox.webhooks.outbox import raise_event

INVOICES = Repository(invoice, InvoiceRecord, "inv")
_SUMS = ("total", "subtotal", "overage", "discount", "credits_used")
BROUGHT_FORWARD = "Carried forward from an earlier invoice"
"""The line that reduces an invoice; it increases it if an earlier invoice was rewritten meanwhile."""
CARRIED_FORWARD = "Carried forward to the next invoice"
"""The line that raises a negative invoice to zero."""


def issue_cycle_invoice(
    tx: Transaction, contract: ContractRecord, cycle: tuple[datetime, datetime], charges: Sequence[Charge]
) -> InvoiceRecord:
    """Issue the invoice for a contract's billing cycle, with a line item for each charge.

    A total below zero is carried forward: the invoice is for zero, and the contract's next one is reduced.
    """
    customer = customers.find(tx, contract.customer_id)
    start, end = cycle
    currency = money.billing_currency(contract, customer)
    brought = bring_forward(tx, contract.id, currency)
    # The amount was negative on the earlier invoice, so its line reduces this one.
    if brought:
        charges = [
            *charges,
            adjustment(BROUGHT_FORWARD, brought.copy_negate()),
        ]
    rest = _total(charges, money.smallest_unit(currency)).copy_negate()
    if rest > 0:
        carry_forward(tx, contract.id, currency, rest)
        charges = [*charges, adjustment(CARRIED_FORWARD, rest)]
    data = {
        "contractId": contract.id,
        "name": f"{contracts.display_name(contract)}, {start:%Y-%m-%d} to {end:%Y-%m-%d}",
        "billingCycle": to_document(BillingCycle(start_time=start, end_time=end)),
        "currency": currency,
        "isTrial": contract.is_trial is True,
        "paymentDays": contract.payment_days,
    }
    columns = {"kind": "cycle", "contract_id": contract.id, "cycle_start": start, "cycle_end": end}
    return _issue(tx, customer, data, charges, columns)


def issue_top_up_invoice(tx: Transaction, customer_id: str, grant: CreditGrant) -> str:
    """Issue a one-off invoice for credits and return its id. Its approval grants the credits.

    Source: spec, "Endpoints", POST /credits/top-up.
    """
    customer = customers.find(tx, customer_id)
    currency = money.billing_currency(None, customer)
    zero = ZERO.quantize(money.smallest_unit(currency))
    with localcontext(EXACT):
        price = (grant.price or ZERO).quantize(zero, ROUND_HALF_EVEN)
    name = grant.name or "Credits"
    charge = Charge(
        product_id=grant.credit_product_id or name,
        product_name=name,
        units=grant.grant_amount or ZERO,
        subtotal=price,
        discount=zero,
        overage=zero,
        credits_used=zero,
        total=price,
    )
    data = {"name": name, "currency": currency, "isTrial": False}
    return _issue(tx, customer, data, [charge], {"kind": "topup"}).id


def replace_lines(tx: Transaction, stored: InvoiceRecord, changed: Mapping[int, Charge]) -> InvoiceRecord:
    """Replace line items, by position, of an invoice that is not approved yet."""
    # The customer has received it: late usage is charged on the next invoice.
    if stored.approved_at is not None:
        raise ValueError("an invoice that is approved stays as it is")
    smallest = money.smallest_unit(stored.currency)
    lines = list(stored.line_items or [])
    for position, charge in changed.items():
        lines[position] = _line(stored.id, charge, smallest)
    lines = _recarried_lines(tx, stored, lines, smallest)
    breakdown = _breakdown([line.revenue_breakdown for line in lines], smallest)
    changes = {
        "lineItems": [to_document(line) for line in lines],
        "revenueBreakdown": to_document(breakdown),
        "amount": breakdown.total,
    }
    return INVOICES.change(tx, stored, changes, amount=breakdown.total)


def _recarried_lines(
    tx: Transaction, stored: InvoiceRecord, lines: Sequence[LineItemView], smallest: Decimal
) -> list[LineItemView]:
    """Return the line items with the amount carried forward that their new total requires."""
    before = [line for line in lines if _is_carried(line)]
    others = [line for line in lines if not _is_carried(line)]
    short_of = _total([line.revenue_breakdown for line in others], smallest).copy_negate()
    # Only what is below zero is carried.
    rest = max(short_of, ZERO.quantize(smallest))
    with localcontext(EXACT):
        more = rest - _total([line.revenue_breakdown for line in before], smallest)
    # `more` may be negative: late usage has used up what was carried, so the next invoice is reduced by less.
    carry_forward(tx, str(stored.contract_id), stored.currency, more)
    if rest > 0:
        others.append(_line(stored.id, adjustment(CARRIED_FORWARD, rest), smallest))
    return others


def _is_carried(line: LineItemView) -> bool:
    return line.product_id is None and line.product_name == CARRIED_FORWARD


def _issue(
    tx: Transaction,
    customer: Customer,
    data: Mapping[str, Any],
    charges: Sequence[Charge],
    columns: Mapping[str, Any],
) -> InvoiceRecord:
    invoice_id = new_id("inv")
    # The year of the sandbox's clock, which the number shows as well.
    number = _next_number(tx, tx.now.year)
    smallest = money.smallest_unit(data["currency"])
    lines = [_line(invoice_id, charge, smallest) for charge in charges]
    breakdown = _breakdown(charges, smallest)
    known = {
        "customerId": customer.id,
        "accountId": tx.options.client_id,
        "invoiceNumber": f"{tx.now.year}-{number:04}",
        "issuedAt": tx.now,
        "billingStatus": BillingStatus.NONE.value,
        "revenueBreakdown": to_document(breakdown),
        "lineItems": [to_document(line) for line in lines],
        "amount": breakdown.total,
    }
    issued = INVOICES.add(
        tx,
        {**data, **known},
        resource_id=invoice_id,
        customer_id=customer.id,
        billing_status=BillingStatus.NONE.value,
        currency=data["currency"],
        amount=breakdown.total,
        amount_paid=ZERO,
        # Kept with the invoice: a later change of the rate does not revalue it.
        usd_rate=money.exchange_rate(tx, data["currency"]),
        issued_at=tx.now,
        year=tx.now.year,
        number=number,
        **columns,
    )
    scheduled_jobs.schedule(tx, tx.now + tx.options.approve_after, "invoice_approval", issued.id)
    return issued


def _line(invoice_id: str, charge: Charge, smallest: Decimal) -> LineItemView:
    return LineItemView(
        invoice_id=invoice_id,
        revenue_breakdown=_breakdown([charge], smallest),
        product_id=charge.product_id or None,
        product_name=charge.product_name,
        units=charge.units,
    )


def _breakdown(charges: Sequence[Charge | RevenueBreakdown | None], smallest: Decimal) -> RevenueBreakdown:
    zero = ZERO.quantize(smallest)
    with localcontext(EXACT):
        sums = {name: sum((getattr(each, name) for each in charges), zero) for name in _SUMS}
    return RevenueBreakdown(**sums, tax=zero)


def _total(charges: Sequence[Charge | RevenueBreakdown | None], smallest: Decimal) -> Decimal:
    return _breakdown(charges, smallest).total or ZERO


def _next_number(tx: Transaction, year: int) -> int:
    # Without gaps: a transaction that writes is alone, so no other takes the same number.
    last = tx.connection.execute(select(func.max(invoice.c.number)).where(invoice.c.year == year)).scalar()
    return (last or 0) + 1


def bring_forward(tx: Transaction, contract_id: str, currency: str) -> Decimal:
    """Return the amount carried forward to the contract's next invoice, and clear it."""
    amount = _carried_amount(tx, contract_id, currency)
    if amount:
        _delete_carried_amount(tx, contract_id, currency)
    return amount


def carry_forward(tx: Transaction, contract_id: str, currency: str, amount: Decimal) -> None:
    """Add `amount` to what is carried forward."""
    if amount:
        with localcontext(EXACT):
            total = _carried_amount(tx, contract_id, currency) + amount
        _delete_carried_amount(tx, contract_id, currency)
        values = {"contract_id": contract_id, "currency": currency, "amount": total}
        tx.connection.execute(insert(carried_forward).values(**values))


def adjustment(name: str, amount: Decimal) -> Charge:
    """Return a line item without a product."""
    # Keeps the exponent: 0.00 for dollars, 0 for yen.
    zero = amount * 0
    return Charge(
        product_id="",
        product_name=name,
        units=ZERO,
        subtotal=amount,
        discount=zero,
        overage=zero,
        credits_used=zero,
        total=amount,
    )


def _carried_amount(tx: Transaction, contract_id: str, currency: str) -> Decimal:
    carried = carried_forward.c
    kept = select(carried.amount).where(carried.contract_id == contract_id, carried.currency == currency)
    return tx.connection.execute(kept).scalar() or ZERO


def _delete_carried_amount(tx: Transaction, contract_id: str, currency: str) -> None:
    carried = carried_forward.c
    tx.connection.execute(
        delete(carried_forward).where(carried.contract_id == contract_id, carried.currency == currency)
    )


def raise_overage(tx: Transaction, invoice: InvoiceRecord, charge: Charge) -> None:
    """Emit Overage for a line item."""
    customer = customers.find(tx, str(invoice.customer_id))
    raise_event(
        tx,
        Overage(
            date=tx.now,
            overage_amount=charge.overage,
            invoice_id=invoice.id,
            customer_id=customer.id,
            customer_name=customer.name or customer.id,
            currency=invoice.currency,
        ),
    )
