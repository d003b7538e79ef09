"""Defining custom fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from billhook.resources import CustomFieldResponse, Resource
from billhook.sandbox.billing import custom_fields
from billhook.sandbox.refusals import invalid_request
from billhook.sandbox.storage.documents import as_sent
from billhook.sandbox.storage.keys import check_key
from billhook.sandbox.storage.tables.entities import custom_field
from billhook.sandbox.transaction import Transaction
from billhook.sandbox.web.operation import Call, Group
from billhook.wire.fields import MaybeListOf, Text

__all__ = ["GROUP"]

GROUP = Group("_sandbox/customFields", prefix="/_sandbox/customFields")


class NewCustomField(Resource, register=False):
    """A definition to be made. One of a name for each entity."""

    custom_field_name: Annotated[Text, Field(description="Name of the field.", examples=["region"])]
    entity: Annotated[Text, Field(description="What has it: Customer or Contract.")] = "Customer"
    value_type: Annotated[Text, Field(description="String, Number, Boolean or Date.")] = "String"
    integration_source: Annotated[Text | None, Field(description="Where values come from.")] = None
    integration_entity_type: Annotated[Text | None, Field(description="Kind of entity there.")] = None
    field_path: Annotated[Text | None, Field(description="Where the value is in that entity.")] = None
    allowed_values: Annotated[MaybeListOf[Text], Field(description="The values it may have, as text.")] = None
    default_value: Annotated[Text | None, Field(description="The value where none is set, as text.")] = None


@GROUP.operation("POST", "", takes=NewCustomField, gives=CustomFieldResponse)
def create(call: Call[NewCustomField]) -> CustomFieldResponse:
    """Define a custom field."""
    given = call.given
    _check(call.tx, given)
    data = as_sent(given)
    data = {**data, "entity": given.entity, "valueType": given.value_type}
    made = custom_fields.DEFINITIONS.add(call.tx, data, entity=given.entity, name=given.custom_field_name)
    return CustomFieldResponse(custom_field=made)


def _check(tx: Transaction, given: NewCustomField) -> None:
    check_key(given.custom_field_name, "customFieldName")
    _check_choice(given.entity, custom_fields.ENTITIES, "entity")
    _check_choice(given.value_type, custom_fields.VALUE_TYPES, "valueType")
    same = custom_field.c.entity == given.entity, custom_field.c.name == given.custom_field_name
    if custom_fields.DEFINITIONS.first(tx, *same):
        raise invalid_request(
            "this entity has a custom field of this name", "customFieldName", code="already_exists"
        )
    allowed = given.allowed_values or []
    for n, text in enumerate(allowed):
        _check_text(given.value_type, text, f"allowedValues.{n}")
    if given.default_value is not None:
        _check_text(given.value_type, given.default_value, "defaultValue")
        if allowed and given.default_value not in allowed:
            raise invalid_request("defaultValue is not one of allowedValues", "defaultValue")


def _check_choice(given: str, choices: tuple[str, ...], param: str) -> None:
    if given not in choices:
        raise invalid_request(f"{param} is one of {', '.join(choices)}", param)


def _check_text(value_type: str, text: str, param: str) -> None:
    if not custom_fields.is_text_of(value_type, text):
        raise invalid_request(f"{param} is not the text of a {value_type}", param)
