"""sample: a plausible instance of any model, without a word about it anywhere else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from billhook.events import (
    EVENT_TYPES,
    ContractCreated,
    InvoiceApproved,
    Overage,
    PingTest,
    parse_event,
    sample,
)


def test_every_type_has_a_sample_with_every_field_given():
    for event_type, cls in EVENT_TYPES.items():
        event = sample(cls)

        assert type(event) is cls
        assert None not in [getattr(event, name) for name in cls.model_fields]
        assert event == sample(cls)
        assert parse_event(event_type, event.to_json()) == event


def test_a_sample_is_changed_by_the_fields_names_in_either_spelling():
    by_name = sample(InvoiceApproved, invoice_id="inv_1", date=datetime(2026, 2, 1, tzinfo=UTC))
    by_alias = sample(InvoiceApproved, invoiceId="inv_1", date="2026-02-01T00:00:00Z")

    assert by_name == by_alias
    assert by_name.invoice_id == "inv_1"
    assert by_alias.model_extra == {}
    with pytest.raises(ValidationError, match="Input should be a number"):
        sample(Overage, overage_amount="much")


def test_a_sample_may_have_extra_fields_and_changed_parts():
    customer = {
        "date": "2026-01-01",
        "customerId": "c",
        "name": "n",
        "aliases": ["a"],
        "integrationEntities": [],
    }
    event = sample(ContractCreated, end_date=None, customer=customer, poNumber="7")

    assert event.end_date is None
    assert event.customer.aliases == ["a"]
    assert event.model_extra == {"poNumber": "7"}
    assert sample(PingTest).to_json() == b"{}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("overage", "overage_amount"), ("overageAmmount", "overage_amount"), ("curency", "currency")],
)
def test_a_sample_refuses_a_misspelt_field_with_the_nearest_name(name, meant):
    with pytest.raises(TypeError, match=f"Overage has no field '{name}': did you mean {meant}?"):
        sample(Overage, **{name: "1"})
