"""Making customers and looking at them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import Customer, CustomerResponse, CustomerUpdate, PageQuery
from billhook.resources.paging import CountedPage
from billhook.sandbox.billing import claiming, customers
from billhook.sandbox.billing.customer_accounts import shown
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.tables.entities import customer
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import ListOf, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/customers", prefix="/_sandbox/customers")


class CustomerQuery(PageQuery, register=False):
    """Which customers are wanted."""

    anonymous: Annotated[
        Text | None, Field(description="`true`: only those made up for usage; `false`: only the others.")
    ] = None


class CustomerPage(CountedPage, register=False):
    """A page of customers."""

    customers: Annotated[ListOf[Customer], Field(description="The customers of this page.")]


@GROUP.operation("POST", "", takes=CustomerUpdate, gives=CustomerResponse)
def create(call: Call[CustomerUpdate]) -> CustomerResponse:
    """Create a customer, as the service's dashboard does.

    Names that usage came under when nobody had them may be claimed: that usage is the customer's then.
    """
    made = claiming.create(call.tx, call.given)
    return CustomerResponse(customer=shown(call.tx, [made])[0])


@GROUP.operation("GET", "", takes=CustomerQuery, gives=CustomerPage)
def list_all(call: Call[CustomerQuery]) -> CustomerPage:
    """List the customers, oldest first."""
    wanted = call.given.anonymous
    if wanted not in (None, "true", "false"):
        raise invalid_request("anonymous is true or false", "anonymous")
    where = () if wanted is None else (customer.c.anonymous.is_(wanted == "true"),)
    page = customers.CUSTOMERS.page(call.tx, limit_of(call.given), call.given.cursor, *where)
    return CustomerPage(customers=shown(call.tx, page.items), **page.fields())


@GROUP.operation("GET", "/{customerId}", gives=CustomerResponse)
def get(call: Call[None]) -> CustomerResponse:
    """Get a customer."""
    found = customers.find(call.tx, call.path["customerId"])
    return CustomerResponse(customer=shown(call.tx, [found])[0])
