"""`billhook api`: the read commands, one group for each kind of object in the service's API."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from billhook.cli.api.calls import limit_option, open_client, print_items, print_one
from billhook.cli.params import TEXT, TIME, as_json

__all__ = [
    "catalog_products",
    "contracts",
    "credits_",
    "custom_fields",
    "customers",
    "events",
    "invoices",
    "plans",
]

since = click.option(
    "--since", type=TIME, required=True, help="Start of the period: an age (2h, 7d) or ISO 8601."
)
until = click.option("--until", type=TIME, help="End of the period: an age or ISO 8601. Default: now.")


@click.group()
def invoices() -> None:
    """Invoices.

    \b
    Example:
      billhook api invoices list --status Overdue
    """


@invoices.command("list")
@click.option("--customer-id", type=TEXT, help="Only those of this customer.")
@click.option("--status", type=TEXT, help="Only those in this state, such as Overdue.")
@click.option("--since", type=TIME, help="Issued after this time: an age (2h, 7d) or ISO 8601.")
@click.option("--until", type=TIME, help="Issued before this time: an age (2h, 7d) or ISO 8601.")
@limit_option
@as_json
def list_invoices(
    customer_id: str | None,
    status: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """List invoices.

    \b
    Example:
      billhook api invoices list --customer-id cus_1042 --since 30d --json
    """
    with open_client() as client:
        listed = client.invoices.list(
            customer_id=customer_id, billing_status=status, issued_after=since, issued_before=until
        )
        print_items("invoices", listed, limit, as_json)


@invoices.command("get")
@click.argument("invoice_id", type=TEXT)
@as_json
def get_invoice(invoice_id: str, as_json: bool) -> None:
    """Show an invoice.

    \b
    Example:
      billhook api invoices get inv_3007
    """
    with open_client() as client:
        print_one(client.invoices.get(invoice_id), as_json)


@click.group("credits")
def credits_() -> None:
    """The credit ledger.

    \b
    Example:
      billhook api credits list cus_1042
    """


@credits_.command("list")
@click.argument("customer_id", type=TEXT)
@limit_option
@as_json
def list_entries(customer_id: str, limit: int, as_json: bool) -> None:
    """List the entries of a customer's ledger.

    \b
    Example:
      billhook api credits list cus_1042 --limit 500 --json
    """
    with open_client() as client:
        print_items("credits", client.credits.list(customer_id), limit, as_json)


@click.group()
def events() -> None:
    """Usage events.

    \b
    Example:
      billhook api events query --since 2h
    """


@events.command()
@since
@until
@click.option("--name", type=TEXT, help="Only events of this name.")
@click.option("--alias", type=TEXT, help="Only events with this customer alias.")
@limit_option
@as_json
def query(
    since: datetime, until: datetime | None, name: str | None, alias: str | None, limit: int, as_json: bool
) -> None:
    """List the usage events of a period.

    \b
    Example:
      billhook api events query --since 7d --alias acme --json
    """
    with open_client() as client:
        matching = client.events.query(
            since,
            until or datetime.now(UTC),
            event_name=name,
            customer_alias=alias,
            limit=min(limit + 1, 1000),  # the size of a page: no more than needed, and what the API allows
        )
        print_items("events", matching, limit, as_json)


@events.command()
@click.argument("customer_id", type=TEXT)
@since
@until
@click.option(
    "--meter", "meters", type=TEXT, multiple=True, required=True, metavar="KEY=EVENTNAME",
    help="A meter: a key for its figures and the name of the events it counts. May be repeated.",
)  # fmt: skip
@click.option(
    "--group-by",
    type=TEXT,
    required=True,
    help="What to group by. The specification does not list the values.",
)
@click.option("--fill-dates", is_flag=True, help="Include dates without events.")
@as_json
def aggregate(
    customer_id: str,
    since: datetime,
    until: datetime | None,
    meters: tuple[str, ...],
    group_by: str,
    fill_dates: bool,
    as_json: bool,
) -> None:
    """Aggregate a customer's usage over a period.

    \b
    Example:
      billhook api events aggregate cus_1042 --since 30d --meter calls=api_call --group-by day
    """
    # Split at the first "=": a key has none, the name of a user's event may.
    pairs = [meter.partition("=") for meter in meters]
    wrong = next(
        (meter for meter, pair in zip(meters, pairs, strict=True) if not (pair[0] and pair[2])), None
    )
    if wrong is not None:
        raise click.UsageError(f"--meter {wrong!r} is not KEY=EVENTNAME, such as calls=api_call")
    request = {
        "customer_id": customer_id,
        "period": {"start_time": since, "end_time": until or datetime.now(UTC)},
        "meters": [{"key": key, "event_name": name} for key, _, name in pairs],
        "group_by": group_by,
        **({"fill_dates": True} if fill_dates else {}),
    }
    with open_client() as client:
        print_one(client.events.aggregate(request), as_json)


@click.group()
def customers() -> None:
    """Customers. The service's API cannot list them.

    \b
    Example:
      billhook api customers consumptions cus_1042
    """


@customers.command("get")
@click.argument("integration_type", type=TEXT)
@click.argument("integration_id", type=TEXT)
@as_json
def get_customer(integration_type: str, integration_id: str, as_json: bool) -> None:
    """Show the customer that is linked to an entity of another provider.

    \b
    Example:
      billhook api customers get Salesforce 0015g00000XyZ
    """
    with open_client() as client:
        print_one(client.customers.get_by_integration(integration_type, integration_id), as_json)


@customers.command()
@click.argument("customer_id", type=TEXT, required=False)
@click.option("--alias", type=TEXT, help="The customer's alias, instead of CUSTOMER_ID.")
@as_json
def consumptions(customer_id: str | None, alias: str | None, as_json: bool) -> None:
    """Show how much of each product a customer has used.

    \b
    Example:
      billhook api customers consumptions --alias acme
    """
    if (customer_id is None) == (alias is None):
        raise click.UsageError("give either CUSTOMER_ID or --alias")
    with open_client() as client:
        if alias is not None:
            products = client.customers.products_consumptions_by_alias(alias)
        else:
            products = client.customers.products_consumptions(customer_id or "")
    print_items("consumptions", iter(products), len(products), as_json)


@click.group()
def contracts() -> None:
    """Contracts. The service's API cannot fetch a single one.

    \b
    Example:
      billhook api contracts list --limit 10
    """


@contracts.command("list")
@click.option("--customer-id", type=TEXT, help="Only those of this customer.")
@click.option("--customer-external-id", type=TEXT, help="Only those of the customer with this external id.")
@limit_option
@as_json
def list_contracts(
    customer_id: str | None, customer_external_id: str | None, limit: int, as_json: bool
) -> None:
    """List contracts.

    \b
    Example:
      billhook api contracts list --customer-id cus_1042 --json
    """
    with open_client() as client:
        listed = client.contracts.list(customer_id=customer_id, customer_external_id=customer_external_id)
        print_items("contracts", listed, limit, as_json)


@click.group()
def plans() -> None:
    """Plans.

    \b
    Example:
      billhook api plans get plan_3
    """


@plans.command("get")
@click.argument("plan_id", type=TEXT)
@as_json
def get_plan(plan_id: str, as_json: bool) -> None:
    """Show a plan.

    \b
    Example:
      billhook api plans get plan_3 --json
    """
    with open_client() as client:
        print_one(client.plans.get(plan_id), as_json)


@click.group("catalog-products")
def catalog_products() -> None:
    """Products of the catalog.

    \b
    Example:
      billhook api catalog-products list
    """


@catalog_products.command("list")
@limit_option
@as_json
def list_products(limit: int, as_json: bool) -> None:
    """List the products.

    \b
    Example:
      billhook api catalog-products list --json | jq '.[].name'
    """
    with open_client() as client:
        print_items("catalog_products", client.catalog_products.list(), limit, as_json)


@catalog_products.command("get")
@click.argument("catalog_product_id", type=TEXT)
@as_json
def get_product(catalog_product_id: str, as_json: bool) -> None:
    """Show a product.

    \b
    Example:
      billhook api catalog-products get prd_55
    """
    with open_client() as client:
        print_one(client.catalog_products.get(catalog_product_id), as_json)


@click.group("custom-fields")
def custom_fields() -> None:
    """Definitions of custom fields.

    \b
    Example:
      billhook api custom-fields list
    """


@custom_fields.command("list")
@limit_option
@as_json
def list_fields(limit: int, as_json: bool) -> None:
    """List the definitions.

    \b
    Example:
      billhook api custom-fields list --limit 200
    """
    with open_client() as client:
        print_items("custom_fields", client.custom_fields.list(), limit, as_json)


@custom_fields.command("get")
@click.argument("custom_field_id", type=TEXT)
@as_json
def get_field(custom_field_id: str, as_json: bool) -> None:
    """Show a definition.

    \b
    Example:
      billhook api custom-fields get cfd_4
    """
    with open_client() as client:
        print_one(client.custom_fields.get(custom_field_id), as_json)
