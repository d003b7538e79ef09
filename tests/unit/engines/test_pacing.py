"""How many deliveries a poll reads, and when the next one is: the table of billhook.engines.pacing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from billhook.engines.pacing import FIRST_ROWS, PLAN_BYTES, Pacing
from billhook.inbox import NOTHING_DUE, PollStart, Unread

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


NOTHING_UNREAD = Unread([], None)


def poll(pacing, at, took, unread=NOTHING_UNREAD, times=NOTHING_DUE, rows=10):
    """Let a poll begin at a time, take so long and find these; return where it began."""
    start = pacing.start(rows, at, {"own"})
    pacing.record_start(start, unread, times, NOW, at, at + took)
    return start


def test_polls_begin_at_what_the_last_one_found_once_three_from_the_beginnings_were_slow():
    pacing = Pacing(MOST, keeps_entries=True)
    unread = Unread([], None, 7)
    times = NOTHING_DUE._replace(first_due_at=DUE, lease_ends_at=LATER, names=frozenset({"other"}))
    second = timedelta(seconds=1)
    whole = [poll(pacing, at, took, unread, times) for at, took in enumerate((0.05, 0.01, 0.05, 0.05, 0.05))]

    assert whole == [None] * 5
    later = [poll(pacing, 4.06, 0.001), poll(pacing, 5.04, 0.03), poll(pacing, 9, 0.001, rows=0)]
    assert later[0] == PollStart(7, DUE - second, LATER, ("other", "own"))
    assert (
        later[1] == later[2] == later[0]._replace(due_at=NOW - second)
    )  # nothing found; a minute is no bound
    assert poll(pacing, 9.1, 0.03, unread) is None  # twenty times 0.05 s are over
    assert poll(pacing, 9.2, 0.001) == PollStart(7, NOW - second, LATER, ("own",))
    assert [poll(pacing, at, 0.001) for at in (9.8, 9.81, 9.82)] == [None] * 3  # quick again


def test_what_was_found_later_than_now_is_no_start():
    pacing = Pacing(MOST, keeps_entries=True)
    for at in range(3):
        poll(pacing, at, 0.05, times=NOTHING_DUE._replace(first_due_at=LATER))

    assert pacing.start(10, 2.1, ()).due_at == NOW - timedelta(seconds=1)


def test_a_database_that_keeps_no_entries_is_read_from_the_beginnings(pacing):
    assert [poll(pacing, at, 1.0) for at in range(9)] == [None] * 9
