"""Events: one model per event type, parsed from bytes and encoded again.

A type of your own is a subclass of Event; ExactDecimal, UtcDatetime and WireModel are for its fields.
Source: spec, "Events".
"""

from billhook.events.base import EVENT_TYPES, Event, UnknownEvent, parse_event
from billhook.events.customers import (
    AnonymousCustomer,
    ContractCreated,
    ContractExpired,
    CustomerCreated,
    CustomerPortalLinkSent,
    IntegrationEntity,
    NewCustomer,
    NewCustomerWithoutContract,
    UpcomingRenewal,
)
from billhook.events.invoices import (
    BillingStatus,
    CreditKind,
    CreditPoolDepleted,
    CreditPoolIncreased,
    CreditPoolThresholdCrossed,
    InvoiceApproved,
    InvoicePaymentStatusChanged,
    InvoiceSendFailed,
    PaymentFailed,
)
from billhook.events.samples import sample
from billhook.events.usage import (
    CommitmentCrossed,
    CommitmentUsageCrossed,
    CurrencyCommitmentUsageCrossed,
    FinalTierExceeded,
    MonthEndReport,
    Overage,
    PingTest,
    ProductConsumptionSnapshot,
    TierCrossed,
    UnchargedEvents,
)
from billhook.fields import WireModel
from billhook.fields.types import ExactDecimal, UtcDatetime

__all__ = [
    "EVENT_TYPES",
    "AnonymousCustomer",
    "BillingStatus",
    "CommitmentCrossed",
    "CommitmentUsageCrossed",
    "ContractCreated",
    "ContractExpired",
    "CreditKind",
    "CreditPoolDepleted",
    "CreditPoolIncreased",
    "CreditPoolThresholdCrossed",
    "CurrencyCommitmentUsageCrossed",
    "CustomerCreated",
    "CustomerPortalLinkSent",
    "Event",
    "ExactDecimal",
    "FinalTierExceeded",
    "IntegrationEntity",
    "InvoiceApproved",
    "InvoicePaymentStatusChanged",
    "InvoiceSendFailed",
    "MonthEndReport",
    "NewCustomer",
    "NewCustomerWithoutContract",
    "Overage",
    "PaymentFailed",
    "PingTest",
    "ProductConsumptionSnapshot",
    "TierCrossed",
    "UnchargedEvents",
    "UnknownEvent",
    "UpcomingRenewal",
    "UtcDatetime",
    "WireModel",
    "parse_event",
    "sample",
]
