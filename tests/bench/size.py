"""What an accept and a claim cost in an inbox of 1,000,000 rows, beside one of 1,000.

    python tests/bench/size.py [--rounds 5] [--rows 1000000] [--only postgresql]

Both inboxes are filled with finished deliveries, each with one run. A round measures both in turn: an accept
is one `put` of 16 threads that put at once; a turn plans, claims and settles 64 runs. SQLite, and PostgreSQL
when BILLHOOK_TEST_POSTGRES_URL is set. Medians of a round, ratios within it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engines import BODY, _sqlite, postgres, server_url
from sqlalchemy import text

from billhook.inbox import Inbox, NewDelivery, RunPlan, RunResult, RunState

SMALL = 1_000
THREADS = 16
PUTS = 40  # of each thread in a round
TURNS = 40
BATCH = 64

_FILL = """
    WITH RECURSIVE number (n) AS
        (SELECT CAST({first} AS bigint) UNION ALL SELECT n + 1 FROM number WHERE n < {last})
    INSERT INTO delivery (source, key, event_type, body, headers, state, signed_at, received_at)
    SELECT 'default', 'old-' || n || '-{salt}', 'InvoiceApproved', CAST(:body AS {bytes}), '{{}}', 'done',
           :old, :old FROM number
"""
_FILL_RUNS = """
    INSERT INTO run (delivery_id, handler, state, attempts, due_at, token, finished_at)
    SELECT id, 'noop', 'succeeded', 1, :old, 1, :old FROM delivery
    WHERE id > (SELECT coalesce(max(delivery_id), 0) FROM run)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    figures: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = {}
    for name, place in (("sqlite", _sqlite), ("postgresql", postgres)):
        if place is postgres and "BILLHOOK_TEST_POSTGRES_URL" not in os.environ:
            continue
        if options.only not in (None, name):
            continue
        with contextlib.ExitStack() as stack:
            inboxes = []
            for rows in (SMALL, options.rows):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                inbox = Inbox(stack.enter_context(place(folder)))
                stack.callback(inbox.close)
                inbox.database.prepare() if place is _sqlite else inbox.upgrade()
                fill(inbox, rows, "bytea" if place is postgres else "blob")
                print(f"{name:10} {rows:,} rows, {_bytes(inbox) / rows:,.0f} bytes each", flush=True)
                inboxes.append(inbox)
            figures[name] = [(measure(inboxes[0]), measure(inboxes[1])) for _ in range(options.rounds)]
            report(name, figures[name])
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def report(name: str, rounds: list[tuple[dict[str, float], dict[str, float]]]) -> None:
    """Costs and ratios."""
    for what in ("accept", "turn"):
        ratios = [large[what] / small[what] for small, large in rounds]
        small, large = (statistics.median(one[index][what] for one in rounds) for index in (0, 1))
        print(
            f"{name:10} {what:7} {small * 1e6:7.0f} us with {SMALL:,} rows, {large * 1e6:7.0f} us with many: "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def fill(inbox: Inbox, rows: int, binary: str) -> None:
    """Finished deliveries of a week ago, each with its run; keys in no order, as real ones are."""
    old = datetime.now(UTC) - timedelta(days=7)
    moment = old if binary == "bytea" else old.strftime("%Y-%m-%d %H:%M:%S.%f")
    for first in range(1, rows + 1, 50_000):
        statement = _FILL.format(
            first=first, last=min(rows, first + 49_999), salt=secrets.token_hex(8), bytes=binary
        )
        with inbox.database.write() as connection:
            connection.execute(text(statement), {"body": BODY, "old": moment})
            connection.execute(text(_FILL_RUNS), {"old": moment})
        inbox.database.checkpoint()
    if binary == "bytea":  # what a bulk load leaves to the server would else be measured beside the rounds
        import psycopg

        with inbox.database.read() as connection:
            schema = connection.execute(text("SELECT current_schema()")).scalar_one()
        with psycopg.connect(server_url(), autocommit=True) as connection:
            connection.execute(f'VACUUM ANALYZE "{schema}".delivery, "{schema}".run')
            connection.execute("CHECKPOINT")


def _bytes(inbox: Inbox) -> int:
    """How much disk the deliveries and their runs take, with their indexes."""
    size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    if inbox.database.schema:
        size = "SELECT pg_total_relation_size('delivery') + pg_total_relation_size('run')"
    with inbox.database.read() as connection:
        return int(connection.execute(text(size)).scalar_one())


def measure(inbox: Inbox) -> dict[str, float]:
    """Seconds an accepted delivery, and seconds a turn."""
    accept = _accepts(inbox)
    turns = []
    while received := inbox.received(BATCH):
        turns.append(_turn(inbox, [RunPlan(stored.delivery_id, ("noop",)) for stored in received]))
    return {"accept": accept, "turn": statistics.median(turns[1:-1])}


def _accepts(inbox: Inbox) -> float:
    def put() -> None:
        for _ in range(PUTS):
            now = datetime.now(UTC)
            key = secrets.token_hex(12)
            inbox.put(
                NewDelivery("default", key, "InvoiceApproved", BODY, "{}", now, now), timeout_seconds=30
            )

    threads = [threading.Thread(target=put) for _ in range(THREADS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - started) / (THREADS * PUTS)


def _turn(inbox: Inbox, plans: list[RunPlan]) -> float:
    now = datetime.now(UTC)
    started = time.perf_counter()
    with inbox.transaction("bench") as transaction:
        transaction.plan(plans, now)
        claims = transaction.claim(BATCH, now, now + timedelta(seconds=30))
    with inbox.transaction("bench") as transaction:
        transaction.settle(
            [
                RunResult(c.run_id, c.token, c.delivery.delivery_id, c.attempt, RunState.SUCCEEDED, now)
                for c in claims
            ]
        )
        transaction.next_times()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
