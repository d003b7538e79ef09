"""Invoices: issue them, store them, and carry negative totals forward.

An invoice below zero is issued for zero, and the rest reduces the contract's next one: what happens to it is
not specified. `invoice_lifecycle` changes an invoice's state. Source: spec, "Resources and their
fields", Invoice; "Endpoints", Invoices and POST /credits/top-up; "Events", Overage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

from sqlalchemy import func, select

from billhook.events import Overage
from billhook.fields.types import BillingStatus
from billhook.resources import BillingCycle, CreditGrant, Customer, RevenueBreakdown
from billhook.sandbox.billing import customers, money, scheduled_jobs
from billhook.sandbox.billing.contracts import contracts
from billhook.sandbox.billing.contracts.cycles import ContractRecord
from billhook.sandbox.billing.invoices.invoice_records import InvoiceRecord, LineItemRecord
from billhook.sandbox.billing.money import EXACT, ZERO, exact_sum
from billhook.sandbox.billing.rating import AMOUNTS, Charge, Unpaid, credit_charge
from billhook.sandbox.storage.repository import Repository, to_document
from billhook.sandbox.storage.tables.billing import invoice
from billhook.sandbox.storage.transaction import Transaction, new_id
from billhook.sandbox.webhooks.outbox import raise_event

INVOICES = Repository(invoice, InvoiceRecord, "inv")

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
    # What the contract's invoices have left to this one.
    of = invoice.c
    kept = select(of.carried).where(
        of.contract_id == contract.id, of.currency == currency, of.carried != ZERO
    )
    brought = exact_sum(tx.connection.scalars(kept))
    # The amount was negative on the earlier invoice, so its line reduces this one.
    if brought:
        charges = [*charges, Charge("", BROUGHT_FORWARD, ZERO, brought.copy_negate())]
    charges = [*charges, *_carried_forward(charges, money.smallest_unit(currency))]
    data = {
        "contractId": contract.id,
        "name": f"{contracts.display_name(contract)}, {start:%Y-%m-%d} to {end:%Y-%m-%d}",
        "billingCycle": to_document(BillingCycle(start_time=start, end_time=end)),
        "currency": currency,
        "isTrial": contract.is_trial is True,
        "paymentDays": contract.payment_days,
    }
    return _issue(tx, customer, data, charges, {"cycle_start": start, "cycle_end": end})


def issue_top_up_invoice(tx: Transaction, customer_id: str, grant: CreditGrant) -> str:
    """Issue a one-off invoice for credits and return its id. Its approval grants the credits.

    Source: spec, "Endpoints", POST /credits/top-up.
    """
    customer = customers.find(tx, customer_id)
    currency = money.billing_currency(None, customer)
    charge = credit_charge(grant, money.smallest_unit(currency))
    data = {"name": charge.product_name, "currency": currency, "isTrial": False}
    return _issue(tx, customer, {**data, "creditGrant": to_document(grant)}, [charge], {}).id


def add_to_lines(tx: Transaction, stored: InvoiceRecord, differences: Sequence[Charge]) -> InvoiceRecord:
    """Add differences to the line items of the same usage, of an invoice that is not approved yet."""
    # The customer has received it: late usage is charged on the next invoice.
    if stored.approved_at is not None:
        raise ValueError("an invoice that is approved stays as it is")
    smallest = money.smallest_unit(stored.currency)
    more = {(each.line_key, each.cycle): each for each in differences}
    charges = []
    for charge in map(charge_of, stored.line_items or ()):
        difference = more.get((charge.line_key, charge.cycle))
        # The amount that is carried forward follows from the others.
        if not _is_adjustment(charge, CARRIED_FORWARD):
            charges.append(charge if difference is None else charge.plus(difference))
    charges += _carried_forward(charges, smallest)
    breakdown = _breakdown(charges, smallest)
    changes = {
        "lineItems": [to_document(_line(stored.id, charge, smallest)) for charge in charges],
        "revenueBreakdown": to_document(breakdown),
        "amount": breakdown.total,
    }
    return INVOICES.change(tx, stored, changes, carried=_carried_by(charges))


def _issue(
    tx: Transaction,
    customer: Customer,
    data: Mapping[str, Any],
    charges: Sequence[Charge],
    columns: Mapping[str, Any],
) -> InvoiceRecord:
    invoice_id = new_id("inv")
    # Without gaps in a year: a transaction that writes is alone, so no other takes the same number.
    last = select(func.max(invoice.c.number)).where(invoice.c.year == tx.now.year)
    number = (tx.connection.execute(last).scalar() or 0) + 1
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
        carried=_carried_by(charges),
        # Kept with the invoice: a later change of the rate does not revalue it.
        usd_rate=money.check_currency(tx, data["currency"], "currency"),
        year=tx.now.year,
        number=number,
        **columns,
    )
    scheduled_jobs.schedule(tx, tx.now + tx.options.approve_after, "invoice_approval", issued.id)
    return issued


def _line(invoice_id: str, charge: Charge, smallest: Decimal) -> LineItemRecord:
    details: dict[str, Any] = {}
    if charge.cycle is not None:
        start, end = charge.cycle
        details = {
            "line_key": charge.line_key,
            "cycle": BillingCycle(start_time=start, end_time=end),
            "exceeded": charge.exceeded,
            "unpaid": {key: list(unpaid) for key, unpaid in charge.unpaid.items()},
        }
    return LineItemRecord(
        invoice_id=invoice_id,
        revenue_breakdown=_breakdown([charge], smallest),
        product_id=charge.product_id or None,
        product_name=charge.product_name,
        units=charge.units,
        **details,
    )


def charge_of(line: LineItemRecord) -> Charge:
    """Return the charge that a line item bills."""
    amounts, cycle = line.revenue_breakdown or RevenueBreakdown(), line.cycle or BillingCycle()
    return Charge(
        product_id=line.product_id or "",
        product_name=line.product_name or "",
        units=line.units or ZERO,
        **{name: getattr(amounts, name) for name in AMOUNTS},
        exceeded=line.exceeded,
        line_key=line.line_key,
        cycle=(cycle.start_time, cycle.end_time) if cycle.start_time and cycle.end_time else None,
        unpaid={key: Unpaid(*unpaid) for key, unpaid in line.unpaid.items()},
    )


def _breakdown(charges: Sequence[Charge], smallest: Decimal) -> RevenueBreakdown:
    zero = ZERO.quantize(smallest)
    with localcontext(EXACT):
        names = (*AMOUNTS, "total")
        sums = {name: sum((getattr(each, name) for each in charges), zero) for name in names}
    return RevenueBreakdown(**sums, tax=zero)


def _is_adjustment(charge: Charge, *names: str) -> bool:
    return not charge.product_id and charge.product_name in names


def _carried_forward(charges: Sequence[Charge], smallest: Decimal) -> list[Charge]:
    """Return the line that raises these charges to zero, if they are below it."""
    rest = _breakdown(charges, smallest).total or ZERO
    return [Charge("", CARRIED_FORWARD, ZERO, rest.copy_negate())] if rest < 0 else []


def _carried_by(charges: Sequence[Charge]) -> Decimal:
    """Return what an invoice leaves to later ones, less what it has taken over."""
    carried = [each for each in charges if _is_adjustment(each, BROUGHT_FORWARD, CARRIED_FORWARD)]
    return exact_sum(each.total for each in carried)


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
