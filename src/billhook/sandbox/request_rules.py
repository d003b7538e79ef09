"""What operations ask of a request beyond its model, as far as a JSON schema can say it.

The models are shared by the client, and by operations that ask for different things of one field. So each
operation has a schema of its own here, for the OpenAPI document: with the model's, it is what the operation
accepts. `tests/contract/refusals.toml` has the refusals that no schema can express, each with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from billhook.events import EVENT_TYPES
from billhook.fields.types import CreditKind
from billhook.resources import ContractStatus
from billhook.resources.access import WITH_THRESHOLD
from billhook.resources.credits import TOP_UP_NEEDS
from billhook.sandbox.billing.contracts.custom_fields import VALUE_TYPES
from billhook.sandbox.billing.credits.credit_grants import GRANT_SCHEDULES
from billhook.sandbox.billing.event_query import DATA_PREFIX, GROUPINGS
from billhook.sandbox.billing.invoicing.invoice_lifecycle import Outcome
from billhook.sandbox.billing.new_contracts import (
    COMMITMENT_TYPES,
    DISCOUNT_TYPES,
    INTERVALS,
    LONGEST_MONTHS,
    OVERAGE_STRATEGIES,
    PRICING_TYPES,
)
from billhook.sandbox.billing.usage.cycles import DURATION_UNITS, LONGEST_DAYS
from billhook.sandbox.billing.usage.meters import AggregationMethod, FilterOperator
from billhook.sandbox.billing.usage.money import DEFAULT_CURRENCY, MAX_AMOUNT
from billhook.sandbox.operations import Operation
from billhook.sandbox.options import (
    MAX_AGGREGATED_METERS,
    MAX_ALIASES,
    MAX_CONDITIONS,
    MAX_FAULT_SECONDS,
    MAX_FLUSH_SECONDS,
    MAX_KEY,
    MAX_PRODUCTS,
    MAX_TIMES,
)
from billhook.sandbox.storage.repository import MAX_PAGE
from billhook.sandbox.webhooks.faults import TIMED, FaultKind
from billhook.sandbox.webhooks.http_post import MAX_URL_CHARACTERS
from billhook.sandbox.webhooks.outbox import STATES

Schema = dict[str, Any]

_NULL: Schema = {"type": "null"}
_TEXT: Schema = {"type": "string"}
_FILLED: Schema = {"pattern": r"\S"}
"""A text with more than white space; null is none of its business, as with all keywords for texts."""
_KEY: Schema = {"minLength": 1, "maxLength": MAX_KEY, "pattern": "^[^\\u0000]*[^\\s\\u0000][^\\u0000]*$"}
_CURRENCY: Schema = {"pattern": "^[A-Z]{3}$"}
_NOT_NEGATIVE: Schema = {"minimum": 0}
_CREDITS: Schema = {"exclusiveMinimum": 0, "maximum": int(MAX_AMOUNT)}
_IN_PATH = r'[^"\\\u0000-\u001f]+'
_PROPERTY: Schema = {"pattern": f"^{_IN_PATH}$"}
"""A key in an event's data."""


def _fields(**schemas: Schema) -> Schema:
    """Return the schema of an object by the fields' names on the wire."""
    return {"properties": schemas}


def _needs(*names: str, **schemas: Schema) -> Schema:
    """Return the schema of an object with these fields, which are not null."""
    there = {name: {"not": _NULL, **schemas.get(name, {})} for name in names}
    return {"required": list(names), "properties": {**schemas, **there}}


def _each(schema: Schema, most: int | None = None) -> Schema:
    limit = {} if most is None else {"maxItems": most}
    return {"items": schema, **limit}


def _one_of(words: Iterable[str]) -> Schema:
    """Return the schema of one of these words; null stands for the default."""
    return {"enum": [*map(str, words), None]}


def _where(name: str, words: Iterable[str], then: Schema, otherwise: Schema) -> Schema:
    """Return `then` for an object whose field `name` is one of these words, `otherwise` for any other."""
    chosen = {"required": [name], "properties": {name: {"enum": [*map(str, words)]}}}
    return {"if": chosen, "then": then, "else": otherwise}


_DURATION = {
    **_needs("unit", "value"),
    "properties": {
        "unit": {"enum": [*DURATION_UNITS]},
        "value": {"type": "number", "minimum": 1, "multipleOf": 1},
    },
    "allOf": [
        _where("unit", [unit], _fields(value={"maximum": LONGEST_DAYS // days}), {})
        for unit, days in DURATION_UNITS.items()
    ],
}
_SCHEDULING = _fields(duration=_DURATION)
_COMMITMENT = _fields(
    units=_NOT_NEGATIVE,
    type=_one_of(COMMITMENT_TYPES),
    overageStrategy=_one_of(OVERAGE_STRATEGIES),
    scheduling=_SCHEDULING,
)
_TIERS: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["price"],
        "properties": {
            "price": {"type": "number", "minimum": 0},
            "upTo": {"type": ["number", "null"], "exclusiveMinimum": 0},
        },
    },
}
_PRICING = {
    **_fields(
        type=_one_of(PRICING_TYPES),
        discount=_fields(type=_one_of(DISCOUNT_TYPES), amount=_NOT_NEGATIVE, recurring=_NOT_NEGATIVE),
    ),
    "allOf": [
        _where("type", ["Flat"], {}, _fields(price=_NOT_NEGATIVE)),
        _where("type", ["Tiered"], _needs("tiers", tiers=_TIERS), _fields(tiers={"maxItems": 0})),
    ],
}
_PRODUCTS = _each(_fields(pricing=_PRICING, commitment=_COMMITMENT, scheduling=_SCHEDULING), MAX_PRODUCTS)
_GRANT = {
    "grantAmount": _CREDITS,
    "price": {"minimum": 0, "maximum": int(MAX_AMOUNT)},
    "balanceKind": _one_of(CreditKind),
    "creditProductId": _KEY,
}
_CUSTOM_FIELDS = _each(
    {
        **_fields(customFieldName=_KEY, valueType=_one_of(VALUE_TYPES)),
        "anyOf": [_needs("customFieldName"), _needs("fieldPath")],
    }
)
_OF_INTEGRATION = _needs("type", "id", type={**_KEY, "type": "string", "not": {"pattern": "/"}}, id=_KEY)
_CUSTOMER = {
    "name": _FILLED,
    "currency": _CURRENCY,
    "dueDays": {"pattern": "^[0-9]{1,4}$"},
    "externalId": _KEY,
    "aliases": _each(_KEY, MAX_ALIASES),
    "externalIntegration": _each(_OF_INTEGRATION, MAX_ALIASES),
    "customFields": _CUSTOM_FIELDS,
}
_CONTRACT = {
    **_fields(
        status=_one_of(ContractStatus),
        currency=_CURRENCY,
        externalId=_KEY,
        customFields=_CUSTOM_FIELDS,
        creditGrants=_each(_fields(**_GRANT, schedule=_one_of(GRANT_SCHEDULES))),
    ),
    # With a plan, products are ignored, even invalid ones.
    "if": _needs("planId", planId={"minLength": 1}),
    "then": {},
    "else": _needs(
        "name",
        name={"minLength": 1},
        products=_PRODUCTS,
        productGroups=_each(_fields(products=_PRODUCTS, commitment=_COMMITMENT)),
    ),
}
_PLAN = _fields(
    name=_FILLED,
    externalId=_KEY,
    products=_PRODUCTS,
    billingData=_fields(
        billingInterval=_one_of(INTERVALS),
        duration={"minimum": 1, "maximum": LONGEST_MONTHS, "multipleOf": 1},
        billingDate=_fields(dayOfMonth={"minimum": 1, "maximum": 31}),
    ),
)
_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_VALUES: Mapping[tuple[str, ...], Schema] = {
    ("exists",): _fields(value={"type": ["boolean", "null"]}),
    ("greaterThan", "lessThan"): _needs("value", value={"type": "number"}),
    ("in",): _needs(
        "value", value={"type": "array", "minItems": 1, "maxItems": MAX_CONDITIONS, "items": _SCALAR}
    ),
    ("equals", "notEquals"): _needs("value", value=_SCALAR),
}
"""What a meter's filter needs, by its operators."""
_FILTER = {
    **_fields(property=_PROPERTY, operator={"enum": [*map(str, FilterOperator)]}),
    "allOf": [_where("operator", operators, needed, {}) for operators, needed in _VALUES.items()],
}
_METER = {
    **_fields(
        eventName=_KEY, key=_KEY, catalogProductId=_KEY, property={"allOf": [_KEY, _PROPERTY]},
        filters=_each(_FILTER, MAX_CONDITIONS),
    ),
    **_where("aggregationMethod", [AggregationMethod.COUNT], {}, _needs("property")),
}  # fmt: skip
_RATES = {
    "propertyNames": _CURRENCY,
    "properties": {DEFAULT_CURRENCY: {"const": 1}},
    "additionalProperties": {"exclusiveMinimum": 0, "maximum": int(MAX_AMOUNT)},
}
_FAULT = {
    **_fields(
        fault={"enum": [*map(str, FaultKind)]},
        probability={"exclusiveMinimum": 0, "maximum": 1},
        times={"maximum": MAX_TIMES},
        seconds={"exclusiveMinimum": 0, "maximum": MAX_FAULT_SECONDS},
    ),
    **_where("fault", TIMED, {}, _fields(seconds=_NULL)),
}
_CLOCK: Schema = {"oneOf": [_needs("advance", to=_NULL), _needs("to", advance=_NULL)]}
_URL: Schema = {
    "maxLength": MAX_URL_CHARACTERS,
    # A host, no user name, no fragment, and neither white space nor a backslash.
    "pattern": r'^[Hh][Tt][Tt][Pp][Ss]?://(?![/?:])(?![^/?]*@)[!"$-\[\]-~]+$',
}
_PERCENT: Schema = {"exclusiveMinimum": 0}
_BODIES: Mapping[str, Schema] = {
    "PUT /customers/{customerId}": _fields(**{**_CUSTOMER, "name": {**_TEXT, **_FILLED}}),
    "POST /_sandbox/customers": _needs("name", **{**_CUSTOMER, "name": {**_TEXT, **_FILLED}}),
    "POST /contracts": _CONTRACT,
    "POST /_sandbox/plans": _PLAN,
    "POST /catalogProducts": _fields(name=_FILLED, externalId=_KEY),
    "PUT /catalogProducts/{catalogProductId}": _fields(name={**_TEXT, **_FILLED}, externalId=_KEY),
    "POST /credits/deduct": _fields(creditAmount=_CREDITS),
    "POST /credits/top-up": _fields(
        creditGrant={"allOf": [_needs(*TOP_UP_NEEDS), _fields(**_GRANT)]}  # with the specification's five
    ),
    "POST /_sandbox/credits/grant": _fields(
        creditAmount=_CREDITS, balanceKind=_GRANT["balanceKind"], creditProductId=_KEY
    ),
    "POST /_sandbox/creditProducts": _fields(balanceKind=_GRANT["balanceKind"]),
    "POST /_sandbox/meters": _METER,
    "POST /_sandbox/invoices/{invoiceId}/payments": {
        **_fields(amount={"exclusiveMinimum": 0}),
        **_where("outcome", [Outcome.FAILED], {}, _fields(failureReason=_NULL)),
    },
    "PUT /_sandbox/exchangeRates": _fields(rates=_RATES),
    "POST /measurements": _fields(
        value=_NOT_NEGATIVE,
        usageDate=_fields(
            year={"minimum": 1, "maximum": 9999},
            month={"minimum": 1, "maximum": 12},
            day={"minimum": 1, "maximum": 31},
        ),
    ),
    "POST /cloudUsageSubmission": _fields(productCode=_FILLED, results=_each(_fields(idempotencyKey=_KEY))),
    "POST /v2/events/aggregation": _fields(
        meters={"minItems": 1, "maxItems": MAX_AGGREGATED_METERS},
        groupBy={"pattern": f"^({'|'.join(GROUPINGS)}|{re.escape(DATA_PREFIX)}{_IN_PATH})$"},
    ),
    "POST /_sandbox/faults": _FAULT,
    "POST /_sandbox/flush": _fields(timeoutSeconds={"minimum": 0, "maximum": MAX_FLUSH_SECONDS}),
    "POST /_sandbox/clock": _CLOCK,
    "POST /webhook": {
        **_fields(callbackUrl=_URL, threshold=_PERCENT, recurringThreshold=_PERCENT),
        **_where("eventType", WITH_THRESHOLD, {}, _fields(threshold=_NULL, recurringThreshold=_NULL)),
    },
}
_PARAMETERS: Mapping[str, Schema] = {
    "GET /_sandbox/deliveries": {"state": {"enum": [*STATES]}},
    "DELETE /_sandbox/faults": {"fault": {"enum": [*map(str, FaultKind)]}},
}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}
_BY_EVENT_TYPE = (
    "GET /_sandbox/raised",
    "POST /_sandbox/trigger/{eventType}",
    "POST /webhook",
    "POST /_sandbox/faults",
)


def body_rules(operation: Operation) -> Schema:
    """Return what an operation asks of its body beyond its model."""
    rules: Schema = _BODIES.get(operation.key, {})
    if operation.key not in _BY_EVENT_TYPE or not rules:
        return rules
    # Read now: users may have added types of their own since the module was imported.
    types = _one_of(EVENT_TYPES) if operation.key == "POST /_sandbox/faults" else {"enum": [*EVENT_TYPES]}
    return {**rules, "properties": {**rules["properties"], "eventType": types}}


def parameter_rules(operation: Operation, name: str) -> Schema:
    """Return what an operation asks of a parameter of its path or query beyond its model."""
    if name == "limit":
        return _LIMIT
    if name == "eventType" and operation.key in _BY_EVENT_TYPE:
        return {"enum": [*EVENT_TYPES]}
    rules: Schema = _PARAMETERS.get(operation.key, {}).get(name, {})
    return rules
