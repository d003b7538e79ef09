"""sample: a plausible instance of every resource."""

from __future__ import annotations

import pytest

from billhook.errors import FieldConflict
from billhook.resources import RESOURCES, Contract, ContractQuery, NewContract, sample

# A sample has what excludes these.
LEFT_OUT = {"Contract": {"plan_id"}, "NewContract": {"plan_id"}, "ContractQuery": {"customer_external_id"}}


def test_every_resource_has_a_sample_with_all_compatible_fields():
    for name, cls in RESOURCES.items():
        resource = sample(cls)

        assert type(resource) is cls
        assert set(cls.model_fields) - resource.model_fields_set == LEFT_OUT.get(name, set())
        assert None not in [resource.__dict__[field] for field in resource.model_fields_set]
        assert resource == sample(cls)
        assert cls.from_json(resource.to_json()) == resource


def test_a_sample_accepts_its_omitted_fields():
    planned = sample(NewContract, plan_id="pl_1", products=None, product_groups=None)
    asked = sample(ContractQuery, customer_id=None, customer_external_id="crm-1")

    assert planned.plan_id == "pl_1"
    assert asked.to_query()["customerExternalId"] == "crm-1"
    assert sample(Contract, plan_id="pl_1").products
    with pytest.raises(FieldConflict, match="planId and products and productGroups are mutually exclusive"):
        sample(NewContract, plan_id="pl_1")
