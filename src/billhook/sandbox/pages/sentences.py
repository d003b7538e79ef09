"""What an event tells, as a sentence: with names instead of ids, and amounts with their currency."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from billhook.fields import strict_json
from billhook.sandbox.pages.names import subject_names
from billhook.sandbox.pages.texts import STATUS_TEXTS, format_amount
from billhook.sandbox.storage.transaction import Transaction
from billhook.sandbox.webhooks.delivery_log import EventTrace

SENTENCES: Mapping[str, str] = MappingProxyType(
    {
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
)
"""The sentence of each type; it names fields of the body."""
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")


def event_sentences(tx: Transaction, events: Iterable[EventTrace]) -> dict[str, str]:
    """Return a sentence for each event, by the event's id. One whose body is very long has its type."""
    bodies = {one.id: _fields(one.body) for one in events if one.body is not None}
    names = subject_names(tx, [value for fields in bodies.values() for value in fields.values()])
    return {
        one.id: _sentence(one.event_type, bodies[one.id], names) if one.id in bodies else one.event_type
        for one in events
    }


def _fields(body: bytes) -> dict[str, Any]:
    fields: Any = strict_json.loads(body)
    inner = fields.get("productConsumption")
    return {**inner, **fields} if isinstance(inner, dict) else fields


def _sentence(event_type: str, fields: Mapping[str, Any], names: Mapping[str, str]) -> str:
    words = defaultdict(str, {name: _word(value, names) for name, value in fields.items()})
    words["was_sent"] = "was sent" if fields.get("isSuccessful") else "could not be sent"
    words["status"] = STATUS_TEXTS.get(words["billingStatus"], words["billingStatus"])
    text = SENTENCES[event_type].format_map(words)
    return text[0].upper() + text[1:]


def _word(value: object, names: Mapping[str, str]) -> str:
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return format_amount(Decimal(value))
    text = str(value)
    return text[:10] if _MOMENT.fullmatch(text) else names.get(text, text)
