"""Histories of real processes, judged afterwards: do the rules explain all that was answered and called?"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from support.acceptance.histories import LEASE_SECONDS, Actors, record
from support.acceptance.judge import RULES, Attempt, Disturbance, History, Pause, Replay, Sent, judge
from support.acceptance.stack import HERE, Stack, stack_on
from support.processes import output_of
from support.templates import new_inbox

SECONDS = float(os.environ.get("BILLHOOK_TEST_HISTORY_SECONDS", "300"))
SEED = int(os.environ.get("BILLHOOK_TEST_HISTORY_SEED", "1"))
RUNS = "SELECT count(*) FROM run WHERE handler = ?"
SETTINGS = {
    "BILLHOOK_HANDLERS": str(HERE / "history_handlers.py"),
    "BILLHOOK_LEASE_SECONDS": str(LEASE_SECONDS),
    "BILLHOOK_RETRY_SCHEDULE_SECONDS": ",".join(["0.3"] * 60),
    # Senders are faster than workers that are killed all the time: what waits at the end has to be handled.
    "BILLHOOK_BACKLOG_LIMIT": "500",
}


def figures_that_differ(actors: Actors, stack: Stack) -> list[str]:
    """What `status` says of all that was stored and handled, and is not so."""
    command = [sys.executable, "-m", "billhook", "status", "--json"]
    status = json.loads(output_of(*command, env=stack.environment, cwd=stack.folder))
    calls = Counter(attempt.handler for attempt in actors.history.attempts if attempt.ended is not None)
    found = [f"{name} is {status[name]}" for name in ("unfinished", "dead", "quarantined") if status[name]]
    stored = stack.value("SELECT count(*) FROM delivery")
    accepted = sum(each["accepted"] for each in status["types"])
    if accepted != stored:
        found.append(f"{accepted} accepted, and {stored} stored")
    for each in status["handlers"]:
        name = each["name"]
        ended, runs = each["succeeded"] + each["failed"], stack.value(RUNS, name)
        # One that returned as its worker was killed was not counted, and was called again.
        if not runs <= ended <= calls[name]:
            found.append(f"{ended} attempts of {name} counted, {calls[name]} made for {runs} runs")
    return found


# --- the judge: for each rule what it explains, and what it finds -------------------------------------


def attempt(began: float, ended: float | None, key: str = "a", process: int = 1, **more: Any) -> Attempt:
    given = {"handler": "h", "value": "v", "number": 1, **more}
    return Attempt(key=key, process=process, began=began, ended=ended, **given)


def sent(key: str, began: float, answer: str = "accepted") -> Sent:
    return Sent(key, "T", "v", began, began + 0.1, answer)


def history(*attempts: Attempt, keys: str = "", **more: Any) -> History:
    """One of requests that were answered 200 a second apart, from 0 on."""
    answered = [sent(key, float(number)) for number, key in enumerate(keys)]
    given = {"ordered": frozenset({"h"}), "at_most": {"h": 2}, "sent": answered, **more}
    return History({"T": "h"}, attempts=list(attempts), **given)


STOOD_STILL = Disturbance(frozenset({1}), 1.0, 20.0)
FOR_A_MOMENT = Disturbance(frozenset({1}), 1.0, 1.5)
KILLED = Disturbance(frozenset({1}), 1.0)
EXPLAINED = {
    "all is handled once": history(attempt(1, 2, "a"), attempt(2, 3, "b"), keys="ab"),
    "not answered 200": history(sent=[sent("a", 0.0, "503")]),
    "it failed": history(attempt(1, 2, failed=True), attempt(3, 4), keys="a"),
    "its process was killed": history(
        attempt(0.5, None), attempt(11, 12, process=2), keys="a", disturbances=[KILLED]
    ),
    "killed before its result was stored": history(
        attempt(0.5, 0.9), attempt(11, 12, process=2), keys="a", disturbances=[KILLED]
    ),
    "killed before the database was back": history(
        attempt(0.5, 0.9),
        attempt(40, 41, process=2),
        keys="a",
        database_away=[(0.5, 25)],
        disturbances=[Disturbance(frozenset({1}), 30)],
    ),
    "its process stood still": history(
        attempt(0.5, 21), attempt(11, 12, process=2), keys="a", disturbances=[STOOD_STILL]
    ),
    "replayed": history(attempt(1, 2), attempt(4, 5), keys="a", replayed=[Replay("a", 2.5, 3.0)]),
    "it ended while the command that replayed it began": history(
        attempt(1, 2), attempt(4, 5), keys="a", replayed=[Replay("a", 0.5, 3.0)]
    ),
    "replayed twice": history(
        attempt(1, 2),
        attempt(4, 5),
        attempt(7, 8),
        keys="a",
        replayed=[Replay("a", 2.5, 3.0), Replay("a", 5.5, 6.0)],
    ),
    "two at once are allowed": history(
        attempt(1, 3, "a"), attempt(1, 3, "b"), keys="ab", ordered=frozenset()
    ),
    "sent at one time, and handled in any order": history(
        attempt(3, 4, "b"), attempt(5, 6, "a"), sent=[sent("a", 0.0), sent("b", 0.05)]
    ),
    "called before the pause and after": history(
        attempt(1, 5, "a"), attempt(7, 8, "b"), keys="ab", pauses=[Pause("h", 2, 6)]
    ),
}
FOUND = {
    "lost": [
        history(keys="a"),
        history(attempt(1, 2, failed=True), keys="a"),
        history(attempt(0.5, None), keys="a", disturbances=[KILLED]),
        history(sent=[sent("a", 0.0, "duplicate")]),
    ],
    "called_too_often": [
        history(attempt(1, 2), attempt(3, 4), keys="a"),
        history(attempt(0.5, 2), attempt(3, 4, process=2), keys="a", disturbances=[FOR_A_MOMENT]),
        history(attempt(0.5, 2), attempt(30, 31), keys="a", disturbances=[Disturbance(frozenset({1}), 25)]),
        history(attempt(0.5, 2), attempt(11, 12), keys="a", disturbances=[Disturbance(frozenset({9}), 1)]),
        history(attempt(1, 2), attempt(4, 5), keys="a", replayed=[Replay("a", 6.0, 7.0)]),
        history(attempt(1, 2), attempt(4, 5), keys="a", replayed=[Replay("a", 0.0, 0.5)]),
        history(attempt(1, 2), attempt(4, 5), attempt(7, 8), keys="a", replayed=[Replay("a", 2.5, 3.0)]),
    ],
    "vanished": [history(attempt(1, None), attempt(2, 3, process=2), keys="a")],
    "twice_at_once": [history(attempt(1, 4, failed=True), attempt(2, 3, process=2), keys="a")],
    "out_of_order": [
        history(attempt(3, 4, "b"), attempt(5, 6, "a"), keys="ab"),
        history(attempt(2, 3, "a", failed=True), attempt(4, 5, "b"), attempt(6, 7, "a"), keys="ab"),
    ],
    "over_limits": [
        history(attempt(1, 4, "a"), attempt(2, 4, "b"), attempt(3, 4, "c"), keys="abc", ordered=frozenset())
    ],
    "called_while_paused": [history(attempt(3, 4), keys="a", pauses=[Pause("h", 2, 6)])],
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_the_rules_allow_is_explained(name):
    assert judge(EXPLAINED[name]) == {}


def test_each_rule_has_a_history_that_breaks_it():
    assert FOUND.keys() == {rule.__name__ for rule in RULES}


@pytest.mark.parametrize(
    ("rule", "broken"),
    [(rule, each) for rule, histories in FOUND.items() for each in histories],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_the_rules_do_not_allow_is_found(rule, broken):
    assert rule in judge(broken)


# --- real processes -----------------------------------------------------------------------------------


@pytest.fixture
def celery_settings(redis_url) -> Iterator[dict[str, str]]:
    """What has a standalone receiver hand its deliveries to Celery, over a queue of its own."""
    queue = f"billhook-history-{secrets.token_hex(4)}"
    yield {
        "BILLHOOK_ENGINE": "celery",
        "BILLHOOK_CELERY_APP": "history_celery:celery",
        "PYTHONPATH": str(HERE),
        "ACCEPTANCE_BROKER": redis_url,
        "ACCEPTANCE_QUEUE": queue,
    }
    with contextlib.closing(redis.Redis.from_url(redis_url)) as server:
        for key in server.scan_iter(f"{queue}*"):
            server.delete(key)


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("engine", ["worker", "celery"])
def test_the_rules_explain_what_real_processes_did(request, tmp_path, database, engine):
    restart = None
    own = request.getfixturevalue("celery_settings") if engine == "celery" else {}
    if database == "sqlite":
        url = new_inbox(f"sqlite:///{tmp_path / 'billhook.db'}")
    else:
        url, server = (request.getfixturevalue(name) for name in ("frail_url", "frail_server"))
        restart = lambda: server.control("restart", "-m", "fast")  # noqa: E731
    with stack_on(tmp_path, url, **SETTINGS, **own) as stack:
        actors = record(stack, seed=SEED, seconds=SECONDS, restart_database=restart)
        differing = figures_that_differ(actors, stack)

    assert (judge(actors.history), differing) == ({}, [])
    assert len(actors.history.attempts) > 5 * SECONDS
