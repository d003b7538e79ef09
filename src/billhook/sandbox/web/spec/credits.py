"""The credit ledger, deducting, and topping up. Source: spec, "Endpoints", Credits."""

from __future__ import annotations

from billhook.resources import (
    CreditDeduction,
    CreditLedgerQuery,
    CreditTopUp,
    CreditTopUpResponse,
)
from billhook.sandbox.billing import credit_ledger, customers, invoices
from billhook.sandbox.billing.credit_ledger import ShownLedgerPage
from billhook.sandbox.billing.credits import await_approval, check_customer, check_grant, deduct
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("credits", prefix="/credits")


@GROUP.operation("GET", "", takes=CreditLedgerQuery, gives=ShownLedgerPage)
def list_credits(call: Call[CreditLedgerQuery]) -> ShownLedgerPage:
    """List the changes of a customer's credits, oldest first."""
    given = call.given
    check_customer(call.tx, given.customer_id)
    return credit_ledger.page(call.tx, given.customer_id, limit_of(given), given.cursor)


@GROUP.operation("POST", "/deduct", takes=CreditDeduction)
def deduct_credits(call: Call[CreditDeduction]) -> None:
    """Subtract credits from a customer's account."""
    check_customer(call.tx, call.given.customer_id)
    deduct(call.tx, call.given.customer_id, call.given.credit_amount)


@GROUP.operation("POST", "/top-up", takes=CreditTopUp, gives=CreditTopUpResponse)
def top_up(call: Call[CreditTopUp]) -> CreditTopUpResponse:
    """Bill a customer for credits, which are granted when the invoice is approved."""
    customer_id, grant = call.given.customer_id, call.given.credit_grant
    check_customer(call.tx, customer_id)
    customers.check_active(customers.find(call.tx, customer_id))
    check_grant(grant, "creditGrant")
    if grant.expiration_date is not None and grant.expiration_date <= call.tx.now:
        raise invalid_request("expirationDate is over already", "creditGrant.expirationDate")
    invoice_id = invoices.issue_top_up(call.tx, customer_id, grant)
    await_approval(call.tx, invoice_id, customer_id, grant)
    return CreditTopUpResponse(invoice_id=invoice_id, customer_id=customer_id)
