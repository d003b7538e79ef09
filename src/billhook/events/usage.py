"""Events about reports, the ping, and usage compared with what was provisioned. Source: spec, "Events"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, ClassVar

from pydantic import Field, StrictStr

from billhook.events.base import (
    ContractId,
    ContractName,
    Currency,
    CustomerName,
    Event,
    PctUsage,
    RaisedAt,
    Threshold,
)
from billhook.fields import WireModel
from billhook.fields.types import (
    ConsumedAmount,
    CustomerId,
    ExactDecimal,
    ExceededAmount,
    HasAccess,
    InvoiceId,
    ProductId,
    ProductName,
    ProvisionedAmount,
    RemainingAmount,
    UsagePercentage,
    UtcDatetime,
)
from billhook.fields.unstated import FLAG_IN_TEXT, NUMBER_IN_TEXT


class _Report(Event, register=False):
    """What the events about a report say.

    Source: spec, "Events".
    """

    identify: ClassVar[tuple[str, ...]] = ("report_id",)

    date: RaisedAt
    report_id: StrictStr = Field(description="Id of the report.", examples=["rep_2026_01"])


class _Tier(Event, register=False):
    """What the events about pricing tiers say.

    Source: spec, "Events".
    """

    date: RaisedAt
    customer_id: CustomerId
    contract_id: ContractId
    customer_name: CustomerName
    contract_name: ContractName


class MonthEndReport(_Report):
    """The report at the end of a month is ready.

    Source: spec, "Events". The body is shaped like UnchargedEvents': only the header tells them apart.
    """


class UnchargedEvents(_Report):
    """Some usage was counted by no meter.

    Source: spec, "Events". The body is shaped like MonthEndReport's: only the header tells them apart.
    """


class PingTest(Event):
    """A test of whether the endpoint can be reached; it says nothing else.

    Source: spec, "Events".
    """


class Overage(Event):
    """A customer used more of a product than was provisioned.

    Source: spec, "Events".
    """

    identify = ("customer_id", "invoice_id", "overage_amount")

    date: RaisedAt
    overage_amount: ExactDecimal = Field(
        description="Amount of the overage, in `currency`.", examples=[Decimal("37.50")]
    )
    invoice_id: InvoiceId
    customer_id: CustomerId
    customer_name: CustomerName
    currency: Currency


class TierCrossed(_Tier):
    """Usage moved into another pricing tier.

    Source: spec, "Events".
    """

    identify = ("customer_id", "contract_id", "variant_id")

    variant_id: StrictStr = Field(description="Id of the variant whose tier was crossed.", examples=["var_8"])


class FinalTierExceeded(_Tier):
    """Usage went beyond the last pricing tier.

    Source: spec, "Events".
    """

    identify = ("customer_id", "contract_id", "product_id")

    product_id: ProductId
    product_name: ProductName
    accumulated_units_value: ExactDecimal = Field(
        description="Accumulated usage, in units.", examples=[Decimal("1000250")]
    )


class ProductConsumptionSnapshot(WireModel):
    """How much of a product a customer had used at one moment.

    Source: spec, "Events", CommitmentCrossed: the table names the fields and states no kinds. "Resources and
    their fields", Product consumption, has numbers and a boolean.
    """

    product_id: ProductId
    product_name: ProductName
    provisioned_amount: Annotated[ProvisionedAmount, NUMBER_IN_TEXT]
    consumed_amount: Annotated[ConsumedAmount, NUMBER_IN_TEXT]
    usage_percentage: Annotated[UsagePercentage, NUMBER_IN_TEXT]
    has_access: Annotated[HasAccess, FLAG_IN_TEXT]
    remaining_amount: Annotated[RemainingAmount, NUMBER_IN_TEXT]


class CommitmentCrossed(ProductConsumptionSnapshot, Event):
    """A customer's usage passed what it had committed to.

    Source: spec, "Events". The body names neither customer nor time, so two bodies may be equal.
    """

    identify = ("product_id", "exceeded_amount")

    exceeded_amount: Annotated[ExceededAmount, NUMBER_IN_TEXT]


class CommitmentUsageCrossed(Event):
    """Usage of a commitment passed a percentage set for it.

    Source: spec, "Events".
    """

    identify = ("customer_id",)

    date: RaisedAt
    customer_id: CustomerId
    threshold: Threshold
    pct_usage: PctUsage
    product_consumption: ProductConsumptionSnapshot = Field(
        description="Product consumption when the event was raised."
    )


class CurrencyCommitmentUsageCrossed(Event):
    """Usage of a commitment made in money passed a percentage set for it.

    Source: spec, "Events".
    """

    identify = ("customer_id", "product_id", "consumed_amount")

    date: RaisedAt
    product_id: ProductId
    product_name: ProductName
    customer_id: CustomerId
    threshold: Annotated[Threshold, NUMBER_IN_TEXT]
    pct_usage: Annotated[PctUsage, NUMBER_IN_TEXT]
    currency: Currency
    committed_amount: Annotated[ExactDecimal, NUMBER_IN_TEXT] = Field(
        description="Committed amount, in `currency`.", examples=[Decimal("5000.00")]
    )
    consumed_amount: Annotated[ExactDecimal, NUMBER_IN_TEXT] = Field(
        description="Consumed amount, in `currency`.", examples=[Decimal("4062.50")]
    )
    cycle_start: UtcDatetime = Field(
        description="Start of the billing cycle.", examples=["2026-01-01T00:00:00Z"]
    )
