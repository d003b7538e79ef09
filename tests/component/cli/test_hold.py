"""`workers hold` and `resume`: which worker a name is of, and what is recorded."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from billhook.inbox import WorkerRecord


@pytest.fixture
def three(shop):
    """Three live workers; two of them have the same process id, on different machines."""
    now = datetime.now(UTC)
    for owner, engine, host, pid in (
        ("a", "worker", "web-1", 7),
        ("b", "thread", "web-2", 7),
        ("c", "rq", "web-2", 8),
    ):
        shop.app_state.inbox.record_worker(WorkerRecord(owner, engine, 1, now, host=host, pid=pid), now)
    return shop


def listed(run) -> dict[str, str]:
    return {one["owner"]: one["state"] for one in json.loads(run("workers", "--json").stdout)}


def test_a_worker_is_held_until_it_is_resumed(run, three):
    held = run("workers", "hold", "web-1:7", "b")
    while_held, shown = listed(run), run("workers").stdout
    again = run("workers", "hold", "a")
    resumed = run("workers", "resume", "web-1:7")
    not_again = run("workers", "resume", "web-1:7")
    actions = json.loads(run("actions", "--json").stdout)

    assert held.stdout == (
        "web-1:7 starts no run from its next poll on\nweb-2:7 starts no run from its next poll on\n"
    )
    assert while_held == {"a": "held", "b": "held", "c": "running"}
    assert "held" in shown
    assert again.stdout == "web-1:7 was held already\n"
    assert resumed.stdout == "web-1:7 starts runs again\n"
    assert not_again.stdout == "web-1:7 was not held\n"
    assert listed(run) == {"a": "running", "b": "held", "c": "running"}
    assert [(one["what"], one["which"]) for one in actions] == [
        ("resume", "worker web-1:7"), ("hold", "worker web-2:7"), ("hold", "worker web-1:7"),
    ]  # fmt: skip


def test_the_reason_of_a_hold_is_shown_with_the_worker_until_it_is_resumed(run, three):
    def told():
        listed = {one["owner"]: one["held_why"] for one in json.loads(run("workers", "--json").stdout)}
        return listed["a"], re.findall("held for: (.*?) *\n", run("workers").stdout)

    run("workers", "hold", "a", "--reason", "a leak")
    first = told()
    changed = run("workers", "hold", "a", "--reason", "a new \x1b[31mdisk").stdout
    run("workers", "hold", "a")
    second = told()
    run("workers", "resume", "a")
    resumed = told()
    actions = run("actions", "--json").stdout

    assert first == ("a leak", ["a leak"])
    assert changed == "web-1:7 was held already; the reason is now: a new \\x1b[31mdisk\n"
    assert second == ("a new \x1b[31mdisk", ["a new \\x1b[31mdisk"])
    assert resumed == (None, [])
    # Reasons may name a customer, whose erasure leaves the record of actions as it is.
    assert (actions.count('"hold"'), "leak" in actions, "disk" in actions) == (2, False, False)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("7", "7 is of 2 workers, write one of them: "),
        ("99", "there is no live worker 99: see `billhook workers`"),
        ("8", "8 is a worker of rq, which gives it its runs"),
    ],
)
def test_a_name_that_is_of_no_worker_or_of_several_changes_nothing(run, three, name, told):
    refused = run("workers", "hold", "web-1:7", name)

    assert refused.exit_code == 1
    assert told in refused.stderr
    assert set(listed(run).values()) == {"running"}
