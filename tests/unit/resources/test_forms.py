"""The forms of a resource: as JSON, as a request, as a response, as a query; and reading them.

What resources share with events (spellings, extra fields, details of mistakes) is tested in unit/events.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic import ValidationError

from billhook.errors import BillhookError, InvalidResource, ResourceError
from billhook.resources import (
    READ_ONLY,
    RESOURCES,
    WRITE_ONLY,
    Contract,
    ContractPage,
    ContractQuery,
    CreditLedgerPage,
    Customer,
    CustomerResponse,
    CustomerUpdate,
    EventBatch,
    EventQuery,
    IngestionResult,
    InvalidEvent,
    InvoiceQuery,
    LoginRequest,
    LoginResponse,
    NewContract,
    PageQuery,
    UsageDate,
    UsageEvent,
    sample,
)


def fields_with(access: object, cls: type) -> set[str]:
    return {field.alias for field in cls.model_fields.values() if access in field.metadata}


# --- on the way out -------------------------------------------------------------------------------


def test_a_request_omits_read_only_and_a_response_write_only_fields():
    for cls in RESOURCES.values():
        resource = sample(cls)
        everything = json.loads(resource.to_json())

        request, response = json.loads(resource.to_request()), json.loads(resource.to_response())

        assert everything.keys() - request.keys() == fields_with(READ_ONLY, cls)
        assert everything.keys() - response.keys() == fields_with(WRITE_ONLY, cls)


def test_a_customer_that_was_read_can_be_sent_back_changed():
    read = Customer.from_json(sample(Customer).to_json())
    changed = read.model_copy(update={"name": "Acme plc"})

    sent = json.loads(changed.to_request())

    assert sent["name"] == "Acme plc"
    assert isinstance(changed, CustomerUpdate)
    assert not sent.keys() & {"id", "createdAt", "updatedAt", "customFieldValues", "openAmount", "paidAmount"}
    assert sent["customFields"][0]["value"] == "EMEA"


def test_read_only_and_write_only_fields_are_omitted_in_nested_objects():
    page = ContractPage(contracts=[sample(Contract), sample(Contract)], total=2, has_more=False)
    response = CustomerResponse(customer=sample(Customer))

    contracts = json.loads(page.to_response())["contracts"]
    customer = json.loads(response.to_response())["customer"]

    assert [contract.keys() & {"customFields", "customFieldValues"} for contract in contracts] == [
        {"customFieldValues"}
    ] * 2
    assert "customFields" not in customer
    assert "customFields" in json.loads(response.to_json())["customer"]
    assert "id" not in json.loads(response.to_request())["customer"]


def test_unset_fields_are_omitted_and_none_is_sent_as_null():
    assert CustomerUpdate().to_request() == b"{}"
    assert CustomerUpdate(due_days=None).to_request() == b'{"dueDays":null}'
    assert (
        CustomerUpdate(name="Zoë", legal_name="Z").to_request() == '{"name":"Zoë","legalName":"Z"}'.encode()
    )


def test_extra_fields_are_in_every_form():
    event = sample(UsageEvent, source="import", tags=[Decimal("1.10")])

    assert event.model_extra == {"source": "import", "tags": [Decimal("1.10")]}
    for body in (event.to_json(), event.to_request(), event.to_response()):
        assert body.endswith(b'"source":"import","tags":[1.10]}')
    with pytest.raises(TypeError, match="a set has no JSON form"):
        CustomerUpdate(tags={1}).to_request()


# --- queries --------------------------------------------------------------------------------------


def test_a_query_is_text_by_the_names_of_the_wire():
    query = EventQuery(
        start_time=datetime(2026, 1, 1, tzinfo=UTC), end_time="2026-02-01", limit=500, customer_alias="acme"
    )

    assert query.to_query() == {
        "limit": "500",
        "startTime": "2026-01-01T00:00:00Z",
        "endTime": "2026-02-01T00:00:00Z",
        "customerAlias": "acme",
    }


def test_a_query_omits_none_and_includes_extra_parameters():
    query = InvoiceQuery(customer_id=None, billing_status="Overdue", drafts=True, depth=2)

    assert query.to_query() == {"billingStatus": "Overdue", "drafts": "true", "depth": "2"}
    assert PageQuery().to_query() == {}


def test_a_query_is_read_from_text():
    text = sample(EventQuery).to_query()

    assert EventQuery.from_wire(text) == sample(EventQuery)
    assert PageQuery(limit="10").limit == Decimal(10)
    assert ContractQuery.from_wire({"cursor": "10"}).cursor == "10"


def test_a_limit_that_is_no_number_is_refused():
    for limit in ("ten", "", "true", '"10"', "1e999", "\ud800", "NaN", "[1]", "\u0661"):
        with pytest.raises(ValidationError, match="Input should be a number"):
            PageQuery(limit=limit)


# --- on the way in --------------------------------------------------------------------------------


def test_a_resource_that_is_no_strict_json_object_is_refused():
    for body, told in (
        (b"<html>", "the body is not JSON (line 1, column 1)"),
        (b'{"id":"a","id":"b"}', "an object in the body has the same key twice"),
        (b"[]", "the body is JSON, but not an object"),
        (b"null", "the body is JSON, but not an object"),
        (b'"{}"', "the body is JSON, but not an object"),
    ):
        with pytest.raises(InvalidResource) as caught:
            Customer.from_json(body)

        assert str(caught.value) == told
        assert caught.value.details == []
        assert caught.value.__cause__ is None
        assert isinstance(caught.value, ResourceError)
        assert isinstance(caught.value, BillhookError)


def test_fields_called_as_methods_are_are_only_fields():
    body = b'{"to_json":1,"from_json":2,"to_request":3,"model_extra":4,"_to_json_without":5}'
    update = CustomerUpdate.from_json(body)

    assert update.to_json() == body
    assert update.to_request() == body


def test_a_response_without_its_write_only_fields_is_read():
    contract = Contract.from_json(
        b'{"id":"con_1","createdAt":"2026-01-15T09:30:00Z","updatedAt":"2026-01-15T09:30:00Z",'
        b'"startDate":"2026-02-01T00:00:00Z","customerId":"cus_1","planId":"pl_1",'
        b'"products":[{"displayName":"kept"}],"status":"Suspended","deletedAt":"2026-03-01T12:00:00Z"}'
    )

    assert contract.custom_fields is None
    assert (
        contract.plan_id == "pl_1"
    )  # with products: a rule for requests, and the service may answer as it likes
    assert contract.products[0].display_name == "kept"
    assert contract.deleted_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert type(contract.status) is str


def test_an_invalid_event_is_parsed_where_possible_and_raw_otherwise():
    whole = sample(UsageEvent).to_json().decode()
    result = IngestionResult.from_json(
        f'{{"validEvents":[],"invalidEvents":[{{"event":{whole},"error":"ref exists"}},'
        '{"event":{"name":"n","data":{"x":1.10}},"error":"no ref"},{"event":7,"error":"no event"}]}'.encode()
    )

    kept = [each.event for each in result.invalid_events]

    assert kept == [sample(UsageEvent), {"name": "n", "data": {"x": Decimal("1.10")}}, 7]
    assert InvalidEvent(event=sample(UsageEvent), error="e").event == sample(UsageEvent)


def test_a_page_has_its_cursor_and_has_more():
    last = ContractPage.from_json(b'{"contracts":[],"total":0,"hasMore":false}')
    ledger = CreditLedgerPage.from_json(b'{"entries":[]}')
    more = CreditLedgerPage.from_json(b'{"entries":[],"hasMore":true,"nextCursor":"c2","total":7}')

    assert (last.has_more, last.next_cursor, last.total) == (False, None, 0)
    assert (ledger.has_more, ledger.next_cursor, ledger.total) == (False, None, None)
    assert (more.has_more, more.next_cursor, more.total) == (True, "c2", 7)


# --- the model ------------------------------------------------------------------------------------


def test_reading_a_deprecated_field_warns():
    customer, contract = sample(Customer), sample(Contract)

    with pytest.warns(DeprecationWarning, match="use taxIds"):
        assert customer.tax_id == "tax_id-1"
    with pytest.warns(DeprecationWarning, match="the service has deprecated it"):
        assert contract.should_pro_rate_invoices is True


@pytest.mark.parametrize(("cls", "field"), [(LoginRequest, "refresh_token"), (LoginResponse, "access_token")])
def test_a_token_is_in_no_text(cls: type, field: str):
    login = sample(cls, **{field: "hunter2"}, idToken="hunter2")

    assert "hunter2" not in f"{login!r} {login}"
    assert "hunter2" in login.to_json().decode()
    with pytest.raises(ValidationError) as caught:
        sample(cls, **{field: ["hunter2"]})
    assert "hunter2" not in str(caught.value)


def test_the_json_schema_describes_the_wire_format():
    customer = Customer.model_json_schema()["properties"]
    batch = EventBatch.model_json_schema()

    assert customer["openAmount"]["readOnly"] is True
    assert customer["customFields"]["writeOnly"] is True
    assert "readOnly" not in customer["name"]
    assert customer["taxId"]["deprecated"] is True
    assert customer["openAmount"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
    assert (batch["properties"]["events"]["minItems"], batch["properties"]["events"]["maxItems"]) == (1, 1000)
    assert UsageDate.model_json_schema()["properties"]["day"]["minimum"] == 1
    assert "customerId" in NewContract.model_json_schema(mode="serialization")["required"]
