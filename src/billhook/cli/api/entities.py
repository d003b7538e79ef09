"""`billhook api`: customers, contracts, plans, products and custom fields."""

from __future__ import annotations

import click

from billhook.cli.api.connection import open_client
from billhook.cli.api.output import limit_option, print_items, print_one
from billhook.cli.params import TEXT, as_json

__all__ = ["catalog_products", "contracts", "custom_fields", "customers", "plans"]


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
            found = client.customers.products_consumptions_by_alias(alias)
        else:
            found = client.customers.products_consumptions(customer_id or "")
    print_items("consumptions", iter(found), len(found), as_json)


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
        found = client.contracts.list(customer_id=customer_id, customer_external_id=customer_external_id)
        print_items("contracts", found, limit, as_json)


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
