"""Many processes take runs at once: each run is taken by one of them, and called once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.acceptance.stack import Stack
from support.inbox_view import change, incoming, rows
from support.processes import in_children
from support.runs import result_of, store_due

BATCH = 200
LEASE = timedelta(hours=1)


def taken_by(processes: int, claimer: Callable[[int], bytes]) -> Counter[int]:
    """How often each run was taken, by children that all run `claimer(number)`: ids, a space between."""
    found: Counter[int] = Counter()
    for told in in_children(processes, claimer):
        assert not told.startswith(b"raised"), told.decode()
        found.update(int(run_id) for run_id in told.split())
    return found


def twice(taken: Counter[Any]) -> int:
    """How many times more often than once."""
    return sum(count - 1 for count in taken.values())


def test_no_run_is_claimed_by_two_processes(inbox, figures, long):
    runs, processes = (40_000, 8) if long else (400, 3)
    store_due(inbox, runs, "note")

    def claimer(number: int) -> bytes:
        chance, mine, held = random.Random(number), [], []
        while True:
            now = datetime.now(UTC)
            with inbox.transaction(f"claimer-{number}") as transaction:
                transaction.settle([result_of(claim)._replace(at=now) for claim in held[::2]])
                held = transaction.claim(chance.randrange(1, 40), now, now + LEASE)
                next_due_at = transaction.next_times().due_at
            mine += [str(claim.run_id) for claim in held]
            if not held and (next_due_at is None or next_due_at > now):
                return " ".join(mine).encode()

    taken = taken_by(processes, claimer)

    figures.add("double claims", twice(taken), runs, processes, "processes")
    assert twice(taken) == 0
    assert len(taken) == runs


def test_claiming_in_two_steps_without_a_lock_is_caught(inbox, where):
    store_due(inbox, 400, "note")
    inbox.close()

    def claimer(number: int) -> bytes:
        mine = []
        while found := rows(where, "SELECT id FROM run WHERE state = 'due' ORDER BY id LIMIT 1"):
            change(where, "UPDATE run SET state = 'running' WHERE id = ?", *found[0])
            mine.append(str(found[0][0]))
        return " ".join(mine).encode()

    assert twice(taken_by(4, claimer)) > 0


@pytest.mark.long
def test_no_handler_is_called_twice_while_no_worker_dies(stack: Stack, inbox, figures):
    runs, workers = 8_000, 8
    for _ in range(workers):
        stack.start_worker(BILLHOOK_LEASE_SECONDS="60")
    for first in range(0, runs, BATCH):
        inbox.database.insert_new([incoming(f"msg_{first + n}") for n in range(BATCH)])
        inbox.waker.wake()
    stack.drain(300)

    called = Counter(key for key, _, _ in stack.noted())
    figures.add("handlers called twice", twice(called), runs, workers, "workers")
    assert twice(called) == 0
    assert len(called) == runs
