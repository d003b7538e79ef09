"""Cloud usage submission. Source: spec, "Endpoints", Cloud usage submission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup, encode_body
from billhook.resources import CloudUsageSubmission

__all__ = ["SUBMIT", "CloudUsage"]

# Not repeatable: results have idempotency keys, but the specification does not show how they are used.
SUBMIT = ApiOperation("POST", "/cloudUsageSubmission", repeatable=False)


class CloudUsage(ApiGroup):
    """The results of usage that was submitted to a cloud marketplace."""

    def submit(self, submission: CloudUsageSubmission | Mapping[str, Any]) -> None:
        """Submit the results to the service. Calls POST /cloudUsageSubmission, whose response is empty."""
        self._session.call_untyped(SUBMIT, encode_body(CloudUsageSubmission, submission))
