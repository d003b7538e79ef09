"""Granting credits, deducting them, and letting them expire.

Source: spec, "Endpoints", Credits; "Resources and their fields", CreditGrant.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal, localcontext

from sqlalchemy import delete, insert, select

from billhook.resources import CreditGrant, Invoice
from billhook.sandbox.billing import agenda, customers
from billhook.sandbox.billing.credit_pools import EXPIRY, Link, fill, lots, take
from billhook.sandbox.billing.credit_products import check_kind, known
from billhook.sandbox.billing.exact import EXACT, ZERO, is_moderate
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.storage.tables.credit import credit_lot, credit_pool, top_up
from billhook.sandbox.transaction import Transaction

__all__ = [
    "await_approval",
    "check_amount",
    "check_customer",
    "check_grant",
    "deduct",
    "expire",
    "grant",
    "grant_as",
    "grant_of_invoice",
]


def grant(
    tx: Transaction,
    customer_id: str,
    amount: Decimal,
    *,
    credit_product_id: str | None = None,
    kind: str | None = None,
    expires_at: datetime | None = None,
    automatic: bool = True,
    contract_id: str | None = None,
    invoice_id: str | None = None,
) -> str:
    """Put credits into a customer's pool; the id of the ledger's entry. Raises CreditPoolIncreased.

    `kind` is that of the credit product if it is not given. `automatic`: usage draws them by itself.
    """
    product = known(tx, credit_product_id, kind)
    pool_key = (customer_id, product.id, kind or str(product.balance_kind))
    lot_id, entry_id = fill(
        tx, pool_key, amount, Link(contract_id, invoice_id), expires_at=expires_at, automatic=automatic
    )
    if expires_at is not None and expires_at <= tx.now:
        expire(tx, lot_id)
    elif expires_at is not None:
        agenda.add(tx, expires_at, "credit_expiry", lot_id)
    return entry_id


def grant_as(
    tx: Transaction,
    customer_id: str,
    given: CreditGrant,
    *,
    contract_id: str | None = None,
    invoice_id: str | None = None,
) -> None:
    """Put in what a grant of a contract or of a top-up says; nothing, if it says no amount."""
    if given.grant_amount is not None:
        grant(
            tx, customer_id, given.grant_amount, credit_product_id=given.credit_product_id,
            kind=given.balance_kind, expires_at=given.expiration_date,
            automatic=given.apply_automatically is not False,
            contract_id=contract_id, invoice_id=invoice_id,
        )  # fmt: skip


def check_customer(tx: Transaction, customer_id: str) -> None:
    """Refuse a request about the credits of nobody."""
    if customers.CUSTOMERS.find(tx, customer_id) is None:
        raise invalid_request("there is no such customer", "customerId")


def check_amount(amount: Decimal, param: str) -> None:
    """Refuse an amount of credits that cannot be."""
    if amount <= 0 or not is_moderate(amount):
        name = param.rpartition(".")[2]
        raise invalid_request(f"{name} is above zero, and of at most 100 digits before the point", param)


def check_grant(given: CreditGrant, where: str) -> None:
    """Refuse a grant that cannot be made; `where` is its path in the request."""
    if given.grant_amount is not None:
        check_amount(given.grant_amount, f"{where}.grantAmount")
    if given.price is not None and (given.price < 0 or not is_moderate(given.price)):
        raise invalid_request("price is zero or more, and of at most 100 digits", f"{where}.price")
    check_kind(given.balance_kind, f"{where}.balanceKind")
    if given.credit_product_id is not None:
        check_key(given.credit_product_id, f"{where}.creditProductId")


def deduct(tx: Transaction, customer_id: str, amount: Decimal) -> None:
    """Take `amount` off a customer's account, from the credits that expire first; refused if there are less.

    Source: spec, "Endpoints", POST /credits/deduct.
    """
    check_amount(amount, "creditAmount")
    there = lots(tx, credit_pool.c.customer_id == customer_id)
    with localcontext(EXACT):
        available = sum((lot.remaining for lot in there), ZERO)
    if amount > available:
        raise invalid_request(
            "the customer has fewer credits than that: grant some, or deduct less",
            "creditAmount",
            code="insufficient_credits",
        )
    take(tx, there, amount, "Deduction", Link())


def expire(tx: Transaction, subject_id: str) -> None:
    """What is left of a lot of credits is lost. The step `credit_expiry`."""
    there = lots(tx, credit_lot.c.id == subject_id)
    for lot in there:
        take(tx, there, lot.remaining, EXPIRY, Link())


def await_approval(tx: Transaction, invoice_id: str, customer_id: str, given: CreditGrant) -> None:
    """Put down what is to be granted when the invoice of a top-up is approved."""
    body = given.to_json().decode()
    tx.connection.execute(insert(top_up).values(invoice_id=invoice_id, customer_id=customer_id, body=body))


def grant_of_invoice(tx: Transaction, invoice: Invoice) -> None:
    """Grant the credits that a top-up's invoice bills, once; to be called when an invoice is approved.

    Source: spec, "States and transitions", the moves that are shown.
    """
    this = top_up.c.invoice_id == invoice.id
    row = tx.connection.execute(select(top_up).where(this)).first()
    if row is not None:
        tx.connection.execute(delete(top_up).where(this))
        given = CreditGrant.from_json(row.body.encode())
        grant_as(tx, row.customer_id, given, invoice_id=invoice.id)
