"""Looking at what was told to the clouds' marketplaces."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import PageQuery
from billhook.resources.paging import CountedPage
from billhook.sandbox.billing.cloud_usage import SUBMITTED, SubmittedUsage
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import ListOf

__all__ = ["GROUP"]

GROUP = Group("_sandbox/cloudUsage", prefix="/_sandbox/cloudUsageSubmissions")


class SubmittedUsagePage(CountedPage, register=False):
    """A page of results."""

    results: Annotated[ListOf[SubmittedUsage], Field(description="The results of this page.")]


@GROUP.operation("GET", "", takes=PageQuery, gives=SubmittedUsagePage)
def list_all(call: Call[PageQuery]) -> SubmittedUsagePage:
    """List the results that were submitted, oldest first."""
    page = SUBMITTED.page(call.tx, limit_of(call.given), call.given.cursor)
    return SubmittedUsagePage(results=page.items, **page.fields())
