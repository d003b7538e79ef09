"""Custom fields: their definitions, and the values that users set on customers and contracts.

Source: spec, "Resources and their fields", Custom-field definition; Customer, customFields.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from pydantic import TypeAdapter, ValidationError

from billhook.fields import strict_json
from billhook.fields.types import UtcDatetime
from billhook.resources import CustomField, CustomFieldInput, CustomFieldValue
from billhook.sandbox.errors import check_choice, check_key, invalid_request
from billhook.sandbox.storage.database import Transaction
from billhook.sandbox.storage.repository import Repository
from billhook.sandbox.storage.tables import custom_field

VALUE_TYPES = ("String", "Number", "Boolean", "Date")

DEFINITIONS = Repository(custom_field, CustomField, "cf")

_MOMENT: TypeAdapter[object] = TypeAdapter(UtcDatetime)


def set_values(
    tx: Transaction, entity: str, values: Sequence[CustomFieldValue], inputs: Sequence[CustomFieldInput]
) -> list[CustomFieldValue]:
    """Return the `values` of a Customer or Contract with those of `inputs` set.

    A null removes its value; the other values stay.

    An input without a matching definition creates one if it has customFieldName and valueType; otherwise it
    is rejected, and so is a value that its definition does not allow.
    """
    known = DEFINITIONS.all(tx, custom_field.c.entity == entity)
    found = {value.custom_field_definition_id: value for value in values}
    for n, field_input in enumerate(inputs):
        where = f"customFields.{n}"
        definition = _definition_of(field_input, known, where)
        if definition is None:
            definition = _create_definition(tx, entity, field_input, where)
            known.append(definition)
        # A null removes the value; any other value is set again below.
        found.pop(definition.id, None)
        if field_input.value is not None:
            text, param = _stored_text(definition.value_type or "String", field_input.value), f"{where}.value"
            if text is None:
                raise invalid_request(f"the definition requires a {definition.value_type} here", param)
            found[definition.id] = CustomFieldValue(
                custom_field_definition_id=definition.id, value=text, field_name=definition.custom_field_name
            )
    return list(found.values())


def _definition_of(
    field_input: CustomFieldInput, known: Sequence[CustomField], param: str
) -> CustomField | None:
    if field_input.custom_field_name is None and field_input.field_path is None:
        raise invalid_request(
            f"{param} names no field: give customFieldName or fieldPath", f"{param}.customFieldName"
        )
    name, path = field_input.custom_field_name, field_input.field_path
    fitting = [
        definition
        for definition in known
        if (definition.field_path == path if name is None else definition.custom_field_name == name)
    ]
    # A name has one definition; guessing by the path would set another field than the user meant.
    if len(fitting) > 1:
        raise invalid_request(
            f"{param} fits more than one definition of a custom field: see GET /customFields", param
        )
    if not fitting:
        return None
    # The type belongs to the definition: an input cannot change it.
    if field_input.value_type not in (None, fitting[0].value_type):
        raise invalid_request(f"the definition's valueType is {fitting[0].value_type}", f"{param}.valueType")
    return fitting[0]


def _create_definition(
    tx: Transaction, entity: str, field_input: CustomFieldInput, param: str
) -> CustomField:
    """Create the definition that an input describes. How the service creates one is not shown."""
    name, kind = field_input.custom_field_name, field_input.value_type
    if name is None or kind is None:
        raise invalid_request(
            f"{param} fits no definition of a custom field (see GET /customFields): customFieldName and "
            "valueType together make one",
            param,
        )
    check_key(name, f"{param}.customFieldName")
    check_choice(kind, VALUE_TYPES, f"{param}.valueType")
    origin = ("integration_source", "integration_entity_type", "field_path")
    data = {str(CustomField.model_fields[each].alias): getattr(field_input, each) for each in origin}
    data |= {"entity": entity, "customFieldName": name, "valueType": kind}
    return DEFINITIONS.add(tx, data)


def _stored_text(value_type: str, value: object) -> str | None:
    """Return the value as it is stored; None if it is not of this type."""
    match value_type, value:
        case "Date", str():
            try:
                _MOMENT.validate_python(value)
            except ValidationError:
                return None
            return value  # as it was given, not normalised
        case "String", str():
            return value
        case "Boolean", bool():
            return strict_json.dumps(value).decode()
        case "Number", int() | Decimal() if not isinstance(value, bool):
            return strict_json.dumps(value).decode()
    return None
