"""Making plans with the products that they sell, and looking at them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import BillingData, ContractProduct, PageQuery, Plan, Resource
from billhook.resources.paging import CountedPage
from billhook.sandbox.billing import plans, terms
from billhook.sandbox.billing.catalog import PRODUCTS
from billhook.sandbox.billing.contract_offer import check_billing, period_of_plan, period_of_products
from billhook.sandbox.limits import MAX_PRODUCTS
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.documents import as_sent
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.storage.tables.entities import plan
from billhook.sandbox.transaction import Transaction
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import ListOf, MaybeListOf, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/plans", prefix="/_sandbox/plans")

Products = Annotated[MaybeListOf[ContractProduct], Field(description="What it sells.")]


class NewPlan(Resource, register=False):
    """A plan to be made."""

    name: Annotated[Text, Field(description="Name of the plan.", examples=["Growth"])]
    external_id: Annotated[
        Text | None, Field(description="Id in your own system.", examples=["plan-growth"])
    ] = None
    status: Annotated[Text | None, Field(description="State; Active if not given.")] = None
    billing_data: Annotated[
        BillingData | None, Field(description="How it is billed; billingInterval is Monthly if not given.")
    ] = None
    products: Products = None


class FullPlan(Plan, register=False):
    """A plan with its products."""

    products: Products = None


class FullPlanResponse(Resource, register=False):
    """A plan."""

    plan: Annotated[FullPlan, Field(description="The plan.")]


class FullPlanPage(CountedPage, register=False):
    """A page of plans."""

    plans: Annotated[ListOf[FullPlan], Field(description="The plans of this page.")]


@GROUP.operation("POST", "", takes=NewPlan, gives=FullPlanResponse)
def create(call: Call[NewPlan]) -> FullPlanResponse:
    """Create a plan."""
    given = call.given
    _check(call.tx, given)
    data = as_sent(given)
    data.pop("products", None)
    billing: dict[str, object] = data.get("billingData") or {}
    data["billingData"] = {**billing, "billingInterval": billing.get("billingInterval") or "Monthly"}
    data["status"] = given.status or "Active"
    made = plans.PLANS.add(
        call.tx, data, external_id=given.external_id, products=plans.as_text(given.products or [])
    )
    return FullPlanResponse(plan=_full(made, given.products or []))


@GROUP.operation("GET", "", takes=PageQuery, gives=FullPlanPage)
def list_all(call: Call[PageQuery]) -> FullPlanPage:
    """List the plans with their products, oldest first."""
    page = plans.PLANS.page(call.tx, limit_of(call.given), call.given.cursor)
    sold = plans.products(call.tx, [each.id for each in page.items])
    return FullPlanPage(plans=[_full(each, sold[each.id]) for each in page.items], **page.fields())


def _full(stored: Plan, sold: list[ContractProduct]) -> FullPlan:
    given = {name: getattr(stored, name) for name in stored.model_fields_set}
    return FullPlan.model_validate({**given, **(stored.model_extra or {}), "products": sold}, by_name=True)


def _check(tx: Transaction, given: NewPlan) -> None:
    if not given.name.strip():
        raise invalid_request("name is empty: give one", "name")
    if given.external_id is not None:
        check_key(given.external_id, "externalId")
        if plans.PLANS.first(tx, plan.c.external_id == given.external_id):
            raise invalid_request("another plan has this externalId", "externalId", code="already_exists")
    interval = given.billing_data and given.billing_data.billing_interval
    if interval not in (None, *plans.BILLING_INTERVALS):
        raise invalid_request(
            f"billingInterval is one of {', '.join(plans.BILLING_INTERVALS)}", "billingData.billingInterval"
        )
    if given.billing_data is not None:
        check_billing(given.billing_data, "billingData")
    if len(given.products or []) > MAX_PRODUCTS:
        raise invalid_request(f"a plan sells at most {MAX_PRODUCTS} products", "products")
    for n, product in enumerate(given.products or []):
        terms.check(product, f"products.{n}")
        wanted = product.catalog_product_id
        if wanted is not None and PRODUCTS.find(tx, wanted) is None:
            raise invalid_request("there is no such catalog product", f"products.{n}.catalogProductId")
    sold = [(f"products.{n}", product) for n, product in enumerate(given.products or [])]
    period_of_products(sold, period_of_plan(given.billing_data))
