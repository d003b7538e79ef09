"""The fields that several events share: each is described here once, or in `billhook.wire.fields`.

Source: spec, "Events", rule 2 and the table.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.wire.fields import Aliases as Aliases
from billhook.wire.fields import CustomerId as CustomerId
from billhook.wire.fields import ExceededAmount as ExceededAmount
from billhook.wire.fields import Flag as Flag
from billhook.wire.fields import InvoiceId as InvoiceId
from billhook.wire.fields import Moment as Moment
from billhook.wire.fields import Number as Number
from billhook.wire.fields import ProductId as ProductId
from billhook.wire.fields import ProductName as ProductName
from billhook.wire.fields import Text as Text
from billhook.wire.fields import recognised as recognised

RaisedAt = Annotated[
    Moment, Field(description="When the event was raised.", examples=["2026-01-15T09:30:00Z"])
]

NameOfCustomer = Annotated[Text, Field(description="Name of the customer.", examples=["Acme Ltd"])]
# Texts that describe: where there is none, the service may say null. Ids are never null.
CustomerName = Annotated[Text | None, Field(description="Name of the customer.", examples=["Acme Ltd"])]
ExternalId = Annotated[
    Text | None,
    Field(description="Id that the customer has in your own system, if it has one.", examples=["crm-7731"]),
]

ContractId = Annotated[Text, Field(description="Id of the contract.", examples=["con_2001"])]
ContractName = Annotated[
    Text | None, Field(description="Name of the contract.", examples=["Acme annual 2026"])
]

Currency = Annotated[Text | None, Field(description="Currency code of the amounts.", examples=["USD"])]

Threshold = Annotated[
    Number, Field(description="The configured threshold, in percent.", examples=[Decimal(80)])
]
PctUsage = Annotated[
    Number,
    Field(
        description="How much is used, in percent, when the event was raised.", examples=[Decimal("81.25")]
    ),
]
