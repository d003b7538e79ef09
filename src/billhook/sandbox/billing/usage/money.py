"""Money: exact decimal arithmetic, and currencies with their smallest units and exchange rates to US dollars.

Python's default context would round to 28 digits. Source: spec, "Resources and their fields", Customer, the
amounts in USD. Rates are not shown: they are the sandbox's, and `PUT /_sandbox/exchangeRates` sets others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import TypeGuard

from billhook.fields.strict_json import MAX_DIGITS
from billhook.resources import Contract, Customer, NewContract
from billhook.sandbox.errors import invalid_request
from billhook.sandbox.storage.database import Transaction

ZERO = Decimal(0)
EXACT = Context(prec=16 * MAX_DIGITS, rounding=ROUND_HALF_EVEN)
"""A context for sums and products of amounts that loses no digit, however long the wire lets them be."""
MAX_AMOUNT = Decimal(10) ** 100
"""The largest amount that is rated or granted; the finest is its reciprocal.

The wire takes longer numbers than this. Within these limits every result of a calculation can be written to
the wire.
"""
DEFAULT_CURRENCY = "USD"
"""The currency of contracts and customers without one, and the currency of a customer's amounts."""
DEFAULT_RATES: Mapping[str, Decimal] = {
    "USD": Decimal(1),
    "EUR": Decimal("1.10"),
    "JPY": Decimal("0.007"),
    "GBP": Decimal("1.25"),
    "CNY": Decimal("0.14"),
    "AUD": Decimal("0.65"),
    "CAD": Decimal("0.75"),
    "CHF": Decimal("1.15"),
    "HKD": Decimal("0.13"),
    "SGD": Decimal("0.75"),
}
"""US dollars for one unit, until other rates are set: the ten most traded currencies."""
_RATES_KEY = "exchange_rates"
_CENT = Decimal("0.01")
_CODE = re.compile(r"[A-Z]{3}")
# Source: ISO 4217, minor units; those that are not listed have two places.
_WHOLE = frozenset(
    (
        *("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG"),
        *("RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"),
    )
)
_THOUSANDTHS = frozenset(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"))
_PLACES = dict.fromkeys(_WHOLE, 0) | dict.fromkeys(_THOUSANDTHS, 3) | {"CLF": 4, "UYW": 4}


def is_number(value: object) -> TypeGuard[int | Decimal]:
    """Return whether a value of JSON is a number; True and False are none."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def exact_sum(values: Iterable[Decimal]) -> Decimal:
    """Return the sum, with as many digits as a number on the wire may have."""
    with localcontext(prec=MAX_DIGITS):
        return sum(values, ZERO)


def is_in_range(amount: Decimal) -> bool:
    """Return whether `amount` is within MAX_AMOUNT, and no finer than its reciprocal."""
    return abs(amount) <= MAX_AMOUNT and clamp(amount) == amount


def clamp(amount: Decimal) -> Decimal:
    """Return `amount`, or the nearest amount that is within MAX_AMOUNT and no finer than its reciprocal."""
    with localcontext(EXACT):
        amount = max(-MAX_AMOUNT, min(amount, MAX_AMOUNT))
        # The exponent of NaN and of infinity is a text; neither can come from the wire.
        exponent = amount.as_tuple().exponent
        fine = isinstance(exponent, int) and exponent < -MAX_AMOUNT.adjusted()
        return amount.quantize(1 / MAX_AMOUNT) if fine else amount


def billing_currency(contract: NewContract | Contract | None, customer: Customer) -> str:
    """Return the currency to agree on: the contract's, else the customer's, else US dollars."""
    return (contract and contract.currency) or customer.currency or DEFAULT_CURRENCY


def smallest_unit(currency: str) -> Decimal:
    """Return the smallest amount that is billed in this currency: 0.01, or 1 for the yen."""
    return Decimal(1).scaleb(-_PLACES.get(currency, 2))


def rates(tx: Transaction) -> dict[str, Decimal]:
    """Return the US dollars for one unit of each known currency, by its code."""
    own = tx.setting(_RATES_KEY) or {}
    return {**DEFAULT_RATES, **{code: Decimal(rate) for code, rate in own.items()}}


def set_rates(tx: Transaction, new_rates: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Change these rates, keep the others, and return all of them.

    Invoices keep the rate that was in force when they were issued.
    """
    for code, rate in new_rates.items():
        if not _CODE.fullmatch(code):
            raise invalid_request("a currency must be a code of three capital letters, such as EUR", "rates")
        # Within these limits amount times rate stays writable on the wire.
        if not 1 / MAX_AMOUNT <= rate <= MAX_AMOUNT:
            raise invalid_request("a rate must be above zero: US dollars for one unit", "rates")
    # USD is the unit that all rates are given in.
    if new_rates.get(DEFAULT_CURRENCY, 1) != 1:
        raise invalid_request("the rate of USD is always 1", "rates")
    changed = {**rates(tx), **new_rates}
    tx.store_setting(_RATES_KEY, changed)
    return changed


def check_currency(tx: Transaction, currency: str) -> Decimal:
    """Return the currency's rate: US dollars for one unit. Rejects a currency without one.

    A customer's amounts are shown in US dollars, so what is billed must be convertible.
    """
    if not _CODE.fullmatch(currency):
        raise invalid_request("currency must be a code of three capital letters, such as USD", "currency")
    rate = rates(tx).get(currency)
    if rate is None:
        raise invalid_request(
            f"there is no exchange rate for {currency}: set one with PUT /_sandbox/exchangeRates", "currency"
        )
    return rate


def in_dollars(amount: Decimal, rate: Decimal) -> Decimal:
    """Return `amount` at that rate, rounded half-even to the cent."""
    with localcontext(EXACT):
        return (amount * rate).quantize(_CENT)
