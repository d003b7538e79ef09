"""Custom fields: their definitions, and their values. Source: spec, "Resources and their fields"."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources.base import Resource, Stored
from billhook.resources.paging import CountedPage
from billhook.wire.fields import JsonValue, ListOf, MaybeListOf, Text

__all__ = ["CustomField", "CustomFieldInput", "CustomFieldPage", "CustomFieldResponse", "CustomFieldValue"]


class _Origin(Resource, register=False):
    """Where a custom field's values come from."""

    integration_source: Annotated[
        Text | None, Field(description="The system that values come from.", examples=["Salesforce"])
    ] = None
    integration_entity_type: Annotated[
        Text | None, Field(description="Kind of entity in that system.", examples=["Account"])
    ] = None
    field_path: Annotated[
        Text | None, Field(description="Where the value is in that entity.", examples=["Region__c"])
    ] = None
    custom_field_name: Annotated[
        Text | None, Field(description="Name of the custom field.", examples=["region"])
    ] = None
    value_type: Annotated[Text | None, Field(description="Type of the value.", examples=["String"])] = None


class CustomFieldInput(_Origin):
    """A value to be set.

    Source: spec, "Resources and their fields", Customer, customFields.
    """

    value: Annotated[JsonValue, Field(description="The value.", examples=["EMEA"])] = None


class CustomFieldValue(Resource):
    """A value that is set.

    Source: spec, "Resources and their fields", Customer, customFieldValues.
    """

    custom_field_definition_id: Annotated[
        Text | None, Field(description="Id of the custom field's definition.", examples=["cfd_4"])
    ] = None
    value: Annotated[Text | None, Field(description="The value.", examples=["EMEA"])] = None
    field_name: Annotated[Text | None, Field(description="Name of the field.", examples=["region"])] = None


class CustomField(Stored, _Origin):
    """The definition of a custom field.

    Source: spec, "Resources and their fields", Custom-field definition.
    """

    entity: Annotated[
        Text | None, Field(description="Kind of object that has the field.", examples=["Customer"])
    ] = None
    allowed_values: Annotated[
        MaybeListOf[Text], Field(description="The values it may have.", examples=[["EMEA", "APAC"]])
    ] = None
    default_value: Annotated[
        Text | None, Field(description="The value where none is set.", examples=["EMEA"])
    ] = None


class CustomFieldResponse(Resource):
    """The response of GET /customFields/{customFieldId}.

    Source: spec, "Endpoints", Custom fields.
    """

    custom_field: Annotated[CustomField, Field(description="The definition.")]


class CustomFieldPage(CountedPage):
    """The response of GET /customFields.

    Source: spec, "Endpoints", Custom fields.
    """

    custom_fields: Annotated[ListOf[CustomField], Field(description="The definitions of this page.")]
