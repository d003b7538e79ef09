"""Many processes share the limits of a handler: no more of its runs are under way, or start, than allowed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest

from billhook.inbox import HandlerLimits, Inbox
from support.processes import in_children
from support.runs import result_of, store_due

LEASE = timedelta(hours=1)
AT_MOST = 12
RATE = (200, 1.0)
LIMITS = {
    "bounded": HandlerLimits(("bounded",), at_most=AT_MOST),
    "paced": HandlerLimits(("paced",), rate=RATE),
}


def work(inbox: Inbox, number: int, limits: Mapping[str, HandlerLimits]) -> bytes:
    """Claim and settle until nothing is left; return when each run of each handler began and ended."""
    chance, held = random.Random(number), []
    spans: dict[str, list[tuple[float, float]]] = {"bounded": [], "paced": []}
    while True:
        now = datetime.now(UTC)
        ended = time.monotonic()
        for claim, begun in held:
            spans[claim.handler].append((begun, ended))
        results = [result_of(one)._replace(at=now) for one, _ in held]
        with inbox.transaction(f"worker-{number}", limits) as transaction:
            transaction.settle(results)
            claims = transaction.claim(chance.randrange(1, 40), now, now + LEASE)
            due_at = transaction.next_times().due_at
        # Those under way are counted from the commit, when they can begin; starts when they are claimed, by
        # the clock that the claim was made with.
        begun = time.monotonic()
        held = [(claim, now.timestamp() if claim.handler == "paced" else begun) for claim in claims]
        if not held:
            if due_at is None:
                return json.dumps(spans).encode()
            time.sleep(0.002)


def spans_of(inbox: Inbox, processes: int, limits: Mapping[str, HandlerLimits]) -> dict[str, Any]:
    told = in_children(processes, lambda number: work(inbox, number, limits))
    assert not [one for one in told if one.startswith(b"raised")], told
    found = [json.loads(one) for one in told]
    return {name: list(chain.from_iterable(one[name] for one in found)) for name in LIMITS}


def most_at_once(spans: list[tuple[float, float]]) -> int:
    steps = sorted(chain.from_iterable(((begun, 1), (ended, -1)) for begun, ended in spans))
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def most_in_a_second(spans: list[tuple[float, float]]) -> int:
    begun = sorted(one for one, _ in spans)
    most = first = 0
    for last, moment in enumerate(begun):
        while moment - begun[first] >= RATE[1]:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.long
def test_no_run_is_above_the_limits_of_its_handler(inbox, figures):
    runs, processes = 40_000, 8
    store_due(inbox, runs // 2, "bounded", "paced")

    spans = spans_of(inbox, processes, LIMITS)

    at_once, in_a_second = most_at_once(spans["bounded"]), most_in_a_second(spans["paced"])
    above = max(0, at_once - AT_MOST) + max(0, in_a_second - RATE[0])
    figures.add("runs above a handler's limit", above, runs, processes, "processes")
    assert at_once <= AT_MOST
    assert in_a_second <= RATE[0]
    assert [len(one) for one in spans.values()] == [runs // 2, runs // 2]


@pytest.mark.long
def test_control_without_limits_more_are_under_way_and_start(inbox):
    store_due(inbox, 400, "bounded", "paced")

    spans = spans_of(inbox, 4, {})

    assert most_at_once(spans["bounded"]) > AT_MOST
    assert most_in_a_second(spans["paced"]) > RATE[0]


def test_overlaps_are_counted():
    spans = [[(0, 2), (1, 3), (2, 4)], [(0, 9), (1, 2), (1, 3)], []]

    assert [most_at_once(each) for each in spans] == [2, 3, 0]
