"""A typed client of the billing service's REST API: `pip install 'billhook[client]'`.

Source: spec, "Endpoints", "Authentication", "Errors", "Limits".
"""

from __future__ import annotations

from billhook.errors import MissingExtra

try:
    from billhook.client.billing_client import BillingClient
    from billhook.client.ingestion import EventResult, EventState, Progress
    from billhook.client.operation import Listing, ListingPage
    from billhook.client.operations import OPERATIONS
    from billhook.client.retries import RetryPolicy
except ModuleNotFoundError as error:
    if error.name != "httpx2":
        raise
    raise MissingExtra("billhook.client", "client") from None

__all__ = [
    "OPERATIONS",
    "BillingClient",
    "EventResult",
    "EventState",
    "Listing",
    "ListingPage",
    "Progress",
    "RetryPolicy",
]
