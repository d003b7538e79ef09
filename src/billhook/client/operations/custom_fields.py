"""Custom-field definitions. Source: spec, "Endpoints", Custom fields."""

from __future__ import annotations

from billhook.client.operation import ApiOperation
from billhook.client.operations.group import ApiGroup
from billhook.client.paging import Listing
from billhook.resources import CustomField, CustomFieldPage, CustomFieldResponse, PageQuery

__all__ = ["GET", "LIST", "CustomFields"]

LIST = ApiOperation("GET", "/customFields", repeatable=True)
GET = ApiOperation("GET", "/customFields/{customFieldId}", repeatable=True)


class CustomFields(ApiGroup):
    """The definitions of custom fields. Customers and contracts contain the values."""

    def list(self, *, limit: int | None = None) -> Listing[CustomField]:
        """List the definitions, in pages of `limit`. Calls GET /customFields."""
        return self._listing(LIST, CustomFieldPage, lambda page: page.custom_fields, PageQuery, limit=limit)

    def get(self, custom_field_id: str) -> CustomField:
        """Get a definition. Calls GET /customFields/{customFieldId}. Raises ResourceNotFound."""
        return self._session.call(GET, CustomFieldResponse, custom_field_id).custom_field
