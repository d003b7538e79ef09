"""Hypothesis strategies for the values that the service's JSON may hold, and for bodies of any model."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from hypothesis import strategies as st

from billhook.fields import WireModel

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBER = st.decimals(allow_nan=False, allow_infinity=False).filter(
    lambda number: abs(number.adjusted()) < 600
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TIME = st.datetimes(
    datetime(2, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(9998, 12, 31),  # noqa: DTZ001
    timezones=st.none() | st.timezones(),
)
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
"""Fields that the rules of requests need or exclude."""


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
        ["type", "to_json", "model_extra", "__class__", "self", "_registered", *cls.model_fields]
    )
    known = needed.keys() | optional.keys() | never
    extras = st.dictionaries((TEXT | awkward).filter(lambda key: key not in known), JSON, max_size=2)
    return st.builds(lambda one, two: one | two, st.fixed_dictionaries(needed, optional=optional), extras)
