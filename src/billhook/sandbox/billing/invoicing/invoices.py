"""Invoices: their fields and pages; issue them, store them, and carry negative totals forward.

An invoice below zero is issued for zero, and the rest reduces the contract's next one, or the customer's if
the contract is over: what happens to it is not specified. `invoice_lifecycle` changes an invoice's state. An
invoice's page is for people: it needs no credentials, but only its link opens it. Source: spec, "Resources
and their fields", Invoice; "Endpoints", Invoices and POST /credits/top-up; "Events", Overage; invoicePdfUrl
of InvoicePaymentStatusChanged.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Annotated, Any

from pydantic import Field, StrictStr
from sqlalchemy import func, select, update

from billhook.events import Overage
from billhook.fields.types import BillingStatus, ExactDecimal, Integer, ListOf, MaybeListOf, UtcDatetime
from billhook.resources import (
    READ_ONLY,
    WRITE_ONLY,
    BillingCycle,
    CountedPage,
    CreditGrant,
    Invoice,
    LineItem,
    RevenueBreakdown,
)
from billhook.sandbox import scheduled_jobs, tokens
from billhook.sandbox.billing.contracts import contracts, customers
from billhook.sandbox.billing.usage import money
from billhook.sandbox.billing.usage.cycles import ContractRecord
from billhook.sandbox.billing.usage.money import EXACT, ZERO, exact_sum
from billhook.sandbox.billing.usage.rating import AMOUNTS, Charge, credit_charge
from billhook.sandbox.operations import SandboxResource
from billhook.sandbox.storage.database import Transaction, new_id
from billhook.sandbox.storage.repository import Repository, to_document
from billhook.sandbox.storage.tables import contract as contract_table
from billhook.sandbox.storage.tables import invoice
from billhook.sandbox.webhooks.outbox import raise_event

PAGES_PATH = "/_sandbox/pages/invoices"
"""The path under which the pages are."""
_PROOF_CHARACTERS = 40  # 160 bits, in hexadecimal
BROUGHT_FORWARD = "Carried forward from an earlier invoice"
"""The line that reduces an invoice; it increases it if an earlier invoice was rewritten meanwhile."""
CARRIED_FORWARD = "Carried forward to the next invoice"
"""The line that raises a negative invoice to zero."""
EXPIRED = "Expired before the approval"
"""The line that reduces a top-up's invoice to zero when its credits have expired."""


class LineItemView(LineItem, SandboxResource, register=False):
    """A line item with its product."""

    product_id: Annotated[StrictStr | None, Field(examples=["cat_31"])] = None
    """Id of the product. The sandbox's own: the specification does not list it."""
    product_name: Annotated[StrictStr | None, Field(examples=["API calls"])] = None
    """Name of the product. The sandbox's own: the specification does not list it."""
    units: Annotated[ExactDecimal | None, Field(examples=[Decimal(10000)])] = None
    """Units used. The sandbox's own: the specification does not list it."""


class InvoiceView(Invoice, SandboxResource, register=False):
    """An invoice as the sandbox shows it."""

    line_items: Annotated[MaybeListOf[LineItemView], READ_ONLY] = None  # type: ignore[assignment]
    """Line items."""
    invoice_number: Annotated[StrictStr, READ_ONLY, Field(examples=["2026-0117"])]
    """Invoice number: year, and number within it. The sandbox's own: the specification does not list it."""
    currency: Annotated[StrictStr, READ_ONLY, Field(examples=["USD"])]
    """Currency code. The sandbox's own: the specification does not list it."""
    issued_at: Annotated[UtcDatetime, READ_ONLY, Field(examples=["2026-02-01T00:00:00Z"])]
    """Time of issue. The sandbox's own: the specification does not list it."""
    approved_at: Annotated[UtcDatetime | None, READ_ONLY, Field(examples=["2026-02-02T00:00:00Z"])] = None
    """Time of approval; null before. The sandbox's own: the specification does not list it."""


class LineItemRecord(LineItemView, register=False):
    """A line item as it is stored: with what it bills, so that later usage is charged as a difference."""

    charge: Annotated[Charge, WRITE_ONLY]


class InvoiceRecord(InvoiceView, SandboxResource, register=False):
    """An invoice as it is stored, with fields that the API does not show."""

    line_items: Annotated[MaybeListOf[LineItemRecord], READ_ONLY] = None  # type: ignore[assignment]
    """Line items."""
    payment_days: Annotated[Integer | None, WRITE_ONLY] = None
    """Days until payment is due, from the contract."""
    credit_grant: Annotated[CreditGrant | None, WRITE_ONLY] = None
    """The credits of a top-up, granted at the approval."""
    amount_paid: Annotated[ExactDecimal, WRITE_ONLY] = ZERO
    """The amount paid so far."""

    @property
    def charges(self) -> list[Charge]:
        """What its line items bill."""
        return [line.charge for line in self.line_items or ()]

    @property
    def amount_due(self) -> Decimal:
        """The amount that is still to be paid."""
        with localcontext(EXACT):
            return (self.amount or ZERO) - self.amount_paid


class InvoiceResponseView(SandboxResource, register=False):
    """One invoice."""

    invoice: InvoiceView
    """The invoice."""


class InvoicePageView(CountedPage, SandboxResource, register=False):
    """A page of invoices."""

    invoices: ListOf[InvoiceView]
    """The invoices of this page."""


def page_url(tx: Transaction, invoice_id: str) -> str | None:
    """Return the URL of an invoice's page; None if the sandbox's base URL is not configured."""
    base_url = tx.options.base_url
    if base_url is None:
        return None
    return f"{base_url.rstrip('/')}{page_path(tx, invoice_id)}"


def page_path(tx: Transaction, invoice_id: str) -> str:
    """Return the address of an invoice's page in this sandbox."""
    return f"{PAGES_PATH}/{invoice_id}/{_proof(tx, invoice_id)}"


def is_valid_proof(tx: Transaction, invoice_id: str, proof: str) -> bool:
    """Return whether `proof` is that of a link from `page_url`. Compares in constant time."""
    return hmac.compare_digest(_proof(tx, invoice_id).encode(), proof.encode("utf-8", "surrogateescape"))


def _proof(tx: Transaction, invoice_id: str) -> str:
    # The prefix keeps this use of the key apart from that for access tokens.
    text = f"invoice page {invoice_id}".encode()
    return hmac.new(tokens.jwt_key(tx), text, hashlib.sha256).hexdigest()[:_PROOF_CHARACTERS]


INVOICES = Repository(invoice, InvoiceRecord, "inv")


def of_cycles_ending(tx: Transaction, contract_id: str, end: datetime) -> list[InvoiceRecord]:
    """Return the invoices of a contract for its cycle that ended at this moment."""
    return INVOICES.all(tx, invoice.c.contract_id == contract_id, invoice.c.cycle_end == end)


def billed_cycle_ends(tx: Transaction, contract_id: str) -> set[datetime]:
    """Return the ends of a contract's cycles that have an invoice."""
    return set(tx.scalars(select(invoice.c.cycle_end).where(invoice.c.contract_id == contract_id)))


def issue_cycle_invoice(
    tx: Transaction, contract: ContractRecord, cycle: tuple[datetime, datetime], charges: Sequence[Charge]
) -> None:
    """Issue the invoice for a contract's billing cycle, with a line item for each charge.

    A total below zero is carried forward: the invoice is for zero, and a later one is reduced.
    Emits Overage for each charge beyond a commitment.
    """
    start, end = cycle
    own, of_others = _carried_to(tx, contract)
    brought = exact_sum([own, of_others])
    # The amount was negative on the earlier invoice, so its line reduces this one.
    if brought:
        charges = [*charges, Charge("", BROUGHT_FORWARD, ZERO, brought.copy_negate())]
    charges = [*charges, *_carried_forward(charges, contract.billed_in)]
    data = {
        "contractId": contract.id,
        "name": f"{contracts.display_name(contract)}, {start:%Y-%m-%d} to {end:%Y-%m-%d}",
        "billingCycle": to_document(BillingCycle(start_time=start, end_time=end)),
        "currency": contract.billed_in,
        "isTrial": contract.is_trial is True,
        "paymentDays": contract.payment_days,
    }
    # From now on this contract carries forward what another contract has left.
    carried = exact_sum([_carried_by(charges), of_others])
    issued = _issue(
        tx, contract.customer_id, data, charges, cycle_start=start, cycle_end=end, carried=carried
    )
    for charge in charges:
        if charge.exceeded:
            raise_overage(tx, issued, charge)


def issue_top_up_invoice(tx: Transaction, customer_id: str, grant: CreditGrant) -> str:
    """Issue a one-off invoice for credits and return its id. Its approval grants the credits.

    Source: spec, "Endpoints", POST /credits/top-up.
    """
    currency = money.billing_currency(None, customers.find(tx, customer_id))
    charge = credit_charge(grant, money.smallest_unit(currency))
    data = {"name": charge.product_name, "currency": currency, "isTrial": False}
    return _issue(tx, customer_id, {**data, "creditGrant": to_document(grant)}, [charge], carried=ZERO).id


def void_top_up(tx: Transaction, stored: InvoiceRecord) -> InvoiceRecord:
    """Reduce the invoice of a top-up to 0: its credits have expired, so that it is never approved."""
    rebate = Charge("", EXPIRED, ZERO, stored.amount_due.copy_negate())
    return _store_charges(tx, stored, [*stored.charges, rebate])


def _carried_to(tx: Transaction, contract: ContractRecord) -> tuple[Decimal, Decimal]:
    """Return what earlier invoices have left to this contract's next one: its own, and those of others.

    A contract that is over leaves it to the customer's next invoice, whichever contract that is for. It has
    nothing left afterwards.
    """
    of, contracts_of = invoice.c, contract_table.c
    over = select(contracts_of.id).where(
        contracts_of.customer_id == contract.customer_id,
        contracts_of.id != contract.id,
        (contracts_of.status != "Active") | contracts_of.deleted_at.is_not(None),
    )
    left = of.customer_id == contract.customer_id, of.currency == contract.billed_in, of.carried != ZERO
    own = tx.scalars(select(of.carried).where(*left, of.contract_id == contract.id)).all()
    of_others = tx.scalars(select(of.carried).where(*left, of.contract_id.in_(over))).all()
    tx.execute(update(invoice).where(*left, of.contract_id.in_(over)).values(carried=ZERO))
    return exact_sum(own), exact_sum(of_others)


def add_to_lines(tx: Transaction, stored: InvoiceRecord, differences: Sequence[Charge]) -> InvoiceRecord:
    """Add differences to the line items of the same usage, of an invoice that is not approved yet."""
    more = {(each.line_key, each.cycle): each for each in differences}
    charges = []
    for charge in stored.charges:
        difference = more.get((charge.line_key, charge.cycle))
        # The amount that is carried forward follows from the others.
        if not _is_adjustment(charge, CARRIED_FORWARD):
            charges.append(charge if difference is None else charge.plus(difference))
    return _store_charges(tx, stored, [*charges, *_carried_forward(charges, stored.currency)])


def _store_charges(tx: Transaction, stored: InvoiceRecord, charges: Sequence[Charge]) -> InvoiceRecord:
    """Store an invoice with these charges in place of its own."""
    with localcontext(EXACT):
        # The difference: another contract's invoice may have taken over what there was.
        more = _carried_by(charges) - _carried_by(stored.charges)
        carried = tx.scalars(select(invoice.c.carried).where(invoice.c.id == stored.id)).one() + more
    return INVOICES.change(tx, stored, _billing(stored.id, charges, stored.currency), carried=carried)


def _issue(
    tx: Transaction, customer_id: str, data: Mapping[str, Any], charges: Sequence[Charge], **columns: Any
) -> InvoiceRecord:
    invoice_id = new_id("inv")
    # Without gaps in a year: a transaction that writes is alone, so no other takes the same number.
    last = select(func.max(invoice.c.number)).where(invoice.c.year == tx.now.year)
    number = (tx.scalar(last) or 0) + 1
    known = {
        "customerId": customer_id,
        "accountId": tx.options.client_id,
        "invoiceNumber": f"{tx.now.year}-{number:04}",
        "issuedAt": tx.now,
        "billingStatus": BillingStatus.NONE.value,
        **_billing(invoice_id, charges, data["currency"]),
    }
    issued = INVOICES.add(
        tx,
        {**data, **known},
        resource_id=invoice_id,
        # Kept with the invoice: a later change of the rate does not revalue it.
        usd_rate=money.check_currency(tx, data["currency"]),
        year=tx.now.year,
        number=number,
        **columns,
    )
    # Credits that expire earlier are never granted: their invoice is voided then.
    grant, due_at = issued.credit_grant, tx.now + tx.options.approve_after
    if grant is not None and grant.expiration_date is not None:
        due_at = min(due_at, grant.expiration_date)
    scheduled_jobs.schedule(tx, due_at, "invoice_approval", issued.id)
    return issued


def _billing(invoice_id: str, charges: Sequence[Charge], currency: str) -> dict[str, Any]:
    """Return the fields of an invoice that say what it bills."""
    lines = [
        LineItemRecord(
            invoice_id=invoice_id,
            revenue_breakdown=_breakdown([charge], currency),
            product_id=charge.product_id or None,
            product_name=charge.product_name,
            units=charge.units,
            charge=charge,
        )
        for charge in charges
    ]
    breakdown = _breakdown(charges, currency)
    return {
        "lineItems": [to_document(line) for line in lines],
        "revenueBreakdown": to_document(breakdown),
        "amount": breakdown.total,
    }


def _breakdown(charges: Sequence[Charge], currency: str) -> RevenueBreakdown:
    zero = ZERO.quantize(money.smallest_unit(currency))
    with localcontext(EXACT):
        names = (*AMOUNTS, "total")
        sums = {name: sum((getattr(each, name) for each in charges), zero) for name in names}
    return RevenueBreakdown(**sums, tax=zero)


def _is_adjustment(charge: Charge, *names: str) -> bool:
    return not charge.product_id and charge.product_name in names


def _carried_forward(charges: Sequence[Charge], currency: str) -> list[Charge]:
    """Return the line that raises these charges to zero, if they are below it."""
    rest = _breakdown(charges, currency).total or ZERO
    return [Charge("", CARRIED_FORWARD, ZERO, rest.copy_negate())] if rest < 0 else []


def _carried_by(charges: Sequence[Charge]) -> Decimal:
    """Return what an invoice leaves to later ones, less what it has taken over."""
    carried = [each for each in charges if _is_adjustment(each, BROUGHT_FORWARD, CARRIED_FORWARD)]
    return exact_sum(each.total for each in carried)


def raise_overage(tx: Transaction, invoice: InvoiceRecord, charge: Charge) -> None:
    """Emit Overage for a line item."""
    customer = customers.find(tx, str(invoice.customer_id))
    event = Overage(
        date=tx.now,
        overage_amount=charge.overage,
        invoice_id=invoice.id,
        customer_id=customer.id,
        customer_name=customer.name or customer.id,
        currency=invoice.currency,
    )
    raise_event(tx, event)
