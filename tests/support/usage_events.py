"""Usage events of any form, and the settings of tests that try them. Source: spec, Event (ingested)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.decimals(-1000, 1000, allow_nan=False, allow_infinity=False, places=3),
)
SCALARS = st.one_of(st.sampled_from(["", "a", "b", "1", "true", "null", 'q"', "\\"]), NUMBERS, st.booleans())
VALUES = st.one_of(SCALARS, st.none(), st.lists(SCALARS, max_size=2), st.dictionaries(TEXTS, SCALARS))

PATIENTLY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Other tests may take the machine meanwhile."""

TIMES = st.one_of(
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.sampled_from(
        [
            "2026-01-10", "2026-01-10T09:00:00", "2026-01-10T09:00:00+02:00", "2026-01-10t09:00:00z",
            "2026-01-10T09:00Z", "2026-01-10T09:00:00.5Z", "2026-01-10T09:00:00.1234567Z",
            "2026-01-10T24:00:00Z", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "2026-01-10T09:00:60Z", "20260110T090000Z", "2026-W02-6", "now", "", "\uff12026-01-10T09:00:00Z",
        ]
    ),
)  # fmt: skip
FIELD = st.one_of(st.sampled_from(["a", " ", "", "x" * 255, "x" * 256, "nul\0", "\\u0000", "é\n"]), VALUES)
EVENTS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {},
        optional={
            "name": FIELD, "customerAlias": FIELD, "ref": FIELD, "timestamp": st.one_of(TIMES, VALUES),
            "data": st.one_of(st.dictionaries(TEXTS, VALUES, max_size=3), VALUES), "more": VALUES,
        },
    ),
    st.fixed_dictionaries(
        {"name": TEXTS, "customerAlias": TEXTS, "ref": TEXTS, "timestamp": TIMES},
        optional={"data": st.dictionaries(TEXTS, VALUES, max_size=3), "customer_alias": TEXTS},
    ),
)  # fmt: skip
