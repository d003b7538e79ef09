"""Events: one model per event type, parsed from bytes and encoded again.

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
    "parse_event",
    "sample",
]
