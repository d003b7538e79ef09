"""Which function does which kind of step: the sole place that knows both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from billhook.sandbox.billing import (
    approval,
    contract_life,
    credit_schedules,
    cycles,
    month_end,
    payments,
)
from billhook.sandbox.billing.credits import expire
from billhook.sandbox.transaction import Transaction

__all__ = ["STEPS", "Step"]

Step = Callable[[Transaction, str], None]
"""Does one thing that fell due; `tx.now` is when it did, and the text is what it is about."""

STEPS: Mapping[str, Step] = MappingProxyType(
    {
        "customer_without_contract": contract_life.miss,
        "contract_start": contract_life.start,
        "cycle_end": cycles.end_cycle,
        "renewal_notice": contract_life.tell_renewal,
        "contract_end": contract_life.end,
        "invoice_approval": approval.approve_by_time,
        "invoice_due": payments.fall_due,
        "credit_grant": credit_schedules.grant_scheduled,
        "credit_expiry": expire,
        "month_end": month_end.end_month,
    }
)
