"""Definitions of custom fields. Source: spec, "Endpoints", Custom fields."""

from __future__ import annotations

from billhook.resources import CustomFieldPage, CustomFieldResponse, PageQuery
from billhook.sandbox.billing.custom_fields import DEFINITIONS
from billhook.sandbox.web.lists import limit_of
from billhook.sandbox.web.operation import Call, Group

__all__ = ["GROUP"]

GROUP = Group("customers", prefix="/customFields", name="customFields")


@GROUP.operation("GET", "", takes=PageQuery, gives=CustomFieldPage)
def list_all(call: Call[PageQuery]) -> CustomFieldPage:
    """List the definitions, oldest first."""
    page = DEFINITIONS.page(call.tx, limit_of(call.given), call.given.cursor)
    return CustomFieldPage(custom_fields=page.items, **page.fields())


@GROUP.operation("GET", "/{customFieldId}", gives=CustomFieldResponse)
def get(call: Call[None]) -> CustomFieldResponse:
    """Get a definition."""
    return CustomFieldResponse(custom_field=DEFINITIONS.get(call.tx, call.path["customFieldId"]))
