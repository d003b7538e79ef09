"""Hypothesis strategies for the values that the service's JSON may hold."""

from __future__ import annotations

from datetime import datetime

from hypothesis import strategies as st

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
