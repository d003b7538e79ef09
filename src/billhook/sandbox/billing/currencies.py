"""Currencies: the smallest amount that each has, and what each is worth in US dollars.

Source: spec, "Resources and their fields", Customer, the amounts in USD. Rates are not shown: they are the
sandbox's, and `PUT /_sandbox/exchangeRates` sets others.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, localcontext
from types import MappingProxyType

from billhook.resources import Contract, Customer
from billhook.sandbox.billing.exact import EXACT, MOST
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage import facts
from billhook.sandbox.transaction import Transaction
from billhook.wire import strict_json

__all__ = [
    "CURRENCY",
    "DEFAULT_RATES",
    "check",
    "in_dollars",
    "of",
    "rate_of",
    "rates",
    "set_rates",
    "smallest",
]

CURRENCY = "USD"
"""Of contracts and customers that say none; what a customer's amounts are told in."""

DEFAULT_RATES: Mapping[str, Decimal] = MappingProxyType(
    {
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
)
"""US dollars for one unit, as long as nothing else is set: the ten currencies that are traded most."""

_FACT = "exchange_rates"
_CENT = Decimal("0.01")
# Source: ISO 4217, minor units; those that are not listed have two places.
_WHOLE = frozenset(
    (
        *("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG"),
        *("RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"),
    )
)
_THOUSANDTHS = frozenset(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"))
_PLACES = dict.fromkeys(_WHOLE, 0) | dict.fromkeys(_THOUSANDTHS, 3) | {"CLF": 4, "UYW": 4}


def of(contract: Contract | None, customer: Customer) -> str:
    """What is billed in: the contract's currency, else the customer's, else US dollars."""
    return (contract and contract.currency) or customer.currency or CURRENCY


def smallest(currency: str) -> Decimal:
    """The smallest amount of it that is billed: 0.01, and 1 of a yen."""
    return Decimal(1).scaleb(-_PLACES.get(currency, 2))


def rates(tx: Transaction) -> dict[str, Decimal]:
    """US dollars for one unit of each currency that is known, by its code."""
    kept = facts.recall(tx.connection, _FACT)
    own = {} if kept is None else strict_json.loads(kept.encode())
    return {**DEFAULT_RATES, **{code: Decimal(rate) for code, rate in own.items()}}  # type: ignore[attr-defined]


def set_rates(tx: Transaction, given: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Change these rates and leave the others; all of them. Invoices that were issued keep theirs."""
    for code, rate in given.items():
        if not (len(code) == 3 and code.isascii() and code.isalpha() and code.isupper()):
            raise invalid_request("a currency is a code of three capital letters, such as EUR", "rates")
        if not 1 / MOST <= rate <= MOST:
            raise invalid_request("a rate is above zero: US dollars for one unit", "rates")
    if given.get(CURRENCY, 1) != 1:
        raise invalid_request("a US dollar is one US dollar", "rates")
    changed = {**rates(tx), **given}
    text = strict_json.dumps({code: str(rate) for code, rate in changed.items()}).decode()
    facts.remember(tx.connection, _FACT, text)
    return changed


def rate_of(tx: Transaction, currency: str) -> Decimal:
    """US dollars for one unit of `currency` now; for one without a rate, refused by `check`."""
    return check(tx, currency, "currency")


def check(tx: Transaction, currency: str, param: str) -> Decimal:
    """Its rate; refused without one, as what is billed in it could not be told in US dollars."""
    rate = rates(tx).get(currency)
    if rate is None:
        raise invalid_request(
            f"there is no exchange rate for {currency}: set one with PUT /_sandbox/exchangeRates", param
        )
    return rate


def in_dollars(amount: Decimal, rate: Decimal) -> Decimal:
    """`amount` at that rate, half-even to the cent."""
    with localcontext(EXACT):
        return (amount * rate).quantize(_CENT)
