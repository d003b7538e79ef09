"""cls.from_json(it.to_json()) == it, for every resource and any values."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from billhook.errors import InvalidResource, RuleBroken
from billhook.resources import RESOURCES
from billhook.wire import WireModel
from support.strategies import JSON, NUMBER, TEXT, TIME

SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    Decimal: NUMBER,
    int: st.integers(min_value=1),
    bool: st.booleans(),
    datetime: TIME,
    Any: JSON,
    NoneType: st.none(),
}
GRANT = {"name", "creditProductId", "balanceKind", "grantAmount", "schedule"}
GIVEN = {"NewContract": {"name"}, "CreditGrant": GRANT}
NEVER = {
    "NewContract": {"planId"},
    "ContractQuery": {"customerExternalId"},
    "WebhookSubscription": {"threshold", "recurringThreshold"},
}


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """What a field of this type may be given, as the decoder would give it (and datetimes)."""
    if annotation in SIMPLE:
        return SIMPLE[annotation]
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return st.deferred(lambda: objects_of(annotation))
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values_of(inner[0])
    if origin is list:
        return st.lists(values_of(inner[0]), min_size=1, max_size=2)
    if origin is dict:
        return st.dictionaries(TEXT, values_of(inner[1]), max_size=2)
    return st.one_of(*map(values_of, inner))


def objects_of(cls: type[WireModel]) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies of `cls`: its fields, the optional ones perhaps, and some that no one knows."""
    given, never = GIVEN.get(cls.__name__, set()), NEVER.get(cls.__name__, set())
    needed, optional = {}, {}
    for field in cls.model_fields.values():
        if field.alias in given:  # not None either
            inner = next(part for part in get_args(field.annotation) if part is not NoneType)
            needed[field.alias] = values_of(inner).filter(lambda value: value != "")
        elif field.alias not in never:
            (needed if field.is_required() else optional)[field.alias] = values_of(field.annotation)
    awkward = st.sampled_from(
        ["to_json", "model_extra", "__class__", "self", "_registered", *cls.model_fields]
    )
    known = needed.keys() | optional.keys() | never
    extras = st.dictionaries((TEXT | awkward).filter(lambda key: key not in known), JSON, max_size=2)
    return st.builds(lambda one, two: one | two, st.fixed_dictionaries(needed, optional=optional), extras)


@pytest.mark.parametrize("name", RESOURCES)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_every_resource_survives_a_round_trip(name: str, data: st.DataObject):
    cls = RESOURCES[name]
    try:
        resource = cls.model_validate(data.draw(objects_of(cls)), by_alias=True, by_name=False)
    except RuleBroken:  # a limit over 1000
        reject()

    again = cls.from_json(resource.to_json())

    assert again == resource
    assert again.model_extra == resource.model_extra
    assert again.to_json() == resource.to_json()
    assert again.to_request() == resource.to_request()
    assert again.to_response() == resource.to_response()


@pytest.mark.parametrize("name", RESOURCES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_json_is_a_resource_or_a_resource_error(name: str, data: st.DataObject):
    cls = RESOURCES[name]
    aliases = [field.alias for field in cls.model_fields.values()]
    hostile = st.fixed_dictionaries({}, optional=dict.fromkeys(aliases, JSON)) | JSON

    try:
        resource = cls.from_wire(data.draw(hostile))
    except (InvalidResource, RuleBroken):
        return

    assert cls.from_json(resource.to_json()) == resource
