"""Plans. Source: spec, "Resources and their fields", Plan; "Endpoints", Plans."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from billhook.resources.base import READ_ONLY, Resource, Stored
from billhook.wire.fields import Flag, Integer, Number, Text, recognised

__all__ = ["BillingData", "BillingDate", "Plan", "PlanResponse", "PlanStatus"]


class PlanStatus(StrEnum):
    """The states that are listed."""

    ACTIVE = "Active"


class BillingDate(Resource):
    """The day on which a plan is billed.

    Source: spec, "Resources and their fields", Plan, billingData.
    """

    anchor: Annotated[Text | None, Field(description="What the day is counted from.")] = None
    day_of_month: Annotated[Integer | None, Field(description="The day of the month.", examples=[1])] = None


class BillingData(Resource):
    """How a plan is billed.

    Source: spec, "Resources and their fields", Plan, billingData.
    """

    billing_interval: Annotated[Text | None, Field(description="How often.", examples=["Monthly"])] = None
    duration: Annotated[Number | None, Field(description="How long.", examples=[Decimal(12)])] = None
    payment_term: Annotated[Text | None, Field(description="When payment is due.")] = None
    auto_renewal: Annotated[Flag | None, Field(description="Is it renewed by itself?")] = None
    pro_rated: Annotated[Flag | None, Field(description="Is a part of an interval billed in part?")] = None
    billing_date: Annotated[BillingDate | None, Field(description="On which day.")] = None


class Plan(Stored):
    """A plan, which this interface only reads.

    Source: spec, "Resources and their fields", Plan.
    """

    name: Annotated[Text | None, READ_ONLY, Field(description="Name of the plan.", examples=["Growth"])] = (
        None
    )
    status: Annotated[
        Annotated[Text, AfterValidator(recognised(PlanStatus))] | None,
        READ_ONLY,
        Field(description="State: Active, or another.", examples=["Active"]),
    ] = None
    billing_data: Annotated[BillingData | None, READ_ONLY, Field(description="How it is billed.")] = None
    external_id: Annotated[
        Text | None, READ_ONLY, Field(description="Id in your own system.", examples=["plan-growth"])
    ] = None


class PlanResponse(Resource):
    """The response of GET /plans/{planId}.

    Source: spec, "Endpoints", Plans.
    """

    plan: Annotated[Plan, Field(description="The plan.")]
