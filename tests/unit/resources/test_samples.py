"""sample: a plausible instance of every resource."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from billhook.errors import FieldConflict
from billhook.resources import RESOURCES, Contract, ContractQuery, Customer, NewContract, sample

# A sample has what excludes these.
LEFT_OUT = {"Contract": {"plan_id"}, "NewContract": {"plan_id"}, "ContractQuery": {"customer_external_id"}}


@pytest.mark.parametrize("name", RESOURCES)
def test_every_resource_has_a_sample_with_all_compatible_fields(name: str):
    cls = RESOURCES[name]

    resource = sample(cls)

    assert type(resource) is cls
    assert set(cls.model_fields) - resource.model_fields_set == LEFT_OUT.get(name, set())
    assert None not in [resource.__dict__[field] for field in resource.model_fields_set]
    assert resource == sample(cls)
    assert cls.from_json(resource.to_json()) == resource


def test_a_sample_is_changed_in_either_spelling_and_checked():
    assert sample(Customer, legal_name="A").legal_name == sample(Customer, legalName="A").legal_name == "A"
    with pytest.raises(ValidationError, match="Input should be a number"):
        sample(Customer, open_amount="much")


def test_a_sample_accepts_its_omitted_fields():
    planned = sample(NewContract, plan_id="pl_1", products=None, product_groups=None)
    asked = sample(ContractQuery, customer_id=None, customer_external_id="crm-1")

    assert planned.plan_id == "pl_1"
    assert asked.to_query()["customerExternalId"] == "crm-1"
    assert sample(Contract, plan_id="pl_1").products
    with pytest.raises(FieldConflict, match="planId and products and productGroups are mutually exclusive"):
        sample(NewContract, plan_id="pl_1")
