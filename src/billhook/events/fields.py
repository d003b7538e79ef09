"""The fields that several events share: each is described here once, or in `billhook.wire.fields`.

Source: spec, "Events", rule 2 and the table.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictStr

from billhook.wire.fields import ExactDecimal, UtcDatetime

RaisedAt = Annotated[
    UtcDatetime, Field(description="Time at which the event was raised.", examples=["2026-01-15T09:30:00Z"])
]

NameOfCustomer = Annotated[StrictStr, Field(description="Name of the customer.", examples=["Acme Ltd"])]
# Texts that describe: where there is none, the service may say null. Ids are never null.
CustomerName = Annotated[StrictStr | None, Field(description="Name of the customer.", examples=["Acme Ltd"])]
ExternalId = Annotated[
    StrictStr | None,
    Field(description="Id of the customer in your own system, if any.", examples=["crm-7731"]),
]

ContractId = Annotated[StrictStr, Field(description="Id of the contract.", examples=["con_2001"])]
ContractName = Annotated[
    StrictStr | None, Field(description="Name of the contract.", examples=["Acme annual 2026"])
]

Currency = Annotated[StrictStr | None, Field(description="Currency code of the amounts.", examples=["USD"])]

Threshold = Annotated[
    ExactDecimal, Field(description="Configured threshold, in percent.", examples=[Decimal(80)])
]
PctUsage = Annotated[
    ExactDecimal,
    Field(description="Usage when the event was raised, in percent.", examples=[Decimal("81.25")]),
]
