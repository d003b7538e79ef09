"""Cloud usage submission. Source: spec, "Endpoints", Cloud usage submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.resources import CloudUsageSubmission

__all__ = ["SUBMIT", "CloudUsage"]

# Its results have idempotency keys, but what the service does with them is not shown.
SUBMIT = ApiOperation("POST", "/cloudUsageSubmission", repeatable=False)


class CloudUsage(ApiGroup):
    """What became of usage that was submitted to a cloud's marketplace."""

    def submit(self, submission: CloudUsageSubmission | Mapping[str, Any]) -> None:
        """POST /cloudUsageSubmission. The answer is an empty object."""
        self._session.call_untyped(SUBMIT, encode_body(CloudUsageSubmission, submission))
