"""What a body has beyond its model: fields at every depth, and values of open enumerations."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billhook.events import EVENT_TYPES, ContractCreated, InvoicePaymentStatusChanged, PingTest, sample
from billhook.events.inspection import unlisted
from billhook.fields import strict_json


def data_of(event) -> dict[str, object]:
    return strict_json.loads(event.to_json())


def test_a_sample_of_each_type_has_nothing_beyond_its_model():
    found = {name: list(unlisted(model, data_of(sample(model)))) for name, model in EVENT_TYPES.items()}

    assert [name for name, beyond in found.items() if beyond] == []


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("x", "StrictStr"), (True, "StrictBool"), (5, "ExactDecimal"), (Decimal("2.50"), "ExactDecimal"),
        ([1], "ListOf[JsonValue]"), ({"a": 1}, "JsonObject"), (None, "JsonValue"),
    ],
)  # fmt: skip
def test_a_new_field_comes_with_the_line_for_the_model(value, kind):
    (found,) = unlisted(PingTest, {"discountCode": value})

    assert (found.kind, found.model, found.path, found.value) == ("field", "PingTest", "discountCode", value)
    assert found.change == f"discount_code: {kind} | None = None"


def test_fields_of_objects_and_of_the_items_of_lists_are_named_by_their_path():
    data = data_of(sample(ContractCreated))
    data["customer"]["vatId"] = "DE1"
    data["customer"]["integrationEntities"][0]["region"] = "eu"
    data["customer"]["integrationEntities"].append("no object")

    found = {each.path: each.model for each in unlisted(ContractCreated, data)}

    assert found == {
        "customer.vatId": "NewCustomer",
        "customer.integrationEntities[].region": "IntegrationEntity",
    }


def test_a_value_that_an_enumeration_does_not_list_is_found_and_a_listed_one_is_not():
    data = data_of(sample(InvoicePaymentStatusChanged))

    (found,) = unlisted(InvoicePaymentStatusChanged, {**data, "billingStatus": "Refunded"})

    assert (found.kind, found.path, found.change) == ("value", "billingStatus", "REFUNDED = 'Refunded'")
    assert list(unlisted(InvoicePaymentStatusChanged, {**data, "billingStatus": "Paid"})) == []
    assert list(unlisted(InvoicePaymentStatusChanged, {**data, "billingStatus": None})) == []
