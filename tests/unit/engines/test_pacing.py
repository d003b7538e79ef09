"""How many deliveries a poll reads, and when the next one is: the table of billhook.engines.pacing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from billhook.engines.pacing import FIRST_ROWS, PLAN_BYTES, Pacing

NOW = datetime(2026, 1, 15, 9, 30, tzinfo=UTC)
DUE, LATER = NOW - timedelta(seconds=5), NOW + timedelta(seconds=1)
MOST = 200


def of_bytes(size: int, number: int = 10) -> list:
    return [SimpleNamespace(body=b"x" * size)] * number


@pytest.fixture
def pacing() -> Pacing:
    """One that has read small deliveries."""
    found = Pacing(MOST)
    found.record_read(of_bytes(1))
    return found


def test_the_first_poll_reads_few_and_the_next_ones_what_fits():
    pacing = Pacing(MOST)
    read = [pacing.rows]
    for size in (1, PLAN_BYTES // 20, 0, PLAN_BYTES + 1):
        pacing.record_read(of_bytes(size))
        read.append(pacing.rows)
    pacing.record_read([])  # says nothing

    assert [*read, pacing.rows] == [FIRST_ROWS, MOST, 20, MOST, 1, 1]


def test_while_more_is_due_than_there_is_capacity_for_a_poll_reads_a_quarter(pacing):
    read = []
    for claimed in (8, 7, 8):
        pacing.record_claim(claimed, 8, None, NOW)
        read.append(pacing.rows)

    assert read == [MOST // 4, MOST, MOST // 4]


def test_each_failure_halves_what_is_read_until_a_success(pacing):
    pauses, read = [], []
    for _ in range(5_000):  # two to that power is no float
        pauses.append(pacing.record_failure())
        read.append(pacing.rows)

    assert (pauses[:6], pauses[-1]) == ([0.2, 0.4, 0.8, 1.6, 3.2, 5.0], 5.0)
    assert (read[:3], read[-1], pacing.failures) == ([100, 50, 25], 1, 5_000)
    pacing.record_claim(1, 1, None, NOW)
    assert pacing.rows == 1
    pacing.record_claim(0, 1, None, NOW)
    pacing.record_success(0.1, 0.1, None)
    assert (pacing.rows, pacing.failures, pacing.record_failure()) == (MOST, 0, 0.2)


def test_empty_claims_back_off_exponentially(pacing):
    pauses = []
    for _ in range(12):
        pacing.record_claim(0, 1, DUE, NOW)
        pauses.append(pacing.seconds(DUE, NOW, [None], idle=True))

    assert pauses[:3] == [0.02, 0.04, 0.08]
    assert pauses[-1] == 2.0
    pacing.record_claim(1, 2, DUE, NOW)
    assert pacing.seconds(DUE, NOW, [], idle=True) == 0.01


def test_an_empty_claim_of_what_is_not_due_is_no_reason_to_wait(pacing):
    pacing.record_claim(0, 1, LATER, NOW)

    assert pacing.is_worth_claiming(DUE, NOW, idle=False)


@pytest.mark.parametrize(
    ("next_due_at", "idle", "expected"),
    [(None, True, False), (LATER, True, False), (DUE, False, False), (NOW, True, True)],
)
def test_after_an_empty_claim_the_next_waits_for_a_free_thread(pacing, next_due_at, idle, expected):
    pacing.record_claim(0, 1, NOW, NOW)

    assert pacing.is_worth_claiming(next_due_at, NOW, idle=idle) is expected


@pytest.mark.parametrize(
    ("next_due_at", "others", "idle", "expected"),
    [
        (None, [], True, 2.0),
        (None, [None, 0.5, 1.5], True, 0.5),
        (LATER, [1.5], True, 1.0),
        (LATER, [], False, 1.0),
        (DUE, [], False, 2.0),  # an attempt that ends wakes the worker up
        (None, [0.0], True, 0.01),
        (NOW, [], True, 0.01),
    ],
)
def test_the_next_poll_is_when_anything_has_to_be_done(pacing, next_due_at, others, idle, expected):
    assert pacing.seconds(next_due_at, NOW, others, idle=idle) == expected


@pytest.mark.parametrize(
    ("took", "commit_seconds", "to_renewal", "expected"),
    [
        (0.1, 0.1, None, 0.0),
        (1.0, 0.01, None, 0.0),  # slow for want of processor time
        (0.05, 1.0, None, 0.0),  # of an earlier commit
        (0.5, 0.4, None, 1.0),
        (4.0, 4.0, None, 5.0),
        (4.0, 4.0, 0.3, 0.3),
    ],
)
def test_after_a_slow_commit_receivers_write_first(pacing, took, commit_seconds, to_renewal, expected):
    assert pacing.record_success(took, commit_seconds, to_renewal) == expected
