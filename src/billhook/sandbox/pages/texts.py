"""How the pages show ids, amounts, JSON, the causes of events and figures over time.

A chart's numbers are rounded: tables have them exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import NamedTuple

from billhook.fields import strict_json
from billhook.fields.types import BillingStatus
from billhook.pages.charts import Bars, Series, Sparkline, bar_chart, sparkline
from billhook.sandbox.billing.chart_series import UsageSeries, invoices_by_month
from billhook.sandbox.billing.contracts.contracts import CATALOG_PRODUCTS
from billhook.sandbox.billing.credits.credit_grants import CREDIT_PRODUCTS
from billhook.sandbox.billing.customers import CUSTOMERS
from billhook.sandbox.pages.context import page_context
from billhook.sandbox.storage.tables.billing import catalog_product, credit_product, customer
from billhook.sandbox.storage.transaction import Transaction

_CUSTOMERS = 200
"""As many are offered in a list to choose from."""
_CHARACTERS = 40
"""An amount that is longer is shown with an exponent."""
JOB_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "contract_end": "A contract reached its end",
        "contract_start": "A contract began",
        "credit_expiry": "Credits expired",
        "credit_grant": "A contract's credits were due",
        "customer_without_contract": "A customer had no contract for a week",
        "cycle_end": "A billing cycle ended",
        "invoice_approval": "An invoice was due for approval",
        "invoice_due": "An invoice's payment was due",
        "month_end": "A month ended",
        "renewal_notice": "A contract was 30 days from its renewal",
    }
)
"""What each kind of scheduled job is for, once it has run."""
STATUS_TONES = {
    "Paid": "good",
    "PendingPayment": "accent",
    "Overdue": "warn",
    "Rejected": "bad",
    "None": "quiet",
}
"""The tone of each billingStatus, in the order in which bars are stacked."""
STATUS_TEXTS = {
    "Paid": "paid",
    "PendingPayment": "pending payment",
    "Overdue": "overdue",
    "Rejected": "rejected",
    "None": "not approved",
}
"""The words for each billingStatus."""
_LARGEST = 1e300
"""Beyond it a bar's height would be no number."""


def customer_names(tx: Transaction, ids: Iterable[str | None] | None = None) -> dict[str, str]:
    """Return {id: name} of these customers, or of the newest ones; a customer without a name has its id."""
    if ids is None:
        found = CUSTOMERS.page(tx, _CUSTOMERS, None, newest_first=True).items
    else:
        found = CUSTOMERS.all(tx, customer.c.id.in_({one for one in ids if one}))
    return {one.id: one.name or one.external_id or one.id for one in found}


def credit_product_names(tx: Transaction, ids: Iterable[str]) -> dict[str, str]:
    """Return {id: name} of these credit products."""
    found = CREDIT_PRODUCTS.all(tx, credit_product.c.id.in_(set(ids)))
    return {one.id: one.name or one.id for one in found}


def catalog_product_names(tx: Transaction, ids: Iterable[str | None]) -> dict[str, str]:
    """Return {id: name} of these catalog products."""
    found = CATALOG_PRODUCTS.all(tx, catalog_product.c.id.in_({one for one in ids if one}))
    return {one.id: one.name for one in found}


def format_amount(number: Decimal | None, like: Decimal | None = None) -> str:
    """Return `12,345.60`, with as many decimal places as `like` has if it has more; empty for None."""
    if number is None:
        return ""
    places = max(_places(number), 0 if like is None else _places(like))
    text = f"{number:,.{places}f}" if places < _CHARACTERS else f"{number:,f}"
    return text if len(text) <= _CHARACTERS else f"{number:.12E}"


def _places(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return -exponent if isinstance(exponent, int) and exponent < 0 else 0


def format_percent(number: Decimal | None) -> str:
    """Return `12.5 %`, with one decimal place at most; empty for None."""
    return "" if number is None else f"{float(number):,.1f}".removesuffix(".0") + " %"


def clipped(text: object, most: int) -> str:
    """Return the text, or its first `most` characters and an ellipsis."""
    whole = str(text)
    return whole if len(whole) <= most else whole[:most] + "…"


def with_texts(values: Iterable[str]) -> list[tuple[str, str]]:
    """Return each value with itself as its text: the options of a choice."""
    return [(value, value) for value in values]


def parse_number(text: str) -> Decimal | None:
    """Return the number in the field of a form; None for what is none, or is not finite."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def indented(value: object, depth: int = 0) -> str:
    """Return a value of strict JSON with each entry on a line of its own."""
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(value, dict) and value:
        lines = [f"{inner}{_scalar(name)}: {indented(each, depth + 1)}" for name, each in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{outer}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{inner}{indented(each, depth + 1)}" for each in value) + f"\n{outer}]"
    return _scalar(value)


def indented_text(body: bytes) -> str:
    """Return a JSON body laid out for reading."""
    return indented(strict_json.loads(body))


def _scalar(value: object) -> str:
    return strict_json.dumps(value).decode()


class CauseText(NamedTuple):
    """A cause in words, and as the log notes it: the operation, or the subject of the job."""

    text: str
    detail: str


def described_cause(cause: str) -> CauseText:
    """Return the cause of an event in words."""
    kind, _, subject = cause.partition(" ")
    if kind in JOB_TEXTS:
        return CauseText(JOB_TEXTS[kind], subject)
    summary = page_context().runner.summary(cause)
    # What follows a colon or a semicolon are details.
    return CauseText(cause, "") if summary is None else CauseText(re.split("[:;]", summary)[0], cause)


def job_text(kind: str) -> str:
    """Return the kind of a job that is still to come: `invoice approval`."""
    return kind.replace("_", " ")


def usage_charts(series: Sequence[UsageSeries], days: Sequence[date]) -> list[Bars]:
    """Return a chart for each meter."""
    return [
        bar_chart(
            one.meter.name,
            [Series(one.meter.aggregation_method, "accent")],
            [(day.isoformat(), (_rounded(value),)) for day, value in zip(days, one.values, strict=True)],
            height=72,
        )
        for one in series
    ]


def invoiced_chart(tx: Transaction, months: int, customer_id: str | None = None) -> Bars:
    """Return the amounts invoiced in each month, by status, in whole US dollars."""
    rows = [
        (f"{one.month:%Y-%m}", [_rounded(max(one.amounts[status], Decimal(0)), 0) for status in STATUS_TONES])
        for one in invoices_by_month(tx, months, customer_id)
    ]
    assert set(STATUS_TONES) == set(BillingStatus)  # noqa: S101 - or amounts would be missing
    series = [Series(STATUS_TEXTS[status], tone) for status, tone in STATUS_TONES.items()]
    return bar_chart("Invoiced a month, USD", series, rows)


def balance_chart(history: Sequence[tuple[datetime, Decimal]]) -> Sparkline:
    """Return the course of a pool's balance."""
    return sparkline("balance", [_rounded(max(balance, Decimal(0))) for _, balance in history])


def _rounded(value: Decimal, digits: int = 2) -> float:
    number = min(float(value), _LARGEST)
    whole = round(number)
    return whole if whole == number or digits == 0 else round(number, digits)
