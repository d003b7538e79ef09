"""What a unit of each currency is worth in US dollars."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from billhook.resources import Resource
from billhook.sandbox.billing import currencies
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import Number

__all__ = ["GROUP"]

GROUP = Group("_sandbox/exchangeRates", prefix="/_sandbox/exchangeRates")


class ExchangeRates(Resource, register=False):
    """Exchange rates."""

    rates: Annotated[
        dict[str, Number],
        Field(description="US dollars for one unit, by currency code.", examples=[{"EUR": Decimal("1.10")}]),
    ]


@GROUP.operation("GET", "", gives=ExchangeRates)
def show(call: Call[None]) -> ExchangeRates:
    """Tell the exchange rates."""
    return ExchangeRates(rates=currencies.rates(call.tx))


@GROUP.operation("PUT", "", takes=ExchangeRates, gives=ExchangeRates)
def change(call: Call[ExchangeRates]) -> ExchangeRates:
    """Change some exchange rates, for invoices that are issued from now on."""
    return ExchangeRates(rates=currencies.set_rates(call.tx, call.given.rates))
