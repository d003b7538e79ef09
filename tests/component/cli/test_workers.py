"""`billhook workers`: who calls handlers, and what each runs now."""

from __future__ import annotations

import json
from datetime import timedelta

from billhook.inbox import WorkerRecord


def test_workers_are_a_table_and_json(run, shop):
    assert run("workers").stdout == "no worker was seen in the last day\n"
    inbox = shop.app_state.inbox
    now = inbox.now()
    for owner, ago in (("lost\x1b", 600), ("runs", 5)):
        started = now - timedelta(seconds=ago)
        inbox.record_worker(
            WorkerRecord(owner, "worker", 2, started, host=f"h {owner}", pid=7, threads=4), started
        )

    table = run("workers").stdout
    found = json.loads(run("workers", "--json").stdout)

    assert [line.split()[:5] for line in table.splitlines()[2:]] == [
        ["h", "runs", "7", "running", "worker"],
        ["h", "lost\\x1b", "7", "lost", "10"],
    ]
    assert [(one["owner"], one["state"], one["threads"], one["running"]) for one in found] == [
        ("runs", "running", 4, 0),
        ("lost\x1b", "lost", 4, 0),
    ]
