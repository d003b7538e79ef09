"""The specification's interface, a group of operations for each tag. Source: spec, "Endpoints"."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal
from typing import Annotated, Self

from pydantic import ConfigDict, Field, StrictStr
from sqlalchemy import select

from billhook import resources as r
from billhook.events import PingTest
from billhook.fields import strict_json
from billhook.fields.strict_json import datetime_text
from billhook.sandbox.billing import anonymous_customers, contract_lifecycle, ingestion
from billhook.sandbox.billing.contracts import contracts, customers
from billhook.sandbox.billing.contracts.contracts import CATALOG_PRODUCTS, PLANS
from billhook.sandbox.billing.contracts.custom_fields import DEFINITIONS
from billhook.sandbox.billing.contracts.customers import customer_views
from billhook.sandbox.billing.credits import credit_pools
from billhook.sandbox.billing.credits.credit_grants import check_grant, deduct, has_expired
from billhook.sandbox.billing.credits.credit_pools import LedgerPageView
from billhook.sandbox.billing.event_query import aggregate, list_events
from billhook.sandbox.billing.invoicing import invoices, metered_items
from billhook.sandbox.billing.invoicing.invoices import InvoicePageView, InvoiceResponseView
from billhook.sandbox.billing.usage.meters import NOTHING, CompiledMeter
from billhook.sandbox.errors import check_choice, invalid_request, not_authenticated
from billhook.sandbox.operations import Call, OperationGroup, SandboxResource
from billhook.sandbox.options import MAX_LOGIN_BYTES
from billhook.sandbox.storage.repository import matching, request_document
from billhook.sandbox.storage.tables import contract, customer, invoice
from billhook.sandbox.tokens import ACCESS_SECONDS, is_active
from billhook.sandbox.webhooks import outbox
from billhook.sandbox.webhooks.http_post import parse_callback_url

AUTH_GROUP = OperationGroup("auth", about="Access tokens, which all other operations need.")
WEBHOOKS_GROUP = OperationGroup(
    "webhooks", about="Subscriptions of URLs to types of events, and the webhooks that they receive."
)


@AUTH_GROUP.operation("POST", "/login", open=True, reads_bytes=MAX_LOGIN_BYTES)
def login(call: Call[r.LoginRequest]) -> r.LoginResponse:
    """Exchange the API token for an access token that is valid for one hour."""
    if not is_active(call.tx, call.request.refresh_token):
        raise not_authenticated(
            "the refreshToken is not the API token that is active: it is another, or was revoked"
        )
    # The sandbox's time: a moved clock expires access tokens, too.
    token, ends_at = call.services.issue_access_token(call.tx.now)
    return r.LoginResponse(
        access_token=token, expires_in=Decimal(ACCESS_SECONDS), expires_at=datetime_text(ends_at)
    )


class Subscribed(SandboxResource, register=False):
    """The response to POST /webhook, which the specification does not describe."""

    id: Annotated[StrictStr, Field(examples=["sub_4f0e"])]
    """Id of the subscription."""


@WEBHOOKS_GROUP.operation("POST", "/webhook")
def subscribe(call: Call[r.WebhookSubscription]) -> Subscribed:
    """Subscribe a URL to a type of event. Repeating a request returns the same subscription.

    Other thresholds make another subscription. A new subscription to PingTest receives one at once.
    """
    request = call.request
    outbox.check_event_type(request.event_type)
    # The sender checks the URL again before each attempt; here the caller learns of a mistake.
    try:
        parse_callback_url(request.callback_url, allow_private=call.tx.options.allow_private)
    except ValueError as error:
        raise invalid_request(str(error), "callbackUrl") from None
    thresholds = {"threshold": request.threshold, "recurringThreshold": request.recurring_threshold}
    for param, threshold in thresholds.items():
        # Any usage would cross a threshold of zero.
        if threshold is not None and threshold <= 0:
            raise invalid_request(f"{param} is a percentage above zero", param)
    subscription_id = outbox.subscribe(
        call.tx, request.callback_url, request.event_type, request.threshold, request.recurring_threshold
    )
    # Nothing else raises PingTest: its subscription would stay silent.
    if request.event_type == PingTest.type:
        outbox.ping_subscription(call.tx, subscription_id, request.callback_url)
    return Subscribed(id=subscription_id)


EVENTS_GROUP = OperationGroup("events", about="Usage events: ingested in batches, listed and aggregated.")


@EVENTS_GROUP.operation("GET", "/events", gives=r.EventPage)
def query(call: Call[r.EventQuery]) -> bytes:
    """List stored events from startTime to before endTime, by timestamp."""
    page = list_events(call.tx, call.request)
    # Joined as text: the stored JSON of the events is neither parsed nor formatted again.
    more = {"total": page.total, "hasMore": page.next_cursor is not None, "nextCursor": page.next_cursor}
    return b'{"events":[%b],%b' % (",".join(page.items).encode(), strict_json.dumps(more)[1:])


# reads_bytes=None: RawEventBatch refuses a longer body, with the specification's error.
@EVENTS_GROUP.operation("PUT", "/events", gives=r.IngestionResult, reads_bytes=None)
def submit(call: Call[ingestion.RawEventBatch]) -> bytes:
    """Ingest a batch of events. Invalid events are returned and do not affect the others."""
    return _ingested(call)


@EVENTS_GROUP.operation(
    "POST",
    "/v2/events",
    gives=r.IngestionResult,
    reads_bytes=None,
    max_bytes=r.MAX_BATCH_BYTES,
    errors=(413,),
)
def submit_v2(call: Call[ingestion.RawEventBatch]) -> bytes:
    """Ingest a batch of events; a batch that is too large gets 413."""
    return _ingested(call)


@EVENTS_GROUP.operation("POST", "/events/dry-run", gives=r.DryRunResult, writes=False, reads_bytes=None)
def dry_run(call: Call[ingestion.RawEventBatch]) -> bytes:
    """Return how the service would ingest a batch, without storing anything."""
    result = ingestion.validate_batch(call.tx, call.request)
    owners = customers.ids_by_alias(call.tx, {used.alias for used in result.accepted})
    inactive = customers.inactive_customers(call.tx, set(owners.values()))
    # Compiled once for the batch: the events of one name share their meters.
    metered = ingestion.compiled_meters(call.tx, result.accepted)
    events = (_dry_run_entry(used, owners.get(used.alias), inactive, metered) for used in result.accepted)
    return _batch_response("events", events, result.rejected)


# A POST that changes nothing: it needs no write lock, which would delay ingestion.
@EVENTS_GROUP.operation("POST", "/v2/events/aggregation", writes=False)
def add_up(call: Call[r.AggregationRequest]) -> r.Aggregation:
    """Aggregate stored events by meter and group."""
    request = call.request
    points = aggregate(call.tx, request)
    return r.Aggregation(data_points=points, period=request.period, group_by=request.group_by)


def _ingested(call: Call[ingestion.RawEventBatch]) -> bytes:
    result = ingestion.ingest(call.tx, call.request)
    return _batch_response("validEvents", (used.text for used in result.accepted), result.rejected)


def _dry_run_entry(
    used: ingestion.ValidEvent,
    customer_id: str | None,
    inactive: Collection[str],
    metered: dict[str, list[CompiledMeter]],
) -> str:
    # The events of an Inactive customer are counted by no meter.
    is_counted = customer_id not in inactive
    counted = [
        (metering, metering.contribution(used.data) if is_counted else NOTHING)
        for metering in metered.get(used.name, ())
    ]
    entry = {
        "matchedCustomer": customer_id,
        "meterWithValues": [
            {
                "name": metering.meter.name,
                "eventName": metering.meter.event_name,
                "aggregationMethod": metering.method,
                "value": contribution.value,
                "instanceValue": contribution.instance,
            }
            for metering, contribution in counted
        ],
    }
    return f'{{"event":{used.text},{strict_json.dumps(entry).decode()[1:]}'


def _batch_response(name: str, events: Iterable[str], refused: Iterable[tuple[object, str]]) -> bytes:
    """Return the response, with the JSON of each event."""
    invalid = strict_json.dumps([{"event": sent, "error": why} for sent, why in refused])
    return b'{"%b":[%b],"invalidEvents":%b}' % (name.encode(), ",".join(events).encode(), invalid)


MEASUREMENTS_GROUP = OperationGroup(
    "meters",
    name="measurements",
    about="Usage that was measured elsewhere: totals of a day, and cloud usage.",
)
CLOUD_USAGE_GROUP = OperationGroup("meters", prefix="/cloudUsageSubmission", name="cloudUsage")


@MEASUREMENTS_GROUP.operation("POST", "/measurements", name="create")
def set_measurement_of_day(call: Call[r.NewMeasurement]) -> r.MeasurementResponse:
    """Set a customer's usage of one day; it replaces the usage of that day's events."""
    return r.MeasurementResponse(measurement=ingestion.set_measurement(call.tx, call.request))


@CLOUD_USAGE_GROUP.operation("POST", "", name="submit")
def submit_cloud_usage(call: Call[r.CloudUsageSubmission]) -> None:
    """Submit results of usage to a marketplace. They are checked; no operation shows them."""
    ingestion.check_cloud_usage(call.request)


CUSTOMERS_GROUP = OperationGroup(
    "customers", prefix="/customers", about="Customers, what they have used, and their custom fields."
)
CONSUMPTIONS_GROUP = OperationGroup(
    "customers", prefix="/customers/products-consumptions", name="consumptions"
)
CUSTOM_FIELDS_GROUP = OperationGroup("customers", prefix="/customFields", name="customFields")
CONTRACTS_GROUP = OperationGroup(
    "contracts", prefix="/contracts", about="Contracts, and the plans and products that they are made of."
)
PLANS_GROUP = OperationGroup("contracts", prefix="/plans", name="plans")
CATALOG_PRODUCTS_GROUP = OperationGroup("contracts", prefix="/catalogProducts", name="catalogProducts")


@CUSTOMERS_GROUP.operation("PUT", "/{customerId}", name="update")
def update_customer(call: Call[r.CustomerUpdate]) -> r.CustomerResponse:
    """Change the fields that are given; a null clears its field."""
    stored = customers.find(call.tx, call.path["customerId"])
    # A new alias may be the name of an anonymous customer, which is merged then.
    changed = anonymous_customers.save_customer(call.tx, stored, call.request)
    if customers.is_inactive(stored) and not customers.is_inactive(changed):
        contract_lifecycle.bill_postponed_cycles(call.tx, changed.id)
    return r.CustomerResponse(customer=customer_views(call.tx, [changed])[0])


@CUSTOMERS_GROUP.operation("GET", "/integration/{integrationType}/{integrationId}")
def get_by_integration(call: Call[None]) -> r.CustomerResponse:
    """Get the customer that is linked to an external entity."""
    linked = customers.id_by_integration(call.tx, call.path["integrationType"], call.path["integrationId"])
    found = customers.find(call.tx, linked or "")
    return r.CustomerResponse(customer=customer_views(call.tx, [found])[0])


@CONSUMPTIONS_GROUP.operation("GET", "/{customerId}", name="by_id")
def consumption_by_id(call: Call[None]) -> r.ProductConsumptionsResponse:
    """Get a customer's consumption of each product in the current billing cycle."""
    return _consumption(call, call.path["customerId"])


@CONSUMPTIONS_GROUP.operation("GET", "/alias/{alias}", name="by_alias")
def consumption_by_alias(call: Call[None]) -> r.ProductConsumptionsResponse:
    """Get the consumption of the customer with this alias in the current billing cycle."""
    alias = call.path["alias"]
    return _consumption(call, customers.ids_by_alias(call.tx, [alias]).get(alias, ""))


def _consumption(call: Call[None], customer_id: str) -> r.ProductConsumptionsResponse:
    used = metered_items.customer_consumption(call.tx, customers.find(call.tx, customer_id).id)
    return r.ProductConsumptionsResponse(products_consumptions=used)


@CUSTOM_FIELDS_GROUP.operation("GET", "", name="list_all")
def list_custom_fields(call: Call[r.PageQuery]) -> r.CustomFieldPage:
    """List the definitions, oldest first."""
    page = DEFINITIONS.page(call.tx, call.request)
    return r.CustomFieldPage(custom_fields=page.items, **page.fields())


@CUSTOM_FIELDS_GROUP.operation("GET", "/{customFieldId}", name="get")
def get_custom_field(call: Call[None]) -> r.CustomFieldResponse:
    """Get a definition."""
    return r.CustomFieldResponse(custom_field=DEFINITIONS.get(call.tx, call.path["customFieldId"]))


class SentContract(r.NewContract, register=False):
    """The body of POST /contracts as the service reads it: with a planId, products are ignored.

    The client refuses both together: the specification calls them mutually exclusive. Source: spec, Contract.
    """

    model_config = ConfigDict(title="NewContract")

    @classmethod
    def from_wire(cls, data: object) -> Self:
        """Read a NewContract, dropping the fields that the plan replaces, even invalid ones."""
        if isinstance(data, dict) and data.get("planId"):
            data = {name: value for name, value in data.items() if name not in _OF_NO_PLAN}
        return super().from_wire(data)


# A planId replaces them: the service ignores them, so an invalid one must not be refused.
_OF_NO_PLAN = ("products", "productGroups")


@CONTRACTS_GROUP.operation("POST", "", name="create")
def create_contract(call: Call[SentContract]) -> r.ContractResponse:
    """Create a contract from a plan or from products; with a planId, products are ignored."""
    made = contract_lifecycle.create(call.tx, call.request)
    return r.ContractResponse(contract=made)


@CONTRACTS_GROUP.operation("GET", "", name="list_all")
def list_contracts(call: Call[r.ContractQuery]) -> r.ContractPage:
    """List the contracts, oldest first, without deleted ones."""
    request = call.request
    # Deleted contracts remain in the table: invoices and late usage refer to them.
    where = [contract.c.deleted_at.is_(None), *matching((contract.c.customer_id, request.customer_id))]
    if request.customer_external_id is not None:
        # An unknown externalId gives null, so the page is empty, as for an unknown customerId.
        owner = customer.c.external_id == request.customer_external_id
        where.append(contract.c.customer_id == select(customer.c.id).where(owner).scalar_subquery())
    page = contracts.CONTRACTS.page(call.tx, request, *where)
    return r.ContractPage(contracts=list(page.items), **page.fields())


@CONTRACTS_GROUP.operation("GET", "/{contractId}", name="get")
def get_contract(call: Call[None]) -> r.ContractResponse:
    """Get the contract with this id or externalId. The specification mentions it without a description."""
    found = contracts.find(call.tx, call.path["contractId"])
    return r.ContractResponse(contract=found)


@CONTRACTS_GROUP.operation("DELETE", "/{contractId}", name="delete")
def delete_contract(call: Call[None]) -> r.ContractResponse:
    """Delete the contract with this id or externalId."""
    deleted = contract_lifecycle.delete(call.tx, contracts.find(call.tx, call.path["contractId"]))
    return r.ContractResponse(contract=deleted)


@PLANS_GROUP.operation("GET", "/{planId}", name="get")
def get_plan(call: Call[None]) -> r.PlanResponse:
    """Get a plan."""
    return r.PlanResponse(plan=PLANS.get(call.tx, call.path["planId"]))


@CATALOG_PRODUCTS_GROUP.operation("POST", "", name="create")
def create_product(call: Call[r.NewCatalogProduct]) -> r.CatalogProductResponse:
    """Create a product."""
    request = call.request
    _check_product_name(request)
    CATALOG_PRODUCTS.check_external_id(call.tx, request.external_id)
    product = CATALOG_PRODUCTS.add(call.tx, request_document(request))
    return r.CatalogProductResponse(catalog_product=product)


@CATALOG_PRODUCTS_GROUP.operation("GET", "", name="list_all")
def list_products(call: Call[r.PageQuery]) -> r.CatalogProductPage:
    """List the products, oldest first."""
    page = CATALOG_PRODUCTS.page(call.tx, call.request)
    return r.CatalogProductPage(catalog_products=page.items, **page.fields())


@CATALOG_PRODUCTS_GROUP.operation("GET", "/{catalogProductId}", name="get")
def get_product(call: Call[None]) -> r.CatalogProductResponse:
    """Get a product."""
    return r.CatalogProductResponse(
        catalog_product=CATALOG_PRODUCTS.get(call.tx, call.path["catalogProductId"])
    )


@CATALOG_PRODUCTS_GROUP.operation("PUT", "/{catalogProductId}", name="update")
def update_product(call: Call[r.CatalogProductUpdate]) -> r.CatalogProductResponse:
    """Change the fields that are given; a null clears its field."""
    product = CATALOG_PRODUCTS.get(call.tx, call.path["catalogProductId"])
    request = call.request
    _check_product_name(request)
    # An unchanged externalId is not checked: the product itself would have it already.
    if request.external_id != product.external_id:
        CATALOG_PRODUCTS.check_external_id(call.tx, request.external_id)
    product = CATALOG_PRODUCTS.change(call.tx, product, request_document(request))
    return r.CatalogProductResponse(catalog_product=product)


def _check_product_name(request: r.CatalogProductUpdate) -> None:
    # In an update a name that is left out stays; one that is null or blank would be lost.
    if "name" in request.model_fields_set and not (request.name or "").strip():
        raise invalid_request("a product has a name: give one that is not empty", "name")


INVOICES_GROUP = OperationGroup("invoices", prefix="/invoices", about="Invoices and their payment states.")


@INVOICES_GROUP.operation("GET", "")
def list_all(call: Call[r.InvoiceQuery]) -> InvoicePageView:
    """List the invoices, oldest first; issuedAfter is inclusive, issuedBefore exclusive."""
    request = call.request
    # The model accepts any text, as future statuses of the service; here a typing error is more likely.
    check_choice(request.billing_status, r.BillingStatus, "billingStatus")
    where = matching(
        (invoice.c.customer_id, request.customer_id), (invoice.c.billing_status, request.billing_status)
    )
    if request.issued_after is not None:
        where.append(invoice.c.issued_at >= request.issued_after)
    if request.issued_before is not None:
        where.append(invoice.c.issued_at < request.issued_before)
    page = invoices.INVOICES.page(call.tx, request, *where)
    return InvoicePageView(invoices=list(page.items), **page.fields())


@INVOICES_GROUP.operation("GET", "/{invoiceId}")
def get(call: Call[None]) -> InvoiceResponseView:
    """Get an invoice."""
    return InvoiceResponseView(invoice=invoices.INVOICES.get(call.tx, call.path["invoiceId"]))


CREDITS_GROUP = OperationGroup(
    "credits", prefix="/credits", about="Credits: the ledger, deductions and top-ups."
)


@CREDITS_GROUP.operation("GET", "")
def list_credits(call: Call[r.CreditLedgerQuery]) -> LedgerPageView:
    """List a customer's credit ledger, oldest first."""
    return credit_pools.ledger_page(call.tx, call.request)


@CREDITS_GROUP.operation("POST", "/deduct")
def deduct_credits(call: Call[r.CreditDeduction]) -> None:
    """Subtract credits from a customer's account."""
    customers.find_named(call.tx, call.request.customer_id)
    deduct(call.tx, call.request.customer_id, call.request.credit_amount)


@CREDITS_GROUP.operation("POST", "/top-up")
def top_up(call: Call[r.CreditTopUp]) -> r.CreditTopUpResponse:
    """Invoice a customer for credits, which are granted when the invoice is approved."""
    customer_id, grant = call.request.customer_id, call.request.credit_grant
    customers.check_active(customers.find_named(call.tx, customer_id))
    # Checked now: the grant is made days later, where no request could be refused.
    check_grant(grant, "creditGrant.")
    # Credits are granted at approval: they would be expired by then.
    if has_expired(call.tx, grant):
        raise invalid_request("expirationDate must be in the future", "creditGrant.expirationDate")
    invoice_id = invoices.issue_top_up_invoice(call.tx, customer_id, grant)
    return r.CreditTopUpResponse(invoice_id=invoice_id, customer_id=customer_id)
