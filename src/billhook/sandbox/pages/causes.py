"""The cause of an event in words: what an operation does, or what a scheduled job is for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from billhook.sandbox.pages.context import context

__all__ = ["JOB_TEXTS", "CauseText", "described_cause", "job_text"]

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


class CauseText(NamedTuple):
    """A cause in words, and as the log notes it: the operation, or the subject of the job."""

    text: str
    detail: str


def described_cause(cause: str) -> CauseText:
    """Return the cause of an event in words."""
    kind, _, subject = cause.partition(" ")
    if kind in JOB_TEXTS:
        return CauseText(JOB_TEXTS[kind], subject)
    summary = context().runner.summary(cause)
    # What follows a colon or a semicolon are details.
    return CauseText(cause, "") if summary is None else CauseText(re.split("[:;]", summary)[0], cause)


def job_text(kind: str) -> str:
    """Return the kind of a job that is still to come: `invoice approval`."""
    return kind.replace("_", " ")
