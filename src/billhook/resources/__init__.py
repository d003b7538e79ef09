"""What the REST API takes and gives: one model for each object, for its client and its sandbox.

Source: spec, "Resources and their fields" and "Endpoints".
"""

from billhook.resources.aggregations import Aggregation, AggregationRequest, DataPoint, MeterKey, Period
from billhook.resources.auth import LoginRequest, LoginResponse
from billhook.resources.base import READ_ONLY, RESOURCES, WRITE_ONLY, Access, Resource, Stored
from billhook.resources.catalog import (
    CatalogProduct,
    CatalogProductPage,
    CatalogProductResponse,
    CatalogProductUpdate,
    NewCatalogProduct,
)
from billhook.resources.cloud_usage import (
    CloudUsageResult,
    CloudUsageSubmission,
    PartnerSubmission,
    UsageWindow,
)
from billhook.resources.consumption import ProductConsumption, ProductConsumptionsResponse
from billhook.resources.contract_products import (
    Commitment,
    ContractProduct,
    Discount,
    Duration,
    Pricing,
    ProductGroup,
    Scheduling,
)
from billhook.resources.contracts import (
    Contract,
    ContractPage,
    ContractQuery,
    ContractResponse,
    ContractStatus,
    NewContract,
)
from billhook.resources.credits import CreditDeduction, CreditGrant, CreditTopUp, CreditTopUpResponse
from billhook.resources.custom_fields import (
    CustomField,
    CustomFieldInput,
    CustomFieldPage,
    CustomFieldResponse,
    CustomFieldValue,
)
from billhook.resources.customers import (
    Address,
    Contact,
    Customer,
    CustomerResponse,
    CustomerStatus,
    CustomerUpdate,
)
from billhook.resources.dry_runs import DryRunEvent, DryRunResult, MeterValue
from billhook.resources.integrations import (
    CustomerCloudSettings,
    CustomerIntegration,
    ProductCloudSettings,
    ProductIntegration,
)
from billhook.resources.invoices import (
    BillingCycle,
    Invoice,
    InvoicePage,
    InvoiceQuery,
    InvoiceResponse,
    LineItem,
    RevenueBreakdown,
)
from billhook.resources.ledger import (
    CreditLedgerEntry,
    CreditLedgerPage,
    CreditLedgerQuery,
    LedgerIntegration,
)
from billhook.resources.measurements import Measurement, MeasurementResponse, NewMeasurement, UsageDate
from billhook.resources.paging import CountedPage, Page, PageQuery
from billhook.resources.payments import DepositTo, PaymentInfo
from billhook.resources.plans import BillingData, BillingDate, Plan, PlanResponse, PlanStatus
from billhook.resources.problems import ErrorBody, ErrorCode, ErrorType, WrongParam
from billhook.resources.usage import (
    MAX_BATCH_BYTES,
    MAX_BATCH_EVENTS,
    MAX_PAGE_EVENTS,
    EventBatch,
    EventPage,
    EventQuery,
    IngestionResult,
    InvalidEvent,
    UsageEvent,
)
from billhook.resources.webhooks import WebhookSubscription
from billhook.wire import sample
from billhook.wire.statuses import BillingStatus

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_BATCH_EVENTS",
    "MAX_PAGE_EVENTS",
    "READ_ONLY",
    "RESOURCES",
    "WRITE_ONLY",
    "Access",
    "Address",
    "Aggregation",
    "AggregationRequest",
    "BillingCycle",
    "BillingData",
    "BillingDate",
    "BillingStatus",
    "CatalogProduct",
    "CatalogProductPage",
    "CatalogProductResponse",
    "CatalogProductUpdate",
    "CloudUsageResult",
    "CloudUsageSubmission",
    "Commitment",
    "Contact",
    "Contract",
    "ContractPage",
    "ContractProduct",
    "ContractQuery",
    "ContractResponse",
    "ContractStatus",
    "CountedPage",
    "CreditDeduction",
    "CreditGrant",
    "CreditLedgerEntry",
    "CreditLedgerPage",
    "CreditLedgerQuery",
    "CreditTopUp",
    "CreditTopUpResponse",
    "CustomField",
    "CustomFieldInput",
    "CustomFieldPage",
    "CustomFieldResponse",
    "CustomFieldValue",
    "Customer",
    "CustomerCloudSettings",
    "CustomerIntegration",
    "CustomerResponse",
    "CustomerStatus",
    "CustomerUpdate",
    "DataPoint",
    "DepositTo",
    "Discount",
    "DryRunEvent",
    "DryRunResult",
    "Duration",
    "ErrorBody",
    "ErrorCode",
    "ErrorType",
    "EventBatch",
    "EventPage",
    "EventQuery",
    "IngestionResult",
    "InvalidEvent",
    "Invoice",
    "InvoicePage",
    "InvoiceQuery",
    "InvoiceResponse",
    "LedgerIntegration",
    "LineItem",
    "LoginRequest",
    "LoginResponse",
    "Measurement",
    "MeasurementResponse",
    "MeterKey",
    "MeterValue",
    "NewCatalogProduct",
    "NewContract",
    "NewMeasurement",
    "Page",
    "PageQuery",
    "PartnerSubmission",
    "PaymentInfo",
    "Period",
    "Plan",
    "PlanResponse",
    "PlanStatus",
    "Pricing",
    "ProductCloudSettings",
    "ProductConsumption",
    "ProductConsumptionsResponse",
    "ProductGroup",
    "ProductIntegration",
    "Resource",
    "RevenueBreakdown",
    "Scheduling",
    "Stored",
    "UsageDate",
    "UsageEvent",
    "UsageWindow",
    "WebhookSubscription",
    "WrongParam",
    "sample",
]
