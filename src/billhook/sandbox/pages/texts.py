"""How the pages show amounts, JSON, names for ids, and what events tell."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from sqlalchemy import Row, select

from billhook.events import EVENT_TYPES
from billhook.fields import strict_json
from billhook.resources import Customer, StoredResource
from billhook.sandbox.billing.contracts.contracts import CATALOG_PRODUCTS, CONTRACTS, PLANS
from billhook.sandbox.billing.contracts.customers import CUSTOMERS
from billhook.sandbox.billing.credits.credit_grants import CREDIT_PRODUCTS
from billhook.sandbox.billing.invoicing.invoices import INVOICES
from billhook.sandbox.billing.usage.meters import METERS
from billhook.sandbox.pages.context import site
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import Repository
from billhook.sandbox.storage.tables import credit_lot, credit_pool

_CHARACTERS = 40
"""An amount that is longer is shown with an exponent."""
JOB_TEXTS: Mapping[str, str] = {
    "contract_end": "A contract reached its end",
    "contract_start": "A contract began",
    "credit_expiry": "Credits expired",
    "credit_grant": "A contract's credits were due",
    "customer_without_contract": "A customer had no contract for a week",
    "cycle_end": "A billing cycle ended",
    "invoice_approval": "An invoice was due for approval",
    "invoice_due": "An invoice's payment was due",
    "month_end": "A month ended",
    "renewal_notice": "A contract was 30 days from its renewal",
}
"""What each kind of scheduled job is for, once it has run."""
STATUSES = {
    "Paid": ("paid", "good"),
    "PendingPayment": ("pending payment", "accent"),
    "Overdue": ("overdue", "warn"),
    "Rejected": ("rejected", "bad"),
    "None": ("not approved", "quiet"),
}
"""The words for each billingStatus, and their tone."""
_OFFERED = 200
"""As many are offered in a list to choose from, the newest first."""
_NAMED: Mapping[str, Repository[Any]] = {
    "catalogProductId": CATALOG_PRODUCTS,
    "contractId": CONTRACTS,
    "creditProductId": CREDIT_PRODUCTS,
    "customerId": CUSTOMERS,
    "meterId": METERS,
    "planId": PLANS,
}
"""The fields of requests that hold the id of something with a name."""
SENTENCES: Mapping[str, str] = {
    "AnonymousCustomer": "Usage of the unknown alias {name} created an anonymous customer",
    "CommitmentCrossed": "{productName}: {consumedAmount} units used, {provisionedAmount} committed",
    "CommitmentUsageCrossed": "{customerId} used {pctUsage} % of the commitment to {productName}",
    "ContractCreated": "{customerId} got the contract {contractName}",
    "ContractExpired": "The contract {contractName} of {customerName} has expired",
    "CreditPoolDepleted": "{customerId} has no {creditTypeId} credits left",
    "CreditPoolIncreased": "{customerId} got {grantedAmount} {creditTypeId} credits, and has {balance}",
    "CreditPoolThresholdCrossed": "{customerId} used {pctUsage} % of its {creditTypeId} credits",
    "CurrencyCommitmentUsageCrossed": (
        "{customerId} used {consumedAmount} of {committedAmount} {currency} committed to {productName}"
    ),
    "CustomerCreated": "The customer {name} was created",
    "CustomerPortalLinkSent": "{customerId}'s portal link {was_sent} to {email}",
    "FinalTierExceeded": "{customerName} used {accumulatedUnitsValue} {productName}, beyond all tiers",
    "InvoiceApproved": "{invoiceId} was approved",
    "InvoicePaymentStatusChanged": "{invoiceId} is {status}",
    "InvoiceSendFailed": "{invoiceId} reached no recipient",
    "MonthEndReport": "The report of the month is ready",
    "NewCustomerWithoutContract": "{customerName} has had no contract for a week",
    "Overage": "{customerName} used more than committed, for {overageAmount} {currency}",
    "PaymentFailed": "{customerId}'s payment of {amount} {currency} failed: {failureReason}",
    "PingTest": "A PingTest was sent",
    "TierCrossed": "{customerName} entered another price tier of {contractName}",
    "UnchargedEvents": "Some usage of the month was counted by no meter",
    "UpcomingRenewal": "The contract {contractName} of {customerName} renews soon, on {contractEndDate}",
}
"""The sentence of a type, which names fields of the body; without one it is what the type's class says."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")


def format_amount(number: Decimal | None, like: Decimal | None = None) -> str:
    """Return `12,345.60`, with as many decimal places as `like` has if it has more; empty for None."""
    if number is None:
        return ""
    places = max(_places(number), 0 if like is None else _places(like))
    text = f"{number:,.{places}f}" if places < _CHARACTERS else f"{number:,f}"
    return text if len(text) <= _CHARACTERS else f"{number:.12E}"


def _places(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) and exponent < 0 else 0


def format_percent(number: Decimal | None) -> str:
    """Return `12.5 %`, with one decimal place at most; empty for None."""
    return "" if number is None else f"{float(number):,.1f}".removesuffix(".0") + " %"


def clipped(text: object, most: int) -> str:
    """Return the text, or its first `most` characters and an ellipsis."""
    whole = str(text)
    return whole if len(whole) <= most else whole[:most] + "…"


def first_sentence(text: str) -> str:
    """Return what a docstring says before its source, on one line."""
    return " ".join(text.split()).partition(" Source:")[0]


def parse_number(text: str) -> Decimal | None:
    """Return the number in the field of a form; None for what is none, or is not finite."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


class CauseText(NamedTuple):
    """A cause in words, and as the log notes it: the operation, or the subject of the job."""

    text: str
    detail: str
    is_job: bool = False


def described_cause(cause: str) -> CauseText:
    """Return the cause of an event in words."""
    kind, _, subject = cause.partition(" ")
    if kind in JOB_TEXTS:
        return CauseText(JOB_TEXTS[kind], subject, is_job=True)
    summary = site.summary(cause)
    return CauseText(cause, "") if summary is None else CauseText(summary, cause)


def name_of(one: StoredResource) -> str:
    """Return the name of a resource, or its id without one; of a customer also the external id."""
    external_id = one.external_id if isinstance(one, Customer) else None
    return str(getattr(one, "name", None) or external_id or one.id)


def names_of(tx: Transaction, of: Repository[Any], ids: Iterable[str | None] | None = None) -> dict[str, str]:
    """Return {id: name} of these resources, or of the newest ones."""
    if ids is None:
        found = of.newest(tx, _OFFERED).items
    else:
        found = of.all(tx, of.table.c.id.in_({one for one in ids if one}))
    return {one.id: name_of(one) for one in found}


def customer_names(tx: Transaction, ids: Iterable[str | None] | None = None) -> dict[str, str]:
    """Return {id: name} of these customers, or of the newest ones."""
    return names_of(tx, CUSTOMERS, ids)


def newest(tx: Transaction, of: Repository[Any]) -> str | None:
    """Return the id of the newest resource of a kind; None without one."""
    return next((one.id for one in of.newest(tx, 1).items), None)


def options_for(tx: Transaction) -> Callable[[str], list[tuple[str, str]]]:
    """Return what a form offers for a field of a name: names for ids, event types; nothing for others."""

    def options(field: str) -> list[tuple[str, str]]:
        if field in _NAMED:
            return list(names_of(tx, _NAMED[field]).items())
        if field == "eventType":
            return [(name, name) for name in sorted(EVENT_TYPES)]
        if field == "customerAlias":
            known = CUSTOMERS.newest(tx, _OFFERED).items
            return [((one.aliases or [one.external_id or one.id])[0], name_of(one)) for one in known]
        if field == "invoiceId":
            ids = [one.id for one in INVOICES.newest(tx, _OFFERED).items]
            return list(_invoice_names(tx, ids).items())
        return []

    return options


def subject_names(tx: Transaction, ids: Iterable[object]) -> dict[str, str]:
    """Return {id: name} of those that are ids of customers, contracts, invoices, products or credits."""
    wanted = {one for one in ids if isinstance(one, str)}
    lots = select(credit_lot.c.id, credit_pool.c.customer_id).select_from(credit_lot).join(credit_pool)
    rows = tx.execute(lots.where(credit_lot.c.id.in_(wanted)))
    owners = {row.id: row.customer_id for row in rows}
    customers = customer_names(tx, {*wanted, *owners.values()})
    names = {lot_id: f"credits of {customers[owner]}" for lot_id, owner in owners.items()}
    for of in (CONTRACTS, CREDIT_PRODUCTS, CATALOG_PRODUCTS):
        names |= names_of(tx, of, wanted)
    return names | customers | _invoice_names(tx, wanted)


def _invoice_names(tx: Transaction, ids: Iterable[str]) -> dict[str, str]:
    found = INVOICES.all(tx, INVOICES.table.c.id.in_(set(ids)))
    customers = customer_names(tx, [one.customer_id for one in found])
    return {
        one.id: f"invoice {one.invoice_number} of {customers.get(one.customer_id or '', '')}"
        f" ({format_amount(one.amount)} {one.currency})"
        for one in found
    }


def event_sentences(tx: Transaction, events: Sequence[Row[Any]]) -> dict[str, str]:
    """Return a sentence for each event, by the event's id."""
    bodies = {one.id: _fields(one.body) for one in events}
    names = subject_names(tx, [value for fields in bodies.values() for value in fields.values()])
    return {one.id: _sentence(one.event_type, bodies[one.id], names) for one in events}


def _fields(body: bytes) -> dict[str, Any]:
    fields: Any = strict_json.loads(body)
    inner = fields.get("productConsumption")
    return {**inner, **fields} if isinstance(inner, dict) else fields


def _sentence(event_type: str, fields: Mapping[str, Any], names: Mapping[str, str]) -> str:
    words = defaultdict(str, {name: _word(value, names) for name, value in fields.items()})
    words["was_sent"] = "was sent" if fields.get("isSuccessful") else "could not be sent"
    words["status"] = STATUSES.get(words["billingStatus"], (words["billingStatus"],))[0]
    sentence = SENTENCES.get(event_type)
    if sentence is None:
        return first_sentence(EVENT_TYPES[event_type].__doc__ or event_type).removesuffix(".")
    text = sentence.format_map(words)
    return text[0].upper() + text[1:]


def _word(value: object, names: Mapping[str, str]) -> str:
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return format_amount(Decimal(value))
    text = str(value)
    return text[:10] if _MOMENT.fullmatch(text) else names.get(text, text)
