"""The rules that the spec states for requests: broken ones are told before anything is sent."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from billhook.errors import FieldConflict, FieldMissing, LimitBroken, ResourceError, RuleBroken
from billhook.resources import (
    MAX_BATCH_BYTES,
    Contract,
    ContractProduct,
    ContractQuery,
    CreditGrant,
    CreditTopUp,
    EventBatch,
    EventQuery,
    NewContract,
    PageQuery,
    ProductGroup,
    UsageEvent,
    WebhookSubscription,
    sample,
)

TERMS = {"customer_id": "cus_1", "start_date": "2026-02-01T00:00:00Z"}


def broken(error: type[RuleBroken], make: Any, *given: Any, **fields: Any) -> RuleBroken:
    with pytest.raises(error) as caught:
        make(*given, **fields)
    assert isinstance(caught.value, ResourceError)
    return caught.value


# --- contracts ------------------------------------------------------------------------------------


def test_a_contract_without_a_plan_needs_a_name():
    for fields in ({}, {"name": None}, {"name": ""}, {"plan_id": ""}, {"products": [ContractProduct()]}):
        error = broken(FieldMissing, NewContract, **TERMS, **fields)

        assert str(error) == "name is required when planId is not provided: give one of them"
        assert error.params == ("name",)


@pytest.mark.parametrize(
    ("inline", "told"),
    [
        ({"products": [ContractProduct()]}, ("products",)),
        ({"product_groups": [ProductGroup()]}, ("productGroups",)),
        ({"products": [ContractProduct()], "productGroups": [ProductGroup()]}, ("products", "productGroups")),
    ],
)
def test_a_plan_excludes_products(inline: dict[str, Any], told: tuple[str, ...]):
    error = broken(FieldConflict, NewContract, **TERMS, plan_id="pl_1", **inline)

    assert str(error) == (
        f"planId and {' and '.join(told)} are mutually exclusive, for the plan is used as is: "
        "give one of them"
    )
    assert error.params == ("planId", *told)


def test_a_contract_has_a_plan_or_a_name_and_products():
    for fields in (
        {"plan_id": "pl_1"},
        {"plan_id": "pl_1", "name": "Acme 2026"},
        {"plan_id": "pl_1", "products": [], "product_groups": None},
        {"plan_id": "pl_1", "credit_grants": [CreditGrant()]},
        {"name": "Acme 2026"},
        {"name": "Acme 2026", "products": [ContractProduct()], "product_groups": [ProductGroup()]},
    ):
        assert json.loads(NewContract(**TERMS, **fields).to_request())["customerId"] == "cus_1"


def test_request_rules_do_not_apply_to_responses():
    both = sample(Contract, plan_id="pl_1", name=None)

    assert both.products
    assert Contract.from_json(both.to_json()) == both


def test_a_rule_is_checked_when_a_request_is_parsed():
    body = b'{"customerId":"c","startDate":"2026-02-01T00:00:00Z"}'

    with pytest.raises(FieldMissing, match="name is required when planId is not provided"):
        NewContract.from_json(body)


def test_a_contract_query_has_at_most_one_customer_id():
    error = broken(FieldConflict, ContractQuery, customer_id="cus_1", customer_external_id="crm-1")

    assert str(error) == "at most one of customerId and customerExternalId may be given"
    assert error.params == ("customerId", "customerExternalId")
    for one in ({"customer_id": "cus_1"}, {"customer_external_id": "crm-1"}, {}):
        assert ContractQuery(**one).model_dump(exclude_none=True) == one


# --- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1001])
def test_a_batch_has_1_to_1000_events(count: int):
    error = broken(LimitBroken, EventBatch, events=[sample(UsageEvent)] * count)

    told = f"{count}: split it" if count else "none: give at least one"
    assert str(error) == f"a batch has 1 to 1000 events, and this one has {told}"
    assert error.params == ("events",)


def test_a_batch_is_counted_before_it_is_read():
    for count in (1, 1000):
        batch = EventBatch(events=[sample(UsageEvent)] * count)
        assert len(json.loads(batch.to_request())["events"]) == count
    with pytest.raises(LimitBroken, match="this one has 1001"):
        EventBatch.from_wire({"events": [{"no": "event"}] * 1001})
    with pytest.raises(ResourceError, match="not a valid EventBatch, because of events"):
        EventBatch.from_json(b'{"events":{"0":{}}}')


def batch_of(size_bytes: int) -> EventBatch:
    """A batch whose request is that long."""
    padded = EventBatch(events=[sample(UsageEvent, data={"pad": ""})])
    pad = "x" * (size_bytes - len(padded.to_json()))
    return EventBatch(events=[sample(UsageEvent, data={"pad": pad})])


def test_a_batch_of_256_kb_is_sent_and_one_byte_more_is_not():
    assert len(batch_of(MAX_BATCH_BYTES).to_request()) == MAX_BATCH_BYTES == 262_144

    error = broken(LimitBroken, batch_of(MAX_BATCH_BYTES + 1).to_request)

    assert str(error) == "a batch has at most 256 KB (262144 bytes), and this one 262145: split it"
    assert error.params == ("events",)


def test_a_page_of_events_has_at_most_1000():
    for limit in (1001, "1001", Decimal("1000.5"), 10**600):
        error = broken(LimitBroken, sample, EventQuery, limit=limit)

        assert str(error) == f"limit is {limit}, and the maximum is 1000: ask for more pages"
        assert error.params == ("limit",)
    # And other lists state no maximum.
    assert sample(EventQuery, limit=1000).limit == 1000
    assert sample(EventQuery, limit=None).limit is None
    assert PageQuery(limit=5000).limit == 5000


# --- credits and webhooks -------------------------------------------------------------------------

NEEDED = {
    to_camel(name): name for name in ("name", "credit_product_id", "balance_kind", "grant_amount", "schedule")
}


def test_a_top_up_needs_a_whole_grant():
    for field, name in NEEDED.items():
        grant = sample(CreditGrant, **{name: None})
        error = broken(FieldMissing, CreditTopUp, customer_id="c", credit_grant=grant)

        needed = "name, creditProductId, balanceKind, grantAmount, schedule"
        assert str(error) == f"the grant needs {needed}: give {field}"
        assert error.params == (f"creditGrant.{field}",)


def test_all_missing_fields_of_a_credit_grant_are_reported_together():
    error = broken(FieldMissing, CreditTopUp, customer_id="c", credit_grant={"price": 1, "name": "n"})
    whole = {field: sample(CreditGrant).model_dump()[name] for field, name in NEEDED.items()}

    assert error.params == tuple(f"creditGrant.{field}" for field in [*NEEDED][1:])
    assert CreditTopUp(customer_id="c", credit_grant=whole).credit_grant.price is None


WITH_THRESHOLD = (
    "CommitmentUsageCrossed", "CurrencyCommitmentUsageCrossed", "CreditPoolThresholdCrossed",
)  # fmt: skip


@pytest.mark.parametrize(
    "given", [("threshold",), ("recurring_threshold",), ("threshold", "recurring_threshold")]
)
def test_thresholds_apply_to_three_types_only(given: tuple[str, ...]):
    told, fields = [to_camel(name) for name in given], dict.fromkeys(given, 80)
    event = {"callback_url": "https://x.example", "event_type": "InvoiceApproved"}

    error = broken(FieldConflict, WebhookSubscription, **event, **fields)

    assert str(error) == (
        f"threshold and recurringThreshold apply to {', '.join(WITH_THRESHOLD)} only: leave "
        f"{' and '.join(told)} out for InvoiceApproved"
    )
    assert error.params == tuple(told)
    for event_type in WITH_THRESHOLD:
        request = sample(WebhookSubscription, event_type=event_type, **fields).to_request()
        assert json.loads(request).items() >= dict.fromkeys(told, 80).items()
    assert WebhookSubscription(**event, threshold=None).event_type == "InvoiceApproved"
