"""The operations of the API, in the groups of the specification.

Source: spec, "Endpoints". It shows no operation that creates, lists or deletes customers, lists or removes
subscriptions, grants credits directly, or fetches one contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

from billhook import resources as r
from billhook.client.ingestion import EventInput, EventResult, Progress, ingest
from billhook.client.operation import AnyOperation, ApiOperation, Listing, ListingPage
from billhook.client.session import LOGIN, Session
from billhook.events import Event
from billhook.fields.types import BillingStatusWord

P = TypeVar("P", bound=r.Page)
T = TypeVar("T")
Fields = Mapping[str, Any]
"""The fields of a request, in Python's spelling or in the API's."""


class ApiGroup:
    """The operations of one section of the specification; an attribute of BillingClient.

    Each method's operation has the method's name in capitals.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def _list(
        self, operation: ApiOperation[P], items: Callable[[P], Sequence[T]], **parameters: object
    ) -> Listing[T]:
        """Return the list for a query with these parameters, without sending a request yet.

        Parameters that are None are left out.
        """
        # Validate the query now, so that a mistake is raised here and not at the first iteration.
        asked = operation.request.model_validate(_given(**parameters)).to_query()

        def fetch(cursor: str | None) -> ListingPage[T]:
            # The filters go with every page: the specification does not say that a cursor contains them.
            place = {"cursor": cursor} if cursor else {}
            answered = self._session.call(operation, query={**asked, **place})
            total = getattr(answered, "total", None)
            return ListingPage(
                tuple(items(answered)),
                None if total is None else int(total),
                # The specification shows hasMore for some lists only; in other lists a cursor means that
                # there is more.
                answered.has_more if "has_more" in answered.model_fields_set else bool(answered.next_cursor),
                answered.next_cursor,
            )

        return Listing(operation.name, fetch)


def _given(**parameters: object) -> dict[str, object]:
    return {name: value for name, value in parameters.items() if value is not None}


class Auth(ApiGroup):
    """The login. Every other operation logs in by itself when it needs a token."""

    LOGIN = LOGIN

    def login(self) -> datetime:
        """Fetch a new access token now, to check the credentials; return when it expires (UTC).

        The token stays in the client. Calls POST /login. Raises AuthenticationFailed, or another ApiError.
        """
        return self._session.log_in()


class Events(ApiGroup):
    """Usage events."""

    QUERY = ApiOperation("GET", "/events", r.EventPage, r.EventQuery)
    # Idempotent: the service stores an event once for each `ref`, however often it is sent.
    SUBMIT_V1 = ApiOperation("PUT", "/events", r.IngestionResult, r.EventBatch, idempotent=True)
    SUBMIT = ApiOperation("POST", "/v2/events", r.IngestionResult, r.EventBatch, idempotent=True)
    # Idempotent although they are POST: they change nothing.
    DRY_RUN = ApiOperation("POST", "/events/dry-run", r.DryRunResult, r.EventBatch, idempotent=True)
    AGGREGATE = ApiOperation(
        "POST", "/v2/events/aggregation", r.Aggregation, r.AggregationRequest, idempotent=True
    )

    def query(
        self,
        start_time: datetime | str,
        end_time: datetime | str,
        *,
        event_name: str | None = None,
        customer_alias: str | None = None,
        limit: int | None = None,
    ) -> Listing[r.UsageEvent]:
        """List the usage events of a period. It ends before `end_time`; a page has at most 1000 (`limit`).

        Calls GET /events. Raises RuleBroken for a larger limit.
        """
        return self._list(
            self.QUERY,
            lambda page: page.events,
            start_time=start_time,
            end_time=end_time,
            event_name=event_name,
            customer_alias=customer_alias,
            limit=limit,
        )

    def submit(self, events: Iterable[EventInput]) -> r.IngestionResult:
        """Send one batch of 1 to 1000 events, at most 256 KB. Calls POST /v2/events.

        The client may repeat the call: the response then lists events that the first attempt stored as
        invalid, because their refs exist; `ingest` tells them from wrong ones. Raises RuleBroken for a batch
        outside these limits.
        """
        return self._session.call(self.SUBMIT, body={"events": list(events)})

    def submit_v1(self, events: Iterable[EventInput]) -> r.IngestionResult:
        """Send one batch like `submit`, by the older endpoint. Calls PUT /events."""
        return self._session.call(self.SUBMIT_V1, body={"events": list(events)})

    def ingest(
        self,
        events: Iterable[EventInput],
        *,
        on_progress: Callable[[Progress], object] | None = None,
    ) -> Iterator[EventResult]:
        """Send any number of events in batches, and yield the result of each event, in order.

        It is lazy: iterate to send, `for result in client.events.ingest(events)`. `on_progress` is called
        after each batch. Calls POST /v2/events. Raises ApiError if a batch cannot be sent (ConfigError if the
        client was closed), after it has yielded the batch's results as `unconfirmed`: these events can safely
        be sent again. An exception of `events` itself is passed on; events without a result were not sent
        then.

        The text of a refusal is not interpreted: see EventState on what counts as a duplicate.
        """
        send = partial(self._session.call, self.SUBMIT)
        return ingest(events, send, on_progress, clean=self._session.parser.displayable)

    def dry_run(self, events: Iterable[EventInput]) -> r.DryRunResult:
        """Return how the service would ingest a batch, without storing it; limits as for `submit`.

        Calls POST /events/dry-run.
        """
        return self._session.call(self.DRY_RUN, body={"events": list(events)})

    def aggregate(self, request: r.AggregationRequest | Fields) -> r.Aggregation:
        """Aggregate stored events by meter and group. Calls POST /v2/events/aggregation."""
        return self._session.call(self.AGGREGATE, body=request)


class Measurements(ApiGroup):
    """Measurements: the usage of a day as one figure."""

    # The specification does not show what a second measurement of a day does.
    CREATE = ApiOperation("POST", "/measurements", r.MeasurementResponse, r.NewMeasurement)

    def create(self, measurement: r.NewMeasurement | Fields) -> r.Measurement:
        """Set a customer's usage of one day. Calls POST /measurements."""
        return self._session.call(self.CREATE, body=measurement).measurement


class Customers(ApiGroup):
    """Customers, and their consumption of products. The API cannot list customers."""

    # A PUT that arrives twice sets the same values again.
    UPDATE = ApiOperation(
        "PUT", "/customers/{customerId}", r.CustomerResponse, r.CustomerUpdate, idempotent=True
    )
    GET_BY_INTEGRATION = ApiOperation(
        "GET", "/customers/integration/{integrationType}/{integrationId}", r.CustomerResponse
    )
    PRODUCTS_CONSUMPTIONS = ApiOperation(
        "GET", "/customers/products-consumptions/{customerId}", r.ProductConsumptionsResponse
    )
    PRODUCTS_CONSUMPTIONS_BY_ALIAS = ApiOperation(
        "GET", "/customers/products-consumptions/alias/{alias}", r.ProductConsumptionsResponse
    )

    def update(self, customer_id: str, customer: r.CustomerUpdate | Fields) -> r.Customer:
        """Change the fields of a customer that `customer` contains; the others stay.

        Calls PUT /customers/{customerId}. Raises ResourceNotFound.
        """
        return self._session.call(self.UPDATE, customer_id, body=customer).customer

    def get_by_integration(self, integration_type: str, integration_id: str) -> r.Customer:
        """Get the customer linked to an entity of another provider.

        Calls GET /customers/integration/{integrationType}/{integrationId}. Raises ResourceNotFound.
        """
        return self._session.call(self.GET_BY_INTEGRATION, integration_type, integration_id).customer

    def products_consumptions(self, customer_id: str) -> list[r.ProductConsumption]:
        """Get a customer's consumption of each product in the current billing cycle.

        Calls GET /customers/products-consumptions/{customerId}. Raises ResourceNotFound.
        """
        return self._session.call(self.PRODUCTS_CONSUMPTIONS, customer_id).products_consumptions

    def products_consumptions_by_alias(self, alias: str) -> list[r.ProductConsumption]:
        """Get the consumption of the customer with this alias, as `products_consumptions` does.

        Calls GET /customers/products-consumptions/alias/{alias}. Raises ResourceNotFound.
        """
        return self._session.call(self.PRODUCTS_CONSUMPTIONS_BY_ALIAS, alias).products_consumptions


class Contracts(ApiGroup):
    """Contracts of customers. The specification shows no operation that fetches a single one."""

    CREATE = ApiOperation("POST", "/contracts", r.ContractResponse, r.NewContract)
    LIST = ApiOperation("GET", "/contracts", r.ContractPage, r.ContractQuery)
    # The specification implies this operation, and shows neither its request nor its response.
    GET = ApiOperation("GET", "/contracts/{contractId}", r.ContractResponse)
    # A second DELETE would be answered "no such contract", as if the first had done nothing.
    DELETE = ApiOperation("DELETE", "/contracts/{contractId}", r.ContractResponse)

    def create(self, contract: r.NewContract | Fields) -> r.Contract:
        """Create a contract. Calls POST /contracts.

        Raises RuleBroken for a planId together with products, and for neither a plan nor a name.
        """
        return self._session.call(self.CREATE, body=contract).contract

    def list(
        self,
        *,
        customer_id: str | None = None,
        customer_external_id: str | None = None,
        limit: int | None = None,
    ) -> Listing[r.Contract]:
        """List the contracts, of one customer or all. `limit` is for a page. Calls GET /contracts.

        Raises RuleBroken if both a customer id and an external id are given.
        """
        filters = {"customer_id": customer_id, "customer_external_id": customer_external_id}
        return self._list(self.LIST, lambda page: page.contracts, limit=limit, **filters)

    def get(self, contract_id: str) -> r.Contract:
        """Get the contract with this id or externalId. Calls GET /contracts/{contractId}.

        The specification implies the operation ("Fetching one contract") without showing it; the response is
        parsed like those of the other operations on one contract. Raises ResourceNotFound.
        """
        return self._session.call(self.GET, contract_id).contract

    def delete(self, contract_id: str) -> r.Contract:
        """Delete the contract with this id or externalId. Calls DELETE /contracts/{contractId}.

        Raises ResourceNotFound.
        """
        return self._session.call(self.DELETE, contract_id).contract


class Plans(ApiGroup):
    """Plans that contracts may use."""

    GET = ApiOperation("GET", "/plans/{planId}", r.PlanResponse)

    def get(self, plan_id: str) -> r.Plan:
        """Get a plan. Calls GET /plans/{planId}. Raises ResourceNotFound."""
        return self._session.call(self.GET, plan_id).plan


class CatalogProducts(ApiGroup):
    """The products of the catalog, which contracts sell."""

    # A second request would create a second product.
    CREATE = ApiOperation("POST", "/catalogProducts", r.CatalogProductResponse, r.NewCatalogProduct)
    LIST = ApiOperation("GET", "/catalogProducts", r.CatalogProductPage, r.PageQuery)
    GET = ApiOperation("GET", "/catalogProducts/{catalogProductId}", r.CatalogProductResponse)
    UPDATE = ApiOperation("PUT", GET.path, r.CatalogProductResponse, r.CatalogProductUpdate, idempotent=True)

    def create(self, product: r.NewCatalogProduct | Fields) -> r.CatalogProduct:
        """Create a product. Calls POST /catalogProducts."""
        return self._session.call(self.CREATE, body=product).catalog_product

    def list(self, *, limit: int | None = None) -> Listing[r.CatalogProduct]:
        """List the products of the catalog. `limit` is for a page. Calls GET /catalogProducts."""
        return self._list(self.LIST, lambda page: page.catalog_products, limit=limit)

    def get(self, catalog_product_id: str) -> r.CatalogProduct:
        """Get a product. Calls GET /catalogProducts/{catalogProductId}. Raises ResourceNotFound."""
        return self._session.call(self.GET, catalog_product_id).catalog_product

    def update(self, catalog_product_id: str, product: r.CatalogProductUpdate | Fields) -> r.CatalogProduct:
        """Change the fields of a product that `product` contains; the others stay.

        Calls PUT /catalogProducts/{catalogProductId}. Raises ResourceNotFound.
        """
        return self._session.call(self.UPDATE, catalog_product_id, body=product).catalog_product


class Invoices(ApiGroup):
    """Invoices."""

    LIST = ApiOperation("GET", "/invoices", r.InvoicePage, r.InvoiceQuery)
    GET = ApiOperation("GET", "/invoices/{invoiceId}", r.InvoiceResponse)

    def list(
        self,
        *,
        customer_id: str | None = None,
        billing_status: BillingStatusWord | None = None,
        issued_after: datetime | str | None = None,
        issued_before: datetime | str | None = None,
        limit: int | None = None,
    ) -> Listing[r.Invoice]:
        """List the invoices that match all filters. `limit` is for a page. Calls GET /invoices."""
        return self._list(
            self.LIST,
            lambda page: page.invoices,
            customer_id=customer_id,
            billing_status=billing_status,
            issued_after=issued_after,
            issued_before=issued_before,
            limit=limit,
        )

    def get(self, invoice_id: str) -> r.Invoice:
        """Get an invoice. Calls GET /invoices/{invoiceId}. Raises ResourceNotFound."""
        return self._session.call(self.GET, invoice_id).invoice


class Credits(ApiGroup):
    """The credits of customers, and their ledgers."""

    LIST = ApiOperation("GET", "/credits", r.CreditLedgerPage, r.CreditLedgerQuery)
    # A repeated request would deduct or bill twice.
    DEDUCT = ApiOperation("POST", "/credits/deduct", r.Resource, r.CreditDeduction)
    TOP_UP = ApiOperation("POST", "/credits/top-up", r.CreditTopUpResponse, r.CreditTopUp)

    def list(self, customer_id: str, *, limit: int | None = None) -> Listing[r.CreditLedgerEntry]:
        """List the entries of a customer's credit ledger. `limit` is for a page. Calls GET /credits."""
        return self._list(self.LIST, lambda page: page.entries, customer_id=customer_id, limit=limit)

    def deduct(self, customer_id: str, credit_amount: Decimal | int | float) -> dict[str, Any]:
        """Subtract an amount from the customer's credits. Calls POST /credits/deduct.

        Returns the response as plain values, {} if it is empty: the specification does not show it.
        """
        deduction = {"customer_id": customer_id, "credit_amount": credit_amount}
        return self._session.call(self.DEDUCT, body=deduction).model_extra or {}

    def top_up(self, customer_id: str, credit_grant: r.CreditGrant | Fields) -> r.CreditTopUpResponse:
        """Invoice a customer for credits, which are granted when the invoice is approved.

        Calls POST /credits/top-up.
        """
        top_up = {"customer_id": customer_id, "credit_grant": credit_grant}
        return self._session.call(self.TOP_UP, body=top_up)


class CustomFields(ApiGroup):
    """The definitions of custom fields. Customers and contracts contain the values."""

    LIST = ApiOperation("GET", "/customFields", r.CustomFieldPage, r.PageQuery)
    GET = ApiOperation("GET", "/customFields/{customFieldId}", r.CustomFieldResponse)

    def list(self, *, limit: int | None = None) -> Listing[r.CustomField]:
        """List the definitions of custom fields. `limit` is for a page. Calls GET /customFields."""
        return self._list(self.LIST, lambda page: page.custom_fields, limit=limit)

    def get(self, custom_field_id: str) -> r.CustomField:
        """Get a custom field's definition. Calls GET /customFields/{customFieldId}.

        Raises ResourceNotFound.
        """
        return self._session.call(self.GET, custom_field_id).custom_field


class CloudUsage(ApiGroup):
    """The results of usage that was submitted to a cloud marketplace."""

    # Results have idempotency keys, but the specification does not show how they are used.
    SUBMIT = ApiOperation("POST", "/cloudUsageSubmission", r.Resource, r.CloudUsageSubmission)

    def submit(self, submission: r.CloudUsageSubmission | Fields) -> None:
        """Submit the results to the service. Calls POST /cloudUsageSubmission, whose response is empty."""
        self._session.call(self.SUBMIT, body=submission)


class Webhooks(ApiGroup):
    """Subscriptions to events."""

    # The specification does not show whether a second request makes a second subscription.
    SUBSCRIBE = ApiOperation("POST", "/webhook", r.Resource, r.WebhookSubscription)

    def subscribe(
        self,
        callback_url: str,
        event_type: str | type[Event],
        *,
        threshold: Decimal | int | float | None = None,
        recurring_threshold: Decimal | int | float | None = None,
    ) -> dict[str, Any]:
        """Subscribe a URL to one type of event: its name, or its class in billhook.events.

        Calls POST /webhook. Returns the response as plain values, {} if it is empty: the specification does
        not show it. Raises RuleBroken for a threshold of a type that has none.
        """
        name = event_type if isinstance(event_type, str) else event_type.type
        # Null and absent may differ for the service: only given thresholds are sent.
        thresholds = _given(threshold=threshold, recurring_threshold=recurring_threshold)
        body = {"callback_url": callback_url, "event_type": name, **thresholds}
        return self._session.call(self.SUBSCRIBE, body=body).model_extra or {}


class OperationGroups:
    """The groups of operations, as attributes of a client."""

    auth: Auth
    events: Events
    measurements: Measurements
    customers: Customers
    contracts: Contracts
    plans: Plans
    catalog_products: CatalogProducts
    invoices: Invoices
    credits: Credits
    custom_fields: CustomFields
    cloud_usage: CloudUsage
    webhooks: Webhooks

    def __init__(self, session: Session) -> None:
        self._session = session
        for name, group in GROUPS.items():
            setattr(self, name, group(session))


GROUPS: Mapping[str, type[ApiGroup]] = MappingProxyType(get_type_hints(OperationGroups))
"""The class of each group by its attribute."""

IMPLIED: Mapping[str, AnyOperation] = MappingProxyType({"contracts.get": Contracts.GET})
"""Operations that the specification implies without showing an endpoint, by the method that calls them."""

OPERATIONS: Mapping[str, AnyOperation] = MappingProxyType(
    {
        f"{name}.{attribute.lower()}": operation
        for name, group in GROUPS.items()
        for attribute, operation in vars(group).items()
        if isinstance(operation, ApiOperation) and operation not in IMPLIED.values()
    }
)
"""Every other operation by the method of BillingClient that calls it."""
