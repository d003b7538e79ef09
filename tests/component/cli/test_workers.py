"""`workers`: what the list shows in a terminal of any width."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from billhook.inbox import WorkerRecord
from support.inbox_view import NOON
from support.runs import OWNER, claim, planned


def test_in_a_narrow_terminal_nothing_of_what_a_worker_runs_is_cut(run, shop, monkeypatch):
    inbox, now = shop.app_state.inbox, datetime.now(UTC)
    began = (now - NOON).total_seconds() - 25 * 60
    its_id = planned(inbox, "shop.billing.book_invoice", key="hangs", seconds=began)
    claim(inbox, 1, began, only=its_id)
    more = {"host": "billing-web-7", "pid": 4711, "threads": 6}
    inbox.record_worker(WorkerRecord(OWNER, "worker", 3, now - timedelta(days=1), **more), now)
    monkeypatch.setenv("COLUMNS", "80")

    heading, _, *lines = run("workers").stdout.splitlines()

    assert max(map(len, (heading, *lines))) <= 80
    start = heading.index("what")
    shown = " ".join(line[start:].strip() for line in lines)
    assert shown == f"shop.billing.book_invoice of delivery {its_id}, since 25 min ago"


def test_the_oldest_call_is_shown_with_the_number_of_the_others(run, shop):
    inbox, now = shop.app_state.inbox, datetime.now(UTC)
    began = (now - NOON).total_seconds() - 25 * 60
    ids = [planned(inbox, "book", key=f"{number}", seconds=began) for number in range(3)]
    for number, its_id in enumerate(ids):
        claim(inbox, 1, began + number, only=its_id)
    inbox.record_worker(WorkerRecord(OWNER, "worker", 3, now - timedelta(days=1), threads=6), now)

    told = " ".join(run("workers").stdout.split())

    assert f"book of delivery {ids[0]}, since 25 min ago, and 2 more" in told
    shown = run("deliveries", "show", str(ids[0])).stdout
    assert "running" in shown
    assert "next (UTC)" not in shown
