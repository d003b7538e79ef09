"""Cycles, renewals and ends of contracts. Source: spec, "Resources and their fields", Contract; "Events"."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from billhook.sandbox.billing.usage.cycles import ContractRecord, cycle_at, next_end_date
from support.scenarios import STARTED


def kept(
    start: str, *, end: str | None = None, months: int = 1, days: int = 0, **more: Any
) -> ContractRecord:
    """A contract as it is stored, for what is reckoned from it alone."""
    ends = {} if end is None else {"endDate": end, "firstEndDate": end}
    body = {"customerId": "cus_1", "name": "Deal", "startDate": start, "cycleMonths": months}
    stored = {"id": "con_1", "createdAt": STARTED, "updatedAt": STARTED, "cycleDays": days}
    return ContractRecord.from_wire({**body, **stored, **ends, **more})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


CYCLES = [
    ("2026-01-31", "2026-02-27T23:59", "2026-01-31", "2026-02-28"),
    ("2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31"),
    ("2026-01-31", "2026-03-31", "2026-03-31", "2026-04-30"),
    ("2028-01-31", "2028-02-29", "2028-02-29", "2028-03-31"),
    ("2026-01-10T12:00", "2026-02-10T11:59", "2026-01-10T12:00", "2026-02-10T12:00"),
    ("2026-01-10T12:00", "2026-02-10T12:00", "2026-02-10T12:00", "2026-03-10T12:00"),
    ("2026-05-01", "2026-01-10", "2026-05-01", "2026-06-01"),
    ("1999-12-31", "2026-06-30", "2026-06-30", "2026-07-31"),
]


def test_cycles_are_counted_from_the_start_and_come_back_to_the_31st() -> None:
    found = [cycle_at(kept(start), at(moment)) for start, moment, _, _ in CYCLES]

    assert found == [(at(begin), at(end)) for _, _, begin, end in CYCLES]


def test_a_moment_of_every_cycle_is_in_the_cycle_that_it_begins() -> None:
    contract = kept("2027-10-31T23:30", months=3)

    begin, end = cycle_at(contract, contract.start_date)
    for _ in range(60):
        assert cycle_at(contract, begin) == (begin, end)
        begin, last = cycle_at(contract, end)
        assert begin == end
        end = last


RENEWALS = [
    ("2026-01-10", "2027-01-10", "2027-01-10", "2028-01-10"),
    ("2026-01-31", "2026-02-28", "2026-02-28", "2026-03-31"),
    ("2026-02-01", "2027-01-31", "2027-01-31", "2028-01-31"),
    ("2026-02-01", "2026-02-28", "2026-02-28", "2026-03-31"),
    ("2026-01-10", "2026-01-20", "2026-01-20", "2026-01-30"),
    ("2020-01-10", "2021-01-10", "2026-06-01", "2027-01-10"),
    ("2020-01-10", "2020-01-11", "2026-06-01T12:00", "2026-06-02"),
    ("2024-02-29", "2025-02-28", "2027-02-28", "2028-02-29"),
    ("2025-03-01", "2026-02-28T23:59:59", "2027-06-01", "2028-02-29T23:59:59"),
]


def test_a_contract_is_renewed_by_its_own_length() -> None:
    found = [next_end_date(kept(start, end=end), at(now)) for start, end, now, _ in RENEWALS]

    assert found == [at(expected) for *_, expected in RENEWALS]
