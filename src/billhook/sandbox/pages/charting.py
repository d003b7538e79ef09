"""Charts of the sandbox's figures. A chart's numbers are rounded: tables have them exactly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

from billhook.pages import Bars, Series, Sparkline, bar_chart, sparkline
from billhook.sandbox.billing.chart_series import UsageSeries, invoices_by_month
from billhook.sandbox.storage.transaction import Transaction
from billhook.wire.fields import BillingStatus

__all__ = ["STATUS_TEXTS", "STATUS_TONES", "balance_chart", "invoiced_chart", "usage_charts"]

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
