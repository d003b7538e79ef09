"""Credit pools and their ledger. One function makes every change of a balance, with its entry and events.

Source: spec, "Resources and their fields", Credit ledger entry; "Events", the three on credit pools.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import ROUND_DOWN, Decimal, localcontext
from typing import Annotated, Any

from pydantic import Field, StrictStr
from sqlalchemy import BigInteger, ColumnElement, Row, func, insert, select, update

from billhook.events import CreditPoolDepleted, CreditPoolIncreased, CreditPoolThresholdCrossed
from billhook.fields.types import ListOf
from billhook.resources import CreditGrant, CreditLedgerEntry, CreditLedgerPage, CreditLedgerQuery
from billhook.sandbox.billing.usage.money import EXACT, ZERO, exact_sum
from billhook.sandbox.billing.usage.rating import UsageAmount
from billhook.sandbox.billing.usage.thresholds import percent, threshold_rules, thresholds_crossed
from billhook.sandbox.operations import SandboxResource
from billhook.sandbox.storage.columns import in_texts
from billhook.sandbox.storage.database import Transaction, new_id
from billhook.sandbox.storage.repository import requested_page, shown
from billhook.sandbox.storage.tables import credit_draw, credit_lot, credit_pool, invoice, ledger_entry
from billhook.sandbox.webhooks.outbox import raise_event

EXPIRY = "Expiry"
"""The type of a ledger entry for credits that were not used in time."""
REVERSAL = "Reversal"
"""The type of a ledger entry for credits that go back: the usage that they paid for is not there any more."""
_WHOLE = Decimal(100)
_SHARE_PRECISION = Decimal("1E-30")
_NOTED = ("Deduction", EXPIRY)
"""Types of entries with a credit note: credits that were removed without usage."""
_READ = select(ledger_entry, credit_pool.c.credit_product_id).join(
    credit_pool, credit_pool.c.id == ledger_entry.c.pool_id
)
CreditPool = Row[Any]
"""A row of the table of pools: a customer's credits of one credit product and one kind."""


@dataclass(frozen=True, slots=True)
class LedgerReference:
    """What a ledger entry belongs to, by the columns of its table."""

    contract_id: str | None = None
    invoice_id: str | None = None
    product_key: str | None = None
    """The product and the cycle whose usage it pays for."""
    cycle_start: datetime | None = None
    grant_number: int | None = None
    """The number of the contract's grant, and when it was due."""
    grant_due_at: datetime | None = None


def customer_pools(tx: Transaction, customer_id: str, credit_product_ids: Sequence[str]) -> list[CreditPool]:
    """Return the customer's pools of these credit products, in the order of the products."""
    # Most products consume no credits, and are rated often.
    if not credit_product_ids:
        return []
    of = credit_pool.c
    own = of.customer_id == customer_id, in_texts(of.credit_product_id, credit_product_ids)
    rows = tx.execute(select(credit_pool).where(*own).order_by(of.seq))
    return sorted(rows, key=lambda pool: credit_product_ids.index(pool.credit_product_id))


def add_lot(
    tx: Transaction, pool_key: tuple[str, str, str], credit_grant: CreditGrant, link: LedgerReference
) -> tuple[str, str]:
    """Add a lot of credits to the pool (customer id, credit product id, kind); return lot id and entry id.

    The pool is created if necessary. Emits CreditPoolIncreased.
    """
    lot_id, amount = new_id("lot"), credit_grant.grant_amount or ZERO
    columns = dict(zip(("customer_id", "credit_product_id", "kind"), pool_key, strict=True))
    pool = tx.execute(select(credit_pool).filter_by(**columns)).first()
    if pool is None:
        empty = {"balance": ZERO, "filled_to": ZERO, "told_share": ZERO}
        made = insert(credit_pool).values(id=new_id("pool"), **columns, **empty)
        pool = tx.execute(made.returning(credit_pool)).one()
    tx.execute(
        insert(credit_lot).values(
            id=lot_id,
            pool_id=pool.id,
            contract_id=link.contract_id,
            remaining=amount,
            expires_at=credit_grant.expiration_date,
            automatic=credit_grant.apply_automatically is not False,
            price_due_at=link.grant_due_at if credit_grant.price else None,
        )
    )
    return lot_id, _change_balance(tx, pool, "Grant", amount, link)


def open_lots(tx: Transaction, *where: ColumnElement[bool]) -> list[Row[Any]]:
    """Return the rows of lots with credits left, the first to expire first."""
    expires_at = credit_lot.c.expires_at
    found = tx.execute(
        select(credit_lot)
        .join(credit_pool, credit_pool.c.id == credit_lot.c.pool_id)
        .where(credit_lot.c.remaining != ZERO, *where)
        # Credits that expire first are used first; those without an end last.
        .order_by(expires_at.is_(None), expires_at, credit_lot.c.seq)
    )
    return list(found.all())


def usage_paid(tx: Transaction, product_key: str, cycle_start: datetime) -> UsageAmount:
    """Return what credits have paid for a product's usage in a cycle."""
    draws = _draws(tx, credit_draw.c.product_key == product_key, credit_draw.c.cycle_start == cycle_start)
    units, money = (
        exact_sum(draw.amount for draw in draws if draw.kind == kind) for kind in ("Unit", "Monetary")
    )
    return UsageAmount(units, money)


def draw_for_usage(tx: Transaction, pool: CreditPool, amount: Decimal, link: LedgerReference) -> Decimal:
    """Draw up to `amount` for usage from lots that apply automatically; return the amount drawn."""
    if amount <= 0 or pool.balance <= 0:
        return ZERO
    lots = open_lots(tx, credit_lot.c.pool_id == pool.id, credit_lot.c.automatic.is_(True))
    return exact_sum(take_from_lots(tx, lots, amount, "Usage", link).values())


def reverse_draws(tx: Transaction, link: LedgerReference, amount: UsageAmount) -> set[str]:
    """Reverse `amount` of what a product's usage has drawn in a cycle, of each kind; return the lots.

    The lots keep their ends, and those that were drawn last get their credits first.
    """
    of = credit_draw.c
    draws = _draws(tx, of.product_key == link.product_key, of.cycle_start == link.cycle_start)
    return {
        lot_id
        for kind, part in (("Unit", amount.units), ("Monetary", amount.money))
        for lot_id in _reverse(tx, [draw for draw in draws if draw.kind == kind], part)
    }


def reverse_cycles(tx: Transaction, contract_id: str, start: datetime, end: datetime) -> set[str]:
    """Reverse all that a contract's usage has drawn in cycles that are not billed; return the lots.

    In those that begin from `start` to before `end`.
    """
    of = credit_draw.c
    draws = _draws(tx, of.contract_id == contract_id, of.cycle_start >= start, of.cycle_start < end)
    return _reverse(tx, draws, exact_sum(draw.amount for draw in draws))


def expire_lots(tx: Transaction, lot_ids: Collection[str]) -> None:
    """Expire what is left of these lots where their end is past: it went back too late to be used again."""
    if lot_ids:
        lots = open_lots(tx, in_texts(credit_lot.c.id, lot_ids), credit_lot.c.expires_at <= tx.now)
        take_from_lots(tx, lots, exact_sum(lot.remaining for lot in lots), EXPIRY, LedgerReference())


def _draws(tx: Transaction, *where: ColumnElement[bool]) -> Sequence[Row[Any]]:
    """Return rows of draws with columns of lot and pool, the last to expire first, unlike `open_lots`."""
    expires_at = credit_lot.c.expires_at
    return tx.execute(
        select(credit_draw, credit_lot.c.remaining, credit_lot.c.pool_id, credit_pool.c.kind)
        .join(credit_lot, credit_lot.c.id == credit_draw.c.lot_id)
        .join(credit_pool, credit_pool.c.id == credit_lot.c.pool_id)
        .where(*where)
        .order_by(expires_at.is_not(None), expires_at.desc(), credit_lot.c.seq.desc())
    ).all()


def _reverse(tx: Transaction, draws: Sequence[Row[Any]], amount: Decimal) -> set[str]:
    """Reverse `amount` of these draws, in their order, with an entry for each pool, product and cycle."""
    # What each lot has then: several products may have drawn from it.
    lots = dict[str, Decimal]()
    given: dict[tuple[str, LedgerReference], Decimal] = defaultdict(Decimal)
    with localcontext(EXACT):
        left = amount
        for draw in draws:
            part = min(left, draw.amount)
            # All of this draw may have gone back before.
            if part <= 0:
                continue
            left -= part
            link = LedgerReference(
                draw.contract_id, product_key=draw.product_key, cycle_start=draw.cycle_start
            )
            given[draw.pool_id, link] += part
            lots[draw.lot_id] = lots.get(draw.lot_id, draw.remaining) + part
            _store_lot(tx, draw.lot_id, lots[draw.lot_id])
            _add_to_draw(tx, draw.lot_id, -part, link)
    for (pool_id, link), part in given.items():
        pool = tx.execute(select(credit_pool).where(credit_pool.c.id == pool_id)).one()
        _change_balance(tx, pool, REVERSAL, part, link)
    return set(lots)


def _store_lot(tx: Transaction, lot_id: str, remaining: Decimal) -> None:
    tx.execute(update(credit_lot).where(credit_lot.c.id == lot_id).values(remaining=remaining))


def _add_to_draw(tx: Transaction, lot_id: str, amount: Decimal, link: LedgerReference) -> None:
    """Add to what a product's usage in a cycle has drawn from a lot."""
    key = {"lot_id": lot_id, "product_key": link.product_key, "cycle_start": link.cycle_start}
    drawn = tx.scalar(select(credit_draw.c.amount).filter_by(**key)) or ZERO
    with localcontext(EXACT):
        amount += drawn
    values = {**key, "contract_id": link.contract_id, "amount": amount}
    tx.execute(insert(credit_draw).prefix_with("OR REPLACE").values(**values))


def take_back(tx: Transaction, contract_id: str) -> None:
    """Take back what is left of the credits that a contract granted and no invoice has charged for.

    As expiry, this crosses no threshold.
    """
    billed = select(func.max(invoice.c.cycle_end)).where(invoice.c.contract_id == contract_id)
    billed_until = func.coalesce(billed.scalar_subquery(), 0, type_=BigInteger)
    due_at = credit_lot.c.price_due_at
    free = (credit_lot.c.contract_id == contract_id) & (due_at.is_(None) | (due_at >= billed_until))
    lots = open_lots(tx, free)
    left = exact_sum(lot.remaining for lot in lots)
    take_from_lots(tx, lots, left, EXPIRY, LedgerReference(contract_id=contract_id))
    # What goes back to them later is taken back, too.
    tx.execute(update(credit_lot).where(free).values(expires_at=tx.now))


def take_from_lots(
    tx: Transaction, lots: Collection[Row[Any]], amount: Decimal, entry_type: str, link: LedgerReference
) -> dict[str, Decimal]:
    """Take up to `amount` from these lots, in their order; return the amounts taken, by pool id.

    Writes one entry for each pool. Emits CreditPoolThresholdCrossed and CreditPoolDepleted.
    """
    taken: dict[str, Decimal] = {}
    with localcontext(EXACT):
        left = amount
        for lot in lots:
            part = min(left, lot.remaining)
            if part <= 0:
                break
            left -= part
            taken[lot.pool_id] = taken.get(lot.pool_id, ZERO) + part
            # Nothing left is ZERO, of which `open_lots` knows the digits.
            _store_lot(tx, lot.id, lot.remaining - part or ZERO)
            if link.product_key is not None:
                _add_to_draw(tx, lot.id, part, link)
        for pool_id, part in taken.items():
            pool = tx.execute(select(credit_pool).where(credit_pool.c.id == pool_id)).one()
            _change_balance(tx, pool, entry_type, -part, link)
    return taken


def _change_balance(
    tx: Transaction, pool: CreditPool, entry_type: str, amount: Decimal, link: LedgerReference
) -> str:
    """Change a balance: the pool, its ledger and its events, together. Returns the entry's id."""
    entry_id = new_id("cle")
    with localcontext(EXACT):
        balance = pool.balance + amount
        filled_to, told_share = pool.filled_to, pool.told_share
        if entry_type == "Grant":
            # A grant fills the pool: its balance is the new 100 %.
            filled_to, told_share = balance, ZERO
        elif entry_type == REVERSAL:  # perhaps of credits that were drawn before the last grant
            filled_to = max(filled_to, balance)
        elif entry_type == EXPIRY:  # expired credits can no longer be used: they leave the 100 %, too
            filled_to += amount
        else:
            # Rounded down, beyond any threshold's digits: a share with an end is exact.
            share = ((filled_to - balance) * 100 / filled_to).quantize(_SHARE_PRECISION, ROUND_DOWN)
            told_share = max(told_share, share)
    changed = tx.execute(
        update(credit_pool)
        .where(credit_pool.c.id == pool.id)
        .values(balance=balance, filled_to=filled_to, told_share=told_share)
        .returning(credit_pool)
    ).one()
    entry = {"type": entry_type, "amount": amount, "balance_after": balance, **asdict(link)}
    owner = {"customer_id": pool.customer_id, "pool_id": pool.id, "created_at": tx.now}
    tx.execute(insert(ledger_entry).values(id=entry_id, **owner, **entry))
    if entry_type == "Grant":
        details = _event_details(tx, changed)
        raise_event(tx, CreditPoolIncreased(**details, granted_amount=amount, previous_balance=pool.balance))
    elif amount < 0:
        _raise_decreased(tx, pool, changed)
    return entry_id


class LedgerEntryView(CreditLedgerEntry, SandboxResource, register=False):
    """A ledger entry with its pool, which the specification's fields do not identify."""

    credit_pool_id: Annotated[StrictStr, Field(examples=["pool_4f0e"])]
    """Id of the pool. The sandbox's own: the specification does not list it."""
    credit_product_id: Annotated[StrictStr, Field(examples=["crp_2"])]
    """Id of its credit product. The sandbox's own: the specification does not list it."""


class LedgerPageView(CreditLedgerPage, SandboxResource, register=False):
    """A page of ledger entries."""

    entries: ListOf[LedgerEntryView]  # type: ignore[assignment]
    """The entries of this page."""


def ledger_page(tx: Transaction, asked: CreditLedgerQuery) -> LedgerPageView:
    """Return a page of a customer's ledger entries, oldest first."""
    query = _READ.where(ledger_entry.c.customer_id == asked.customer_id)
    found = requested_page(tx, asked, query, ledger_entry.c.seq)
    return LedgerPageView(entries=found.of(_entry_view).items, **found.fields())


def find_entry(tx: Transaction, entry_id: str) -> LedgerEntryView:
    """Return the ledger entry with this id, which must exist."""
    return _entry_view(tx.execute(_READ.where(ledger_entry.c.id == entry_id)).one())


def _entry_view(row: Row[Any]) -> LedgerEntryView:
    note = f"CN-{row.created_at.year}-{row.seq:04}" if row.type in _NOTED else None
    entry = shown(
        LedgerEntryView, row, balance_after_entry=row.balance_after, credit_pool_id=row.pool_id,
        credit_note_number=note, integration_entities=[],
    )  # fmt: skip
    return entry.model_copy(update={"erp_id": None})  # no other system is connected


def _raise_decreased(tx: Transaction, before: CreditPool, after: CreditPool) -> None:
    """Emit CreditPoolThresholdCrossed for thresholds up to the used share, and CreditPoolDepleted.

    The shares are compared with the highest one since the last grant, so no threshold is crossed twice. An
    expiry changes no `told_share`: if it raises the used share, the next use raises the events.
    """
    details = _event_details(tx, after)
    share = percent(after.filled_to - after.balance, after.filled_to)
    waiting = threshold_rules(tx, CreditPoolThresholdCrossed.type)
    for threshold, only in thresholds_crossed(waiting, _WHOLE, before.told_share, after.told_share):
        event = CreditPoolThresholdCrossed(**details, threshold=threshold, pct_usage=share)
        raise_event(tx, event, only=only)
    if after.balance == 0:
        raise_event(tx, CreditPoolDepleted(**details))


def _event_details(tx: Transaction, pool: CreditPool) -> dict[str, Any]:
    return {
        "date": tx.now,
        "customer_id": pool.customer_id,
        "credit_pool_id": pool.id,
        "credit_type_id": pool.credit_product_id,
        "credit_kind": pool.kind,
        "balance": pool.balance,
    }
