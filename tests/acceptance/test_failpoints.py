"""SIGKILL at each named place: what was answered 200 is handled, and the attempts tell what happened."""

from __future__ import annotations

import os
import random
import signal
from datetime import UTC, datetime, timedelta

import pytest

from billhook.basics.failpoints import FAILPOINTS
from billhook.inbox import RunPlan
from support.acceptance.senders import Line, Load, body_of, load_on
from support.acceptance.stack import Stack
from support.inbox_view import change, incoming
from support.processes import in_children, until
from support.runs import result_of

LOST = "the worker died, or was silent for longer than BILLHOOK_LEASE_SECONDS"
LATEST = 20
"""How many times a process comes by a place at most before it dies there."""
WEB = {"before_insert": (0, "accepted"), "after_insert": (1, "duplicate")}
"""How many rows there are after a death there, and what the delivery is told when it comes again."""
WORKER = {
    # The plan and the first claim are one transaction: either both are committed or none.
    "in_plan": (1, 1),
    "in_claim": (1, 1),
    "after_plan": (2, 1),
    "after_claim": (2, 1),
    "before_call": (2, 1),
    "after_call": (2, 2),
    "in_settle": (2, 2),
    "after_settle": (1, 1),
}
"""How many attempts are counted after a death there, and how often the handler was called."""
COUNTING = ("in_watermark", "after_watermark")
"""Of maintenance; deaths there are in tests/component/inbox/counting/test_watermark.py."""


def test_every_failpoint_is_tried():
    assert sorted([*WEB, *WORKER, *COUNTING]) == sorted(FAILPOINTS)


def unhandled(stack: Stack, keys: set[str]) -> set[str]:
    """Those of the deliveries for which no handler was ever called."""
    return keys - {key for key, _, _ in stack.noted()}


def unaccounted(stack: Stack) -> list[tuple]:
    """Runs that did not succeed, or whose attempts but the last have not one failure each."""
    found = stack.rows(
        "SELECT run.id, run.state, run.attempts, count(failure.id) FROM run "
        "LEFT JOIN failure ON failure.run_id = run.id GROUP BY run.id, run.state, run.attempts"
    )
    return [row for row in found if row[1] != "succeeded" or row[2] != row[3] + 1]


# --- each place once ------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", WORKER)
def test_a_worker_that_dies_there_loses_nothing(stack, inbox, figures, name):
    inbox.put(incoming("msg_1"))
    dying = stack.start_worker(wait=False, BILLHOOK_FAILPOINT=name, BILLHOOK_LEASE_SECONDS="0.5")
    assert until(dying.ended, 60) == -signal.SIGKILL

    living = stack.start_worker(BILLHOOK_LEASE_SECONDS="60")
    stack.drain()

    lost = unhandled(stack, {"msg_1"})
    figures.add("lost at failpoints", len(lost), 1, 1, "deaths")
    assert lost == set()
    attempts, calls = WORKER[name]
    assert stack.rows("SELECT state, attempts FROM run") == [("succeeded", attempts)]
    assert stack.rows("SELECT attempt, error FROM failure") == [(1, LOST)] * (attempts - 1)
    assert len(stack.noted()) == calls
    assert living.ended() is None


@pytest.mark.long
@pytest.mark.parametrize("name", WEB)
def test_a_receiver_that_dies_there_is_sent_it_again(stack, figures, name):
    dying = stack.start_web(workers=1, BILLHOOK_FAILPOINT=name)
    line = Line(stack.port, 60)
    with pytest.raises(ConnectionError):
        line.post("msg_1", body_of(1))
    until(lambda: dying.says("was sent SIGKILL"), 30)
    dying.kill()
    stored, again = WEB[name]
    assert stack.value("SELECT count(*) FROM delivery") == stored

    living = stack.start_web(workers=1)
    processes = living.children()
    answer = line.post("msg_1", body_of(1))
    line.close()

    rows = stack.rows("SELECT key, body FROM delivery")
    figures.add("lost at failpoints", 1 - len(rows), 1, 1, "deaths")
    assert (answer.status, answer.body) == (200, b'{"status": "%s"}' % again.encode())
    assert rows == [("msg_1", body_of(1))]
    assert living.children() == processes


# --- at any time ----------------------------------------------------------------------------------


def die_in_turn(stack: Stack, deaths: list[tuple[str, int]]) -> Load:
    """Processes that die at the named places, each when it comes by for the n-th time, under load."""
    web = stack.start_web()
    with load_on(stack.port, threads=4, pause_seconds=0.02) as load:
        for name, times in deaths:
            armed = {"BILLHOOK_FAILPOINT": f"{name}:{times}"}
            if name in WEB:
                web.kill()
                web = stack.start_web(workers=1, wait=False, **armed)
                until(lambda dying=web: dying.says("was sent SIGKILL"), 60)
                web.kill()
                web = stack.start_web(wait=False)
            else:
                dying = stack.start_worker(wait=False, **armed)
                assert until(dying.ended, 60) == -signal.SIGKILL
    return load


@pytest.mark.long
def test_dying_there_at_any_time_loses_nothing(stack, figures):
    chance = random.Random(7)
    names = [*WEB, *WORKER] * 5
    chance.shuffle(names)

    load = die_in_turn(stack, [(name, chance.randrange(2, LATEST)) for name in names])
    stack.start_worker()
    stack.drain()

    lost = unhandled(stack, set(load.answered))
    figures.add("lost at failpoints", len(lost), len(load), len(names), "deaths")
    assert lost == set()
    assert unaccounted(stack) == []


@pytest.mark.long
def test_a_worker_that_settles_before_it_calls_is_caught(stack, inbox):
    delivery_id = inbox.put(incoming("msg_1")).delivery_id
    inbox.close()

    def hasty(_: int) -> bytes:
        now = datetime.now(UTC)
        with inbox.transaction("hasty") as transaction:
            transaction.plan([RunPlan(delivery_id, ("note",))], now)
            (claim,) = transaction.claim(1, now, now + timedelta(seconds=1))
            transaction.settle([result_of(claim)._replace(at=now)])
        os.kill(os.getpid(), signal.SIGKILL)
        return b"lives"

    assert in_children(1, hasty) == [b""]
    stack.start_worker()
    stack.drain()

    assert unhandled(stack, {"msg_1"}) == {"msg_1"}
    assert unaccounted(stack) == []
    change(stack.where, "UPDATE run SET attempts = 2")
    assert len(unaccounted(stack)) == 1
