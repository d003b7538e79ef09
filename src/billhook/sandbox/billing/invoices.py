"""Invoices: issuing and keeping them. What becomes of one is in `approval` and `payments`.

Source: spec, "Resources and their fields", Invoice; "Endpoints", Invoices and POST /credits/top-up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

from sqlalchemy import func, select

from billhook.resources import BillingCycle, CreditGrant, Customer, RevenueBreakdown
from billhook.sandbox.billing import agenda, carrying_forward, contracts, currencies, customers
from billhook.sandbox.billing.contracts import KeptContract
from billhook.sandbox.billing.exact import EXACT, ZERO
from billhook.sandbox.billing.invoice_fields import KeptInvoice, ShownLine
from billhook.sandbox.billing.rating import Charge
from billhook.sandbox.storage.documents import as_document
from billhook.sandbox.storage.shelf import Shelf
from billhook.sandbox.storage.tables.billing import invoice
from billhook.sandbox.transaction import Transaction, new_id
from billhook.wire.statuses import BillingStatus

__all__ = ["INVOICES", "issue_cycle", "issue_top_up", "rewrite"]

INVOICES = Shelf(invoice, KeptInvoice, "inv")
_SUMS = ("total", "subtotal", "overage", "discount", "credits_used")


def issue_cycle(
    tx: Transaction, contract: KeptContract, cycle: tuple[datetime, datetime], charges: Sequence[Charge]
) -> KeptInvoice:
    """Issue the invoice for a cycle of a contract, with a line for each charge.

    It is for nothing where it would be below zero, and the contract's next one is less by the rest.
    """
    customer = customers.find(tx, contract.customer_id)
    start, end = cycle
    currency = currencies.of(contract, customer)
    brought = carrying_forward.take(tx, contract.id, currency)
    if brought:
        charges = [*charges, carrying_forward.line(carrying_forward.BROUGHT, brought.copy_negate())]
    rest = _total(charges, currencies.smallest(currency)).copy_negate()
    if rest > 0:
        carrying_forward.add(tx, contract.id, currency, rest)
        charges = [*charges, carrying_forward.line(carrying_forward.CARRIED, rest)]
    data = {
        "contractId": contract.id,
        "name": f"{contracts.name_of(contract)}, {start:%Y-%m-%d} to {end:%Y-%m-%d}",
        "billingCycle": as_document(BillingCycle(start_time=start, end_time=end)),
        "currency": currency,
        "isTrial": contract.is_trial is True,
        "paymentDays": contract.payment_days,
    }
    columns = {"kind": "cycle", "contract_id": contract.id, "cycle_start": start, "cycle_end": end}
    return _issue(tx, customer, data, charges, columns)


def issue_top_up(tx: Transaction, customer_id: str, grant: CreditGrant) -> str:
    """Issue a one-off invoice for credits; its id. They are granted when it is approved.

    Source: spec, "Endpoints", POST /credits/top-up.
    """
    customer = customers.find(tx, customer_id)
    currency = currencies.of(None, customer)
    nothing = ZERO.quantize(currencies.smallest(currency))
    with localcontext(EXACT):
        price = (grant.price or ZERO).quantize(nothing, ROUND_HALF_EVEN)
    name = grant.name or "Credits"
    charge = Charge(
        product_id=grant.credit_product_id or name,
        product_name=name,
        units=grant.grant_amount or ZERO,
        subtotal=price,
        discount=nothing,
        overage=nothing,
        credits_used=nothing,
        total=price,
    )
    data = {"name": name, "currency": currency, "isTrial": False}
    return _issue(tx, customer, data, [charge], {"kind": "topup"}).id


def rewrite(tx: Transaction, stored: KeptInvoice, changed: Mapping[int, Charge]) -> KeptInvoice:
    """Put these charges in the place of those lines of an invoice, which is not approved yet."""
    if stored.approved_at is not None:
        raise ValueError("an invoice that is approved stays as it is")
    smallest = currencies.smallest(stored.currency)
    lines = list(stored.line_items or [])
    for position, charge in changed.items():
        lines[position] = _line(stored.id, charge, smallest)
    lines = _carried_anew(tx, stored, lines, smallest)
    whole = _breakdown([line.revenue_breakdown for line in lines], smallest)
    changes = {
        "lineItems": [as_document(line) for line in lines],
        "revenueBreakdown": as_document(whole),
        "amount": whole.total,
    }
    return INVOICES.change(tx, stored, changes, amount=whole.total)


def _carried_anew(
    tx: Transaction, stored: KeptInvoice, lines: Sequence[ShownLine], smallest: Decimal
) -> list[ShownLine]:
    """The lines with what is carried forward by what they come to now."""
    before = [line for line in lines if _is_carried(line)]
    others = [line for line in lines if not _is_carried(line)]
    short_of = _total([line.revenue_breakdown for line in others], smallest).copy_negate()
    rest = max(short_of, ZERO.quantize(smallest))
    with localcontext(EXACT):
        more = rest - _total([line.revenue_breakdown for line in before], smallest)
    carrying_forward.add(tx, str(stored.contract_id), stored.currency, more)
    if rest > 0:
        others.append(_line(stored.id, carrying_forward.line(carrying_forward.CARRIED, rest), smallest))
    return others


def _is_carried(line: ShownLine) -> bool:
    return line.product_id is None and line.product_name == carrying_forward.CARRIED


def _issue(
    tx: Transaction,
    customer: Customer,
    data: Mapping[str, Any],
    charges: Sequence[Charge],
    columns: Mapping[str, Any],
) -> KeptInvoice:
    invoice_id = new_id("inv")
    number = _next_number(tx, tx.now.year)
    smallest = currencies.smallest(data["currency"])
    lines = [_line(invoice_id, charge, smallest) for charge in charges]
    whole = _breakdown(charges, smallest)
    known = {
        "customerId": customer.id,
        "accountId": tx.options.client_id,
        "invoiceNumber": f"{tx.now.year}-{number:04}",
        "issuedAt": tx.now,
        "billingStatus": BillingStatus.NONE.value,
        "revenueBreakdown": as_document(whole),
        "lineItems": [as_document(line) for line in lines],
        "amount": whole.total,
    }
    issued = INVOICES.add(
        tx,
        {**data, **known},
        resource_id=invoice_id,
        customer_id=customer.id,
        billing_status=BillingStatus.NONE.value,
        currency=data["currency"],
        amount=whole.total,
        amount_paid=ZERO,
        usd_rate=currencies.rate_of(tx, data["currency"]),
        issued_at=tx.now,
        year=tx.now.year,
        number=number,
        **columns,
    )
    agenda.add(tx, tx.now + tx.options.approve_after, "invoice_approval", issued.id)
    return issued


def _line(invoice_id: str, charge: Charge, smallest: Decimal) -> ShownLine:
    return ShownLine(
        invoice_id=invoice_id,
        revenue_breakdown=_breakdown([charge], smallest),
        product_id=charge.product_id or None,
        product_name=charge.product_name,
        units=charge.units,
    )


def _breakdown(charges: Sequence[Charge | RevenueBreakdown | None], smallest: Decimal) -> RevenueBreakdown:
    nothing = ZERO.quantize(smallest)
    with localcontext(EXACT):
        sums = {name: sum((getattr(each, name) for each in charges), nothing) for name in _SUMS}
    return RevenueBreakdown(**sums, tax=nothing)


def _total(charges: Sequence[Charge | RevenueBreakdown | None], smallest: Decimal) -> Decimal:
    return _breakdown(charges, smallest).total or ZERO


def _next_number(tx: Transaction, year: int) -> int:
    last = tx.connection.execute(select(func.max(invoice.c.number)).where(invoice.c.year == year)).scalar()
    return (last or 0) + 1
