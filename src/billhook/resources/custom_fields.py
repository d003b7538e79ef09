"""Custom fields: their definitions, and their values. Source: spec, "Resources and their fields"."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictStr

from billhook.resources.base import Resource, StoredResource
from billhook.resources.paging import CountedPage
from billhook.wire.fields import JsonValue, ListOf, MaybeListOf

__all__ = ["CustomField", "CustomFieldInput", "CustomFieldPage", "CustomFieldResponse", "CustomFieldValue"]


class _Origin(Resource, register=False):
    """Where a custom field's values come from."""

    integration_source: Annotated[
        StrictStr | None, Field(description="System from which values are taken.", examples=["Salesforce"])
    ] = None
    integration_entity_type: Annotated[
        StrictStr | None, Field(description="Entity type in that system.", examples=["Account"])
    ] = None
    field_path: Annotated[
        StrictStr | None, Field(description="Path of the value in that entity.", examples=["Region__c"])
    ] = None
    custom_field_name: Annotated[
        StrictStr | None, Field(description="Name of the custom field.", examples=["region"])
    ] = None
    value_type: Annotated[StrictStr | None, Field(description="Type of the value.", examples=["String"])] = (
        None
    )


class CustomFieldInput(_Origin):
    """A value to be set.

    Source: spec, "Resources and their fields", Customer, customFields.
    """

    value: Annotated[JsonValue, Field(description="Value of the field.", examples=["EMEA"])] = None


class CustomFieldValue(Resource):
    """A value that is set.

    Source: spec, "Resources and their fields", Customer, customFieldValues.
    """

    custom_field_definition_id: Annotated[
        StrictStr | None, Field(description="Id of the custom field's definition.", examples=["cfd_4"])
    ] = None
    value: Annotated[StrictStr | None, Field(description="Value of the field.", examples=["EMEA"])] = None
    field_name: Annotated[StrictStr | None, Field(description="Name of the field.", examples=["region"])] = (
        None
    )


class CustomField(StoredResource, _Origin):
    """The definition of a custom field.

    Source: spec, "Resources and their fields", Custom-field definition.
    """

    entity: Annotated[
        StrictStr | None, Field(description="Type of object that has the field.", examples=["Customer"])
    ] = None
    allowed_values: Annotated[
        MaybeListOf[StrictStr], Field(description="Allowed values.", examples=[["EMEA", "APAC"]])
    ] = None
    default_value: Annotated[StrictStr | None, Field(description="Default value.", examples=["EMEA"])] = None


class CustomFieldResponse(Resource):
    """The response of GET /customFields/{customFieldId}.

    Source: spec, "Endpoints", Custom fields.
    """

    custom_field: Annotated[CustomField, Field(description="The custom field's definition.")]


class CustomFieldPage(CountedPage):
    """The response of GET /customFields.

    Source: spec, "Endpoints", Custom fields.
    """

    custom_fields: Annotated[ListOf[CustomField], Field(description="Definitions of this page.")]
