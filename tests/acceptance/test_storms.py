"""The same delivery from everywhere at once: stored once, and answered `accepted` once."""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter

import pytest

from support.acceptance.senders import Line, body_of
from support.acceptance.stack import STANDALONE, Stack
from support.inbox_view import change
from support.processes import in_children, together

COPIES = 64
SENDERS = 4

pytestmark = pytest.mark.long


def storm(stack: Stack, keys: int, app: str = STANDALONE) -> dict[str, Counter[str]]:
    """Every key sent by 64 connections of four processes at one moment; how often it was answered what."""
    # A process takes at most so many connections: none can have them all.
    flags = ["--worker-connections", "24"]
    stack.start_web(app, workers=4, flags=flags, BILLHOOK_DEADLINE_SECONDS="30")
    at_once = multiprocessing.get_context("fork").Barrier(COPIES)

    def sender(_: int) -> bytes:
        # Lists, because a Counter loses what two threads add at the same moment.
        found: dict[str, list[str]] = {f"msg_{number}": [] for number in range(keys)}

        def copies(_: int) -> None:
            line = Line(stack.port, 60)
            for number in range(keys):
                key = f"msg_{number}"
                at_once.wait(60)
                answer = line.post(key, body_of(number))
                found[key].append(f"{answer.status} {answer.body.decode()}")
            line.close()

        assert together(COPIES // SENDERS, copies) == [None] * (COPIES // SENDERS)
        return json.dumps(found).encode()

    counted: dict[str, Counter[str]] = {}
    for told in in_children(SENDERS, sender):
        for key, answers in json.loads(told).items():
            counted.setdefault(key, Counter()).update(answers)
    return counted


def stored_twice(stack: Stack, table: str = "delivery") -> int:
    """How many rows there are beside the first of each key."""
    return stack.value(f"SELECT count(*) - count(DISTINCT key) FROM {table}")


def test_64_concurrent_copies_of_a_delivery_are_stored_once(stack, figures):
    keys = 200

    answers = storm(stack, keys)

    twice = stored_twice(stack)
    figures.add("double-stored", twice, keys * COPIES, keys, f"keys x {COPIES} copies")
    assert twice == 0
    assert stack.value("SELECT count(*) FROM delivery") == keys
    once = {'200 {"status": "accepted"}': 1, '200 {"status": "duplicate"}': COPIES - 1}
    assert answers == {f"msg_{number}": once for number in range(keys)}


def test_a_receiver_that_looks_before_it_inserts_is_caught(stack):
    change(stack.where, "CREATE TABLE seen (key TEXT)")

    storm(stack, 12, "faulty_receivers:looks_first()")

    assert stored_twice(stack, "seen") > 0
