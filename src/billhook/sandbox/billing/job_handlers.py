"""Which function handles which kind of scheduled job: the only module that knows both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from billhook.sandbox.billing import contract_lifecycle, month_end
from billhook.sandbox.billing.credits import credit_schedules
from billhook.sandbox.billing.credits.credit_grants import expire_lot
from billhook.sandbox.billing.invoices import approval, cycle_billing, payments
from billhook.sandbox.storage.transaction import Transaction

__all__ = ["JOB_HANDLERS", "JobHandler"]

JobHandler = Callable[[Transaction, str], None]
"""Handles a job that is due: `tx.now` is its due time, the text is the id of its subject."""

JOB_HANDLERS: Mapping[str, JobHandler] = MappingProxyType(
    {
        "customer_without_contract": contract_lifecycle.handle_missing_contract,
        "contract_start": contract_lifecycle.handle_contract_start,
        "cycle_end": cycle_billing.handle_cycle_end,
        "renewal_notice": contract_lifecycle.handle_renewal_notice,
        "contract_end": contract_lifecycle.handle_contract_end,
        "invoice_approval": approval.handle_approval_due,
        "invoice_due": payments.handle_invoice_due,
        "credit_grant": credit_schedules.handle_scheduled_grant,
        "credit_expiry": expire_lot,
        "month_end": month_end.handle_month_end,
    }
)
