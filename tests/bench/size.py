"""What an accept and a claim cost in an inbox of 1,000,000 rows, beside one of 1,000.

    python tests/bench/size.py [--rounds 5] [--rows 1000000] [--only postgresql]

Both inboxes are filled with finished deliveries, each with one run. A round measures both in turn: an accept
is one `put` of 16 threads that put at once; a turn plans, claims and settles 64 runs. SQLite, and PostgreSQL
when BILLHOOK_TEST_POSTGRES_URL is set. Medians of a round, ratios within it.
"""

from __future__ import annotations

import contextlib
import secrets
import statistics
import time
from datetime import UTC, datetime, timedelta

from measuring import (
    BODY,
    DATABASES,
    at_once,
    inbox_at,
    options,
    places,
    ratios,
    save,
    spread,
    timed,
)
from sqlalchemy import text

from billhook.inbox import Inbox, NewDelivery, RunPlan, RunState
from support import query_plans
from support.inbox_view import change, place_of

SMALL = 1_000
THREADS = 16
PUTS = 40  # of each thread in a round
TURNS = 40
BATCH = 64


def main() -> None:
    """Measure and print."""
    given = options(__doc__, rounds=5, rows=1_000_000, only=DATABASES)
    figures: dict[str, list[tuple[dict[str, float], ...]]] = {}
    for name, place in places(given.only).items():
        with contextlib.ExitStack() as stack:
            made = [stack.enter_context(inbox_at(place)) for _ in range(2)]
            for (inbox, url), rows in zip(made, (SMALL, given.rows), strict=True):
                fill(inbox, url, rows)
                print(f"{name:10} {rows:,} rows, {size_of(inbox) / rows:,.0f} bytes each", flush=True)
            figures[name] = [tuple(measure(one) for one, _ in made) for _ in range(given.rounds)]
            report(name, figures[name])
    save(given, figures)


def report(name: str, rounds: list[tuple[dict[str, float], ...]]) -> None:
    """Costs and ratios."""
    for what in ("accept", "turn"):
        small, large = ([one[index][what] for one in rounds] for index in (0, 1))
        print(
            f"{name:10} {what:7} {statistics.median(small) * 1e6:7.0f} us with {SMALL:,} rows, "
            f"{statistics.median(large) * 1e6:7.0f} us with many: {spread(ratios(large, small))}",
            flush=True,
        )


def fill(inbox: Inbox, url: str, rows: int) -> None:
    """Finished deliveries of a week ago, each with its run."""
    where, old = place_of(url), datetime.now(UTC) - timedelta(days=7)
    for first in range(0, rows, 500_000):
        key = f"'old-' || n || '-{secrets.token_hex(8)}'"
        query_plans.fill(where, min(500_000, rows - first), body=BODY.decode(), at=old, key=key)
        inbox.database.checkpoint()
    if (
        inbox.database.schema
    ):  # what a bulk load leaves to the server would else be measured beside the rounds
        change(where, "VACUUM ANALYZE delivery, run")
        change(where, "CHECKPOINT")


def size_of(inbox: Inbox) -> int:
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
    def put(_: int) -> None:
        for _ in range(PUTS):
            put_new(inbox)

    return timed(lambda: at_once(THREADS, put)) / (THREADS * PUTS)


def put_new(inbox: Inbox) -> None:
    """Store a delivery that is new."""
    now, key = datetime.now(UTC), secrets.token_hex(12)
    inbox.put(NewDelivery("default", key, "InvoiceApproved", BODY, "{}", now, now), timeout_seconds=30)


def _turn(inbox: Inbox, plans: list[RunPlan]) -> float:
    now = datetime.now(UTC)
    started = time.perf_counter()
    with inbox.transaction("bench") as transaction:
        transaction.plan(plans, now)
        claims = transaction.claim(BATCH, now, now + timedelta(seconds=30))
    with inbox.transaction("bench") as transaction:
        transaction.settle([one.ended(RunState.SUCCEEDED, now) for one in claims])
        transaction.next_times()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
